//! Pages of dead letters: every letter once, while the list changes.

use pillarbox::store::{Cursor, DeadLetter, Direction, Filter, List, MAX_BATCH, Operation};
use pillarbox::{EventId, Seq, Timestamp};

use super::dead_letters::give_up;
use crate::backend::Backend;
use crate::conformance::owner::{HOUR, Owner, dead, free, replay};

const DIRECTIONS: [Direction; 2] = [Direction::NewestFirst, Direction::OldestFirst];

/// Those given up last come first, or those given up first.
pub async fn letters_come_by_the_moment_they_were_given_up<B: Backend>(backend: &B) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.extend(give_up(backend, [(free(), "x")]).await);
        for id in &ids {
            backend.age(id, HOUR).await;
        }
    }

    let newest = page(backend, &List::default()).await;
    let oldest =
        page(backend, &List { direction: Direction::OldestFirst, ..List::default() }).await;

    assert_eq!(texts(&oldest), ids.iter().map(EventId::as_str).collect::<Vec<_>>());
    assert_eq!(texts(&newest), ids.iter().rev().map(EventId::as_str).collect::<Vec<_>>());
}

/// Page by page, each letter is seen once, also those given up at the same moment.
pub async fn pages_show_every_letter_once<B: Backend>(backend: &B) {
    // One call of the store: many of them get the same moment, where its clock is coarse.
    give_up(backend, (0..60).map(|_| (free(), "x"))).await;
    let in_order = |direction| List { direction, limit: 7, ..List::default() };

    let newest = turn(backend, in_order(Direction::NewestFirst)).await;
    let mut oldest = turn(backend, in_order(Direction::OldestFirst)).await;

    let places: Vec<_> = oldest.iter().map(|letter| (letter.given_up_at, letter.seq)).collect();
    assert_eq!(places.len(), 60);
    assert!(places.is_sorted_by(|one, next| one < next), "by moment, then by seq");
    oldest.reverse();
    assert_eq!(newest, oldest);
}

/// A page may have a filter; its position counts among all letters.
pub async fn pages_keep_to_their_filter<B: Backend>(backend: &B) {
    give_up(backend, (0..40).map(|n| (free(), if n % 4 == 0 { "odd one" } else { "x" }))).await;
    for direction in DIRECTIONS {
        let filter = Filter { error: Some("odd".to_owned()), ..Filter::default() };

        let letters = turn(backend, List { filter, direction, after: None, limit: 3 }).await;

        assert_eq!(letters.len(), 10);
        assert!(letters.iter().all(|letter| letter.last_error.as_deref() == Some("odd one")));
    }
}

/// Letters that come and go between two pages neither hide others nor show them twice.
pub async fn pages_go_on_while_letters_come_and_go<B: Backend>(backend: &B) {
    for direction in DIRECTIONS {
        let first = give_up(backend, (0..12).map(|_| (free(), "x"))).await;
        for id in &first {
            backend.age(id, HOUR).await;
        }
        let mut list = List { direction, limit: 4, ..List::default() };
        let seen = page(backend, &list).await;
        list.after = seen.last().map(DeadLetter::cursor);

        // The last one on the page goes too: the position stays valid.
        let (gone, next) = (&seen[3].event_id, next_of(&first, &seen));
        discard(backend, &[gone, &next]).await;
        let late = give_up(backend, [(free(), "x"), (free(), "x")]).await;
        let rest = turn(backend, list).await;

        let mut all: Vec<_> = [texts(&seen), texts(&rest)].concat();
        let came = late.iter().filter(|id| all.contains(&id.as_str())).count();
        assert_eq!(came, if direction == Direction::OldestFirst { 2 } else { 0 });
        all.retain(|id| late.iter().all(|late| late.as_str() != *id));
        all.sort_unstable();
        let mut expected: Vec<_> = first.iter().map(EventId::as_str).collect();
        expected.retain(|id| *id != next);
        expected.sort_unstable();
        assert_eq!(all, expected, "{direction:?}");
        discard_all(backend).await;
    }
}

