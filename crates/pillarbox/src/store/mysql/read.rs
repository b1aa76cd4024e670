//! New rows, read without a write: the shard's lease says whose they are.

use std::sync::{Arc, atomic::Ordering};

use serde_json::{Value, json};
use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection, Row as _, query::Query};
use time::{OffsetDateTime, PrimitiveDateTime};

use super::{MysqlStore, sql};
use crate::clock::{Timestamp, from_micros};
use crate::envelope::{Row, Sizes};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::pooled::PooledTx;
use crate::store::content::{Fit, fill, opened};
use crate::store::{Content, KeyRead, Pending, Predecessor, Read, ReadKeys, ShardRead, Status};

/// As many rows as are read at once without asking where each shard's page ends.
const FEW: u32 = 500;

/// One shard's part of a read.
#[derive(Clone, Copy)]
struct Range {
    shard: ShardId,
    floor: Seq,
    /// The last row of its page.
    end: Seq,
}

/// What fills a statement up: no row is of this shard.
const NONE: Range = Range { shard: ShardId(-1), floor: Seq::START, end: Seq::START };

/// Nearly always few rows are there, and one statement has them all. In a crowd each shard gets its
/// own page, and its end is found first, in the same snapshot.
pub(super) async fn read(store: &MysqlStore, read: &Read) -> Result<Vec<Pending>> {
    let whole =
        |want: &ShardRead| Range { shard: want.shard, floor: want.floor, end: Seq(i64::MAX) };
    let mut ranges: Vec<Range> = read.shards.iter().map(whole).collect();
    if ranges.is_empty() || read.limit == 0 {
        return Ok(Vec::new());
    }
    let most = u32::try_from(read.rows()).unwrap_or(u32::MAX);
    let few = if ranges.len() == 1 { read.limit } else { FEW.min(most) };
    if ranges.len() == 1 || !store.crowded.load(Ordering::Relaxed) {
        let mut call = store.call().await?;
        let rows = few_rows(store, &mut call, read, &ranges, few).await;
        call.end();
        if let Some(rows) = rows? {
            return Ok(rows);
        }
    }
    let mut tx = PooledTx::begin(&store.relay, Some(SNAPSHOT)).await?;
    find_ends(store, &mut tx, &mut ranges, read.limit).await?;
    let fit = Fit::of(&read.budget, read.rows());
    let mut rows = rows(store, &mut tx, &ranges, u32::MAX, fit).await?;
    let is_crowd = rows.len() > few as usize;
    let chosen = read.budget.choose(&rows, |row| read.line(row));
    fetch(store, &mut tx, &mut rows, chosen).await?;
    tx.commit().await?;
    store.crowded.store(is_crowd, Ordering::Relaxed);
    Ok(rows)
}

/// All rows, if there are no more than a few.
async fn few_rows(
    store: &MysqlStore,
    connection: &mut MySqlConnection,
    read: &Read,
    ranges: &[Range],
    few: u32,
) -> Result<Option<Vec<Pending>>> {
    let limit = few.saturating_add(1);
    let fit = Fit::of(&read.budget, limit as usize);
    let rows = rows(store, connection, ranges, limit, fit).await?;
    if ranges.len() > 1 && rows.len() > few as usize {
        return Ok(None);
    }
    let mut rows = pages(rows, read.limit);
    let chosen = read.budget.choose(&rows, |row| read.line(row));
    fetch(store, connection, &mut rows, chosen).await?;
    Ok(Some(rows))
}

/// Reads take no locks, so that this isolation stops nobody.
pub(super) const SNAPSHOT: &str =
    "set transaction isolation level repeatable read; start transaction read only";

