//! Pending rows, read without a write: the shard's lease says whose they are.

use sqlx::{AssertSqlSafe, Row as _, mysql::MySqlRow};
use time::{OffsetDateTime, PrimitiveDateTime};

use super::{MysqlStore, sql};
use crate::clock::{Timestamp, from_micros};
use crate::envelope::Row;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::store::{Pending, Read, ReadKey, ShardRead, Status};

/// What fills a statement up: no row is of this shard.
const NONE: ShardRead = ShardRead { shard: ShardId(-1), floor: Seq::START };

pub(super) async fn read(store: &MysqlStore, read: &Read) -> Result<Vec<Pending>> {
    if read.shards.is_empty() {
        return Ok(Vec::new());
    }
    let (text, parts) = union(&store.tables.render(sql::READ), read.shards.clone(), NONE);
    let mut query = sqlx::query(AssertSqlSafe(text));
    for want in parts {
        query = query.bind(want.floor.0).bind(want.floor.0).bind(want.shard.0).bind(want.floor.0);
        query = query.bind(i64::from(read.limit));
    }
    let mut call = store.call().await?;
    let rows = query.fetch_all(&mut *call).await;
    call.end();
    rows?.iter().map(pending).collect()
}

pub(super) async fn read_key(store: &MysqlStore, read: &ReadKey) -> Result<Vec<Pending>> {
    let mut call = store.call().await?;
    let rows = sqlx::query(store.sql(sql::READ_KEY))
        .bind(&read.key)
        .bind(read.shard.0)
        .bind(i64::from(read.limit))
        .fetch_all(&mut *call)
        .await;
    call.end();
    rows?.iter().map(pending).collect()
}

/// Each shard is a part of the statement, and the number of parts a power of two, so that the
/// connections have few statements to keep prepared.
pub(super) fn union<T: Clone>(part: &str, mut wanted: Vec<T>, none: T) -> (String, Vec<T>) {
    wanted.resize(wanted.len().next_power_of_two(), none);
    (vec![part; wanted.len()].join("\nunion all\n"), wanted)
}

pub(super) fn pending(row: &MySqlRow) -> Result<Pending> {
    Ok(Pending {
        seq: Seq(row.try_get("seq")?),
        shard: ShardId(row.try_get("shard")?),
        key: row.try_get("ordering_key")?,
        token: Token(row.try_get("lock_token")?),
        status: status(row)?,
        attempts: attempts(row)?,
        due_in: from_micros(row.try_get("due_in")?),
        behind: row.try_get("behind")?,
        event: envelope_row(row)?.open(),
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

pub(super) fn envelope_row(row: &MySqlRow) -> Result<Row> {
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
