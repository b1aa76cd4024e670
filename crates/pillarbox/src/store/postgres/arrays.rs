//! Rows and verdicts as arrays, one for each column: what a statement binds.

use std::collections::HashMap;

use sqlx::postgres::PgArguments;
use sqlx::{Postgres, query::Query};

use crate::store::mark::Mark;
use crate::store::{RowLease, RowVerdict, Settlement};
use crate::verdict::Verdict;

/// What is to become of a row.
pub(super) struct Entry<'a> {
    pub(super) row: RowLease,
    pub(super) verdict: &'a Verdict,
    route: Option<&'a str>,
}

impl<'a> From<&'a Settlement> for Entry<'a> {
    fn from(it: &'a Settlement) -> Self {
        let row = RowLease { shard: it.shard, seq: it.seq, token: it.token };
        Self { row, verdict: &it.verdict, route: it.settled_by.as_deref() }
    }
}

impl<'a> From<&'a RowVerdict> for Entry<'a> {
    fn from(it: &'a RowVerdict) -> Self {
        Self { row: it.row, verdict: &it.verdict, route: it.settled_by.as_deref() }
    }
}

type Statement<'q> = Query<'q, Postgres, PgArguments>;

/// Rows with their tokens.
pub(super) struct Rows {
    pub(super) shards: Vec<i16>,
    pub(super) seqs: Vec<i64>,
    pub(super) tokens: Vec<i32>,
}

impl Rows {
    /// In order of `seq`: what belongs to a row is found by halving.
    pub(super) fn of<'r>(rows: impl IntoIterator<Item = &'r RowLease>) -> Self {
        let mut rows: Vec<&RowLease> = rows.into_iter().collect();
        rows.sort_by_key(|row| row.seq);
        Self {
            shards: rows.iter().map(|row| row.shard.0).collect(),
            seqs: rows.iter().map(|row| row.seq.0).collect(),
            tokens: rows.iter().map(|row| row.token.0).collect(),
        }
    }
}

/// Binds what to write, in the order of the rows.
pub(super) fn marks<'q>(statement: Statement<'q>, entries: &[Entry<'_>]) -> Statement<'q> {
    let marks: Vec<Mark<'_>> = entries.iter().map(|entry| Mark::of(entry.verdict)).collect();
    let mut texts = Texts::default();
    let errors: Vec<i32> = marks.iter().map(|mark| texts.place_of(mark.error)).collect();
    let routes: Vec<i32> = entries.iter().map(|entry| texts.place_of(entry.route)).collect();
    let texts: Vec<String> = texts.list.into_iter().map(str::to_owned).collect();
    statement
        .bind(marks.iter().map(|mark| mark.status.code()).collect::<Vec<i16>>())
        .bind(marks.iter().map(|mark| mark.tried).collect::<Vec<i32>>())
        .bind(marks.iter().map(|mark| mark.delay).collect::<Vec<i64>>())
        .bind(texts)
        .bind(errors)
        .bind(routes)
}

/// Texts, each of them once: the server walks through them to find one.
#[derive(Default)]
struct Texts<'a> {
    list: Vec<&'a str>,
    places: HashMap<&'a str, i32>,
}

impl<'a> Texts<'a> {
    /// Where in the list it stands, counted from 1; 0 for none.
    fn place_of(&mut self, text: Option<&'a str>) -> i32 {
        let Some(text) = text else { return 0 };
        *self.places.entry(text).or_insert_with(|| {
            self.list.push(text);
            i32::try_from(self.list.len()).unwrap_or(0)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_text_is_sent_once() {
        let mut texts = Texts::default();
        let places = [Some("down"), None, Some("order.placed"), Some("down")];
        assert_eq!(places.map(|text| texts.place_of(text)), [1, 0, 2, 1]);
        assert_eq!(texts.list, ["down", "order.placed"]);
    }
}