async fn rows(
    store: &MysqlStore,
    connection: &mut MySqlConnection,
    ranges: &[Range],
    limit: u32,
    fit: Fit,
) -> Result<Vec<Pending>> {
    let (marks, parts) = parts(sql::RANGE, "\n   or ", ranges, NONE);
    let text = store.tables.render(sql::READ).replace("{ranges}", &marks);
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

async fn find_ends(
    store: &MysqlStore,
    connection: &mut MySqlConnection,
    ranges: &mut [Range],
    limit: u32,
) -> Result<()> {
    let (text, parts) = parts(&store.tables.render(sql::READ_END), "\nunion all", ranges, NONE);
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

pub(super) async fn read_keys(store: &MysqlStore, read: &ReadKeys) -> Result<Vec<Pending>> {
    if read.keys.is_empty() {
        return Ok(Vec::new());
    }
    let none = KeyRead { shard: ShardId(-1), key: Arc::from("") };
    let part = store.tables.render(sql::READ_KEY);
    let (text, parts) = parts(&part, "\nunion all", &read.keys, none);
    let fit = Fit::of(&read.budget, read.rows());
    let mut query = sqlx::query(AssertSqlSafe(text));
    for KeyRead { shard, key } in parts {
        query =
            fitting(query, fit).bind(shard.0).bind(String::from(&*key)).bind(i64::from(read.limit));
    }
    let mut call = store.call().await?;
    let rows = async {
        let mut rows = page(query.fetch_all(&mut *call).await?)?;
        let chosen = read.budget.choose(&rows, |row| read.line(row));
        fetch(store, &mut call, &mut rows, chosen).await?;
        Ok(rows)
    };
    let rows = rows.await;
    call.end();
    rows
}

/// Binds how much a row may have to be sent, as `event_columns` asks.
pub(super) fn fitting<'q>(
    query: Query<'q, MySql, MySqlArguments>,
    fit: Fit,
) -> Query<'q, MySql, MySqlArguments> {
    query.bind(fit.payload).bind(fit.payload).bind(fit.headers)
}

/// The rows, without what the driver keeps of them.
pub(super) fn page(rows: Vec<MySqlRow>) -> Result<Vec<Pending>> {
    rows.into_iter().map(|row| pending(&row)).collect()
}

/// Fetches the content of rows that were read without.
pub(super) async fn fetch(
    store: &MysqlStore,
    connection: &mut MySqlConnection,
    rows: &mut Vec<Pending>,
    chosen: Vec<(ShardId, Seq)>,
) -> Result<()> {
    if chosen.is_empty() {
        return Ok(());
    }
    let list: Value = chosen.iter().map(|(shard, seq)| json!([shard.0, seq.0])).collect();
    let query = fitting(sqlx::query(store.sql(sql::READ_CONTENT)), Fit::WHOLE);
    let found = query.bind(list.to_string()).fetch_all(connection).await?;
    let content = |row: MySqlRow| Ok((Seq(row.try_get("seq")?), content(&row)?));
    let fetched = found.into_iter().map(content).collect::<Result<_>>()?;
    fill(rows, &chosen, fetched);
    Ok(())
}

pub(super) fn pending(row: &MySqlRow) -> Result<Pending> {
    let is_blocked = row.try_get("is_blocked")?;
    Ok(Pending {
        seq: Seq(row.try_get("seq")?),
        shard: ShardId(row.try_get("shard")?),
        key: row.try_get::<Option<&str>, _>("ordering_key")?.map(Arc::from),
        token: Token(row.try_get("lock_token")?),
        status: status(row)?,
        attempts: attempts(row)?,
        due_in: from_micros(row.try_get("due_in")?),
        is_early: row.try_get("is_early")?,
        lapsed: row.try_get("lapsed")?,
        before: if is_blocked { Predecessor::Waiting } else { Predecessor::Nothing },
        content: content(row)?,
    })
}

pub(super) fn status(row: &MySqlRow) -> Result<Status> {
    let code: i16 = row.try_get("status")?;
    Status::from_code(code)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no such status (code={code})")))
}

pub(super) fn attempts(row: &MySqlRow) -> Result<u32> {
    let attempts: i32 = row.try_get("attempts")?;
    Ok(u32::try_from(attempts).unwrap_or(0))
}

/// What `event_columns` lists, as far as it was sent.
pub(super) fn content(row: &MySqlRow) -> Result<Content> {
    let (payload, headers) = (row.try_get("payload_size")?, row.try_get("headers_size")?);
    Ok(opened(envelope_row(row)?, Sizes { payload, headers }))
}

fn envelope_row(row: &MySqlRow) -> Result<Row> {
    Ok(Row {
        event_id: row.try_get("event_id")?,
        event_type: row.try_get("event_type")?,
        event_version: row.try_get("event_version")?,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        partition_key: row.try_get("partition_key")?,
        tenant_id: row.try_get("tenant_id")?,
        payload: row.try_get("payload")?,
        payload_bytes: row.try_get("payload_bytes")?,
        content_type: row.try_get("content_type")?,
        headers: row.try_get("headers")?,
        occurred_at: time(row, "occurred_at")?,
    })
}

pub(super) fn time(row: &MySqlRow, column: &str) -> Result<Timestamp> {
    Ok(Timestamp::from_unix_micros(row.try_get(column)?))
}

/// A moment as a column holds it: UTC, and nothing says so.
pub(super) fn datetime(moment: Timestamp) -> PrimitiveDateTime {
    let moment = OffsetDateTime::from(moment);
    PrimitiveDateTime::new(moment.date(), moment.time())
}
