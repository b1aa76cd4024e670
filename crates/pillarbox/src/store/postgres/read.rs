//! Pending rows, read without a write: the shard's lease says whose they are.

use sqlx::{Row as _, postgres::PgRow};
use time::OffsetDateTime;

use super::{PostgresStore, sql};
use crate::clock::Timestamp;
use crate::envelope::Row;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::store::{Pending, Read, ReadKey, Status};

pub(super) async fn read(store: &PostgresStore, read: &Read) -> Result<Vec<Pending>> {
    let shards: Vec<i16> = read.shards.iter().map(|want| want.shard.0).collect();
    let floors: Vec<i64> = read.shards.iter().map(|want| want.floor.0).collect();
    let rows = sqlx::query(store.sql(sql::READ))
        .bind(shards)
        .bind(floors)
        .bind(i64::from(read.limit))
        .fetch_all(&store.pool)
        .await?;
    let mut rows: Vec<Pending> = rows.iter().map(pending).collect::<Result<_>>()?;
    rows.sort_by_key(|row| (row.shard, row.seq));
    Ok(rows)
}

pub(super) async fn read_key(store: &PostgresStore, read: &ReadKey) -> Result<Vec<Pending>> {
    let rows = sqlx::query(store.sql(sql::READ_KEY))
        .bind(read.shard.0)
        .bind(&read.key)
        .bind(i64::from(read.limit))
        .fetch_all(&store.pool)
        .await?;
    rows.iter().map(pending).collect()
}

pub(super) fn pending(row: &PgRow) -> Result<Pending> {
    Ok(Pending {
        seq: Seq(row.try_get("seq")?),
        shard: ShardId(row.try_get("shard")?),
        key: row.try_get("ordering_key")?,
        token: Token(row.try_get("lock_token")?),
        status: status(row)?,
        attempts: attempts(row)?,
        due_in: time(row, "available_at")?.since(time(row, "now")?),
        behind: row.try_get("behind")?,
        event: envelope_row(row)?.open(),
    })
}

pub(super) fn status(row: &PgRow) -> Result<Status> {
    let code: i16 = row.try_get("status")?;
    Status::from_code(code)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no such status (code={code})")))
}

pub(super) fn attempts(row: &PgRow) -> Result<u32> {
    let attempts: i32 = row.try_get("attempts")?;
    Ok(u32::try_from(attempts).unwrap_or(0))
}

pub(super) fn envelope_row(row: &PgRow) -> Result<Row> {
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

pub(super) fn time(row: &PgRow, column: &str) -> Result<Timestamp> {
    Ok(row.try_get::<OffsetDateTime, _>(column)?.into())
}
