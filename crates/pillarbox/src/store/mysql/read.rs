//! New rows of many shards in few statements.

use serde_json::{Value, json};
use sqlx::mysql::MySqlRow;
use sqlx::{AssertSqlSafe, MySqlConnection, Row as _};

use super::row::{content, fitting, pending};
use super::{MysqlStore, sql::events as sql};
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::store::content::{Fit, fill};
use crate::store::{Pending, Predecessor, Read};

/// As many rows as are read at once without asking where each shard's page ends.
pub(super) const FEW: u32 = 500;

/// One shard's part of a read.
#[derive(Clone, Copy)]
pub(super) struct Range {
    pub(super) shard: ShardId,
    pub(super) floor: Seq,
    /// The last row of its page.
    pub(super) end: Seq,
}

/// What fills a statement up: no row is of this shard.
pub(super) const NONE: Range = Range { shard: ShardId(-1), floor: Seq::START, end: Seq::START };

/// Reads take no locks, so that this isolation stops nobody.
pub(super) const SNAPSHOT: &str =
    "set transaction isolation level repeatable read; start transaction read only";

impl MysqlStore {
    /// All rows, if there are no more than a few.
    pub(super) async fn few_rows(
        &self,
        connection: &mut MySqlConnection,
        read: &Read,
        ranges: &[Range],
        few: u32,
    ) -> Result<Option<Vec<Pending>>> {
        let limit = few.saturating_add(1);
        let fit = Fit::of(&read.budget, limit as usize);
        let rows = self.read_ranges(connection, ranges, limit, fit).await?;
        if ranges.len() > 1 && rows.len() > few as usize {
            return Ok(None);
        }
        let mut rows = pages(rows, read.limit);
        let chosen = read.budget.choose(&rows, |row| read.line(row));
        self.fetch_content(connection, &mut rows, chosen).await?;
        Ok(Some(rows))
    }

    pub(super) async fn read_ranges(
        &self,
        connection: &mut MySqlConnection,
        ranges: &[Range],
        limit: u32,
        fit: Fit,
    ) -> Result<Vec<Pending>> {
        let (marks, parts) = parts(sql::RANGE, "\n   or ", ranges, NONE);
        let text = self.tables.render(sql::READ).replace("{ranges}", &marks);
        let is_above_floor = parts.iter().any(|it| it.floor.0 > 0);
        let mut query = fitting(sqlx::query(AssertSqlSafe(text)).bind(is_above_floor), fit);
        for range in parts {
            query = query.bind(range.shard.0).bind(range.floor.0).bind(range.end.0);
        }
        let rows = query.bind(i64::from(limit)).fetch_all(connection).await?;
        let mut found = Vec::with_capacity(rows.len());
        for row in rows {
            let mut pending = pending(&row)?;
            let head: Option<i64> = row.try_get("head")?;
            let floor = ranges.iter().find(|range| range.shard == pending.shard);
            let is_unread = floor.is_some_and(|it| head.is_some_and(|head| head <= it.floor.0));
            if is_unread && pending.before == Predecessor::Nothing {
                pending.before = Predecessor::Unread;
            }
            found.push(pending);
        }
        Ok(found)
    }

    pub(super) async fn find_ends(
        &self,
        connection: &mut MySqlConnection,
        ranges: &mut [Range],
        limit: u32,
    ) -> Result<()> {
        let (text, parts) = parts(&self.tables.render(sql::READ_END), "\nunion all", ranges, NONE);
        let mut query = sqlx::query_as(AssertSqlSafe(text));
        for range in parts {
            query = query.bind(range.shard.0).bind(range.floor.0).bind(i64::from(limit) - 1);
        }
        let ends: Vec<(i16, i64)> = query.fetch_all(connection).await?;
        for range in ranges {
            let end = ends.iter().find(|(shard, _)| *shard == range.shard.0);
            range.end = end.map_or(range.end, |(_, seq)| Seq(*seq));
        }
        Ok(())
    }

    /// Fetches the content of rows that were read without.
    pub(super) async fn fetch_content(
        &self,
        connection: &mut MySqlConnection,
        rows: &mut Vec<Pending>,
        chosen: Vec<(ShardId, Seq)>,
    ) -> Result<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let list: Value = chosen.iter().map(|(shard, seq)| json!([shard.0, seq.0])).collect();
        let query = fitting(self.query(sql::READ_CONTENT), Fit::WHOLE);
        let found = query.bind(list.to_string()).fetch_all(connection).await?;
        let content = |row: MySqlRow| Ok((Seq(row.try_get("seq")?), content(&row)?));
        let fetched = found.into_iter().map(content).collect::<Result<_>>()?;
        fill(rows, &chosen, fetched);
        Ok(())
    }
}

/// Each shard is a part of a statement, and the number of parts a power of two, so that the
/// connections have few statements to keep prepared.
pub(super) fn parts<T: Clone>(part: &str, or: &str, wanted: &[T], none: T) -> (String, Vec<T>) {
    let mut wanted = wanted.to_vec();
    wanted.resize(wanted.len().next_power_of_two(), none);
    (vec![part; wanted.len()].join(or), wanted)
}

/// No more of a shard than its page has room for.
fn pages(mut rows: Vec<Pending>, limit: u32) -> Vec<Pending> {
    let (mut shard, mut room) = (ShardId(-1), limit);
    rows.retain(|row| {
        if row.shard != shard {
            (shard, room) = (row.shard, limit);
        }
        let fits = room > 0;
        room = room.saturating_sub(1);
        fits
    });
    rows
}