/// A letter that was replayed and given up again is a new one, at a new position.
pub async fn a_dead_letter_given_up_again_has_a_new_position<B: Backend>(backend: &B) {
    let ids = give_up(backend, [(free(), "x"), (free(), "x")]).await;
    for id in &ids {
        backend.age(id, HOUR).await;
    }
    let oldest = List { direction: Direction::OldestFirst, limit: 1, ..List::default() };
    let seen = page(backend, &oldest).await;

    let again = EventId::new(seen[0].event_id.clone()).unwrap();
    replay(&*backend.store(), std::slice::from_ref(&again)).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&again, dead()).await;

    let rest = turn(backend, List { after: Some(seen[0].cursor()), ..oldest }).await;
    assert_eq!(rest.last().unwrap().event_id, seen[0].event_id);
    assert_eq!(rest.len(), 2);
}

/// A position survives its text form.
pub async fn a_position_may_be_stored_as_text<B: Backend>(backend: &B) {
    give_up(backend, (0..6).map(|_| (free(), "x"))).await;
    for direction in DIRECTIONS {
        let list = List { direction, limit: 3, ..List::default() };
        let first = page(backend, &list).await;
        let place = first[2].cursor().to_string();

        let after: Cursor = place.parse().unwrap();
        let second = page(backend, &List { after: Some(after), ..list }).await;

        assert_eq!(second.len(), 3);
        assert!(second.iter().all(|letter| !first.contains(letter)));
    }
}

/// A page is as long as asked for, and never longer than a batch; a count has no end.
pub async fn a_page_has_its_limit<B: Backend>(backend: &B) {
    let all = MAX_BATCH + 5;
    give_up(backend, (0..all).map(|_| (free(), "x"))).await;
    let length = async |limit| page(backend, &List { limit, ..List::default() }).await.len();

    assert_eq!(length(0).await, 0);
    assert_eq!(length(3).await, 3);
    assert_eq!(length(u32::MAX).await, MAX_BATCH);
    assert_eq!(backend.store().count_dead(&Filter::default()).await.unwrap(), all as u64);
}

/// After a position beyond either end there is nothing, or everything.
pub async fn a_position_may_be_anywhere<B: Backend>(backend: &B) {
    give_up(backend, (0..3).map(|_| (free(), "x"))).await;
    let first = Cursor { at: Timestamp::from_unix_micros(i64::MIN), seq: Seq::START };
    let last = Cursor { at: Timestamp::from_unix_micros(i64::MAX), seq: Seq(i64::MAX) };
    let length = async |direction, after| {
        page(backend, &List { direction, after: Some(after), ..List::default() }).await.len()
    };

    assert_eq!(length(Direction::OldestFirst, first).await, 3);
    assert_eq!(length(Direction::OldestFirst, last).await, 0);
    assert_eq!(length(Direction::NewestFirst, first).await, 0);
    assert_eq!(length(Direction::NewestFirst, last).await, 3);
}

async fn page<B: Backend>(backend: &B, list: &List) -> Vec<DeadLetter> {
    backend.store().dead_letters(list).await.unwrap()
}

/// Turns page after page to the end.
async fn turn<B: Backend>(backend: &B, mut list: List) -> Vec<DeadLetter> {
    let mut all = Vec::new();
    loop {
        let letters = page(backend, &list).await;
        assert!(letters.len() <= list.rows());
        assert!(all.len() <= MAX_BATCH, "the pages have no end");
        let Some(last) = letters.last() else { return all };
        list.after = Some(last.cursor());
        all.extend(letters);
    }
}

fn texts(letters: &[DeadLetter]) -> Vec<&str> {
    letters.iter().map(|letter| &*letter.event_id).collect()
}

/// One that has not been seen yet.
fn next_of(ids: &[EventId], seen: &[DeadLetter]) -> String {
    let unseen = ids.iter().find(|id| !texts(seen).contains(&id.as_str()));
    unseen.expect("there are more").to_string()
}

async fn discard<B: Backend>(backend: &B, ids: &[&String]) {
    let ids: Vec<_> = ids.iter().map(|id| EventId::new((*id).clone()).unwrap()).collect();
    let count = ids.len();
    let done = backend.store().operate(&Operation::discard(ids)).await.unwrap();
    assert_eq!(done.changed.len(), count);
}

async fn discard_all<B: Backend>(backend: &B) {
    let letters = page(backend, &List::default()).await;
    discard(backend, &letters.iter().map(|letter| &letter.event_id).collect::<Vec<_>>()).await;
}
