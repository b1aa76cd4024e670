//! The pages of a list of dead letters: cursors and limits come from a URL's query.

use std::sync::OnceLock;

use pillarbox::store::{Cursor, DeadLetter, Direction, Filter, List, Operations as _, Status};
use pillarbox::{ErrorKind, Seq, Timestamp};

use crate::field::{Fields, joined};
use letters::{Letters, at_once};

mod letters;

static LETTERS: OnceLock<Letters> = OnceLock::new();

/// A cursor that comes back as it went, and pages that together are the list.
pub fn run(data: &[u8]) {
    let mut fields = Fields::of(data);
    let after = match fields.text().map(|text| text.parse::<Cursor>()) {
        None => None,
        Some(Ok(cursor)) => {
            assert_eq!(cursor.to_string().parse::<Cursor>().expect("as it was written"), cursor);
            Some(cursor)
        }
        Some(Err(error)) => return assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    };
    let limit = fields.number().and_then(|limit| u32::try_from(limit).ok()).unwrap_or(3);
    let direction = match fields.text().as_deref() {
        Some("oldest") => Direction::OldestFirst,
        _ => Direction::NewestFirst,
    };
    let list = List { filter: filter(&mut fields), direction, after, limit };
    let letters = LETTERS.get_or_init(Letters::new);
    assert_page(letters, &list);
    assert_pages(letters, list);
}

fn filter(fields: &mut Fields<'_>) -> Filter {
    let status = match fields.text().as_deref() {
        Some("dead") => Some(Status::Dead),
        Some("held") => Some(Status::Held),
        Some("done") => Some(Status::Done),
        _ => None,
    };
    Filter {
        status,
        event_type: fields.text(),
        error: fields.text(),
        since: fields.number().map(Timestamp::from_unix_micros),
        until: fields.number().map(Timestamp::from_unix_micros),
        ..Filter::default()
    }
}

fn assert_page(letters: &Letters, list: &List) {
    let page = letters.page(list);
    assert!(page.len() <= list.rows() && list.rows() <= 1000);
    let places: Vec<Cursor> =
        list.after.into_iter().chain(page.iter().map(DeadLetter::cursor)).collect();
    let is_sorted = match list.direction {
        Direction::NewestFirst => places.is_sorted_by(|a, b| a > b),
        Direction::OldestFirst => places.is_sorted_by(|a, b| a < b),
    };
    assert!(is_sorted, "{places:?} of {list:?}");
}

/// Page by page, everything comes once, as the count says.
fn assert_pages(letters: &Letters, list: List) {
    let mut list = List { after: None, limit: list.limit.max(1), ..list };
    let mut seen: Vec<Seq> = Vec::new();
    loop {
        let page = letters.page(&list);
        let Some(last) = page.last() else { break };
        // Asked here: a page that comes again would come for ever.
        assert!(page.iter().all(|letter| !seen.contains(&letter.seq)), "twice: {list:?}");
        list.after = Some(last.cursor().to_string().parse().expect("a cursor of ours"));
        seen.extend(page.into_iter().map(|letter| letter.seq));
    }
    let counted = at_once(letters.store().count_dead(&list.filter));
    assert_eq!(counted, seen.len() as u64, "{list:?}");
}

/// Cursors of all signs, and what is none; lists of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let list = |cursor, limit, rest: &[Option<&'static str>]| {
        joined([cursor, limit].into_iter().chain(rest.iter().copied()))
    };
    vec![
        list(Some("1700000000000000-42"), Some("2"), &[]),
        list(Some("1000003-4"), Some("1"), &[Some("oldest"), Some("dead")]),
        list(Some("-5-3"), Some("0"), &[Some("newest"), Some("held"), Some("a.b")]),
        list(Some("9223372036854775807-9223372036854775807"), Some("4294967295"), &[]),
        list(Some("-9223372036854775808-0"), Some("5"), &[Some("oldest"), None, None, Some("no")]),
        list(None, Some("7"), &[None, None, None, None, Some("1000003"), Some("1000009")]),
        list(Some("somewhere"), None, &[]),
        list(Some("1--1"), None, &[]),
    ]
}
