//! Pending rows, read without a write: the shard's lease says whose they are.

use sqlx::{Row as _, sqlite::SqliteRow};

use super::{SqliteStore, sql};
use crate::clock::{Timestamp, from_micros};
use crate::envelope::{BadRow, Envelope, Row};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::store::{Pending, Read, ReadKey, Status};

pub(super) async fn read(store: &SqliteStore, read: &Read) -> Result<Vec<Pending>> {
    let mut found = Vec::new();
    for want in &read.shards {
        let rows = sqlx::query(store.sql(sql::READ))
            .bind(want.shard.0)
            .bind(want.floor.0)
            .bind(i64::from(read.limit))
            .fetch_all(&store.pool)
            .await?;
        for row in &rows {
            found.push(pending(row, want.shard)?);
        }
    }
    Ok(found)
}

pub(super) async fn read_key(store: &SqliteStore, read: &ReadKey) -> Result<Vec<Pending>> {
    let rows = sqlx::query(store.sql(sql::READ_KEY))
        .bind(read.shard.0)
        .bind(&read.key)
        .bind(i64::from(read.limit))
        .fetch_all(&store.pool)
        .await?;
    rows.iter().map(|row| pending(row, read.shard)).collect()
}

pub(super) fn pending(row: &SqliteRow, shard: ShardId) -> Result<Pending> {
    Ok(Pending {
        seq: Seq(row.try_get("seq")?),
        shard,
        key: text(row, "ordering_key")?,
        token: Token(row.try_get("lock_token")?),
        status: status(row)?,
        attempts: attempts(row)?,
        due_in: from_micros(row.try_get("due_in")?),
        behind: row.try_get("behind")?,
        event: event(row),
    })
}

/// Another program may have written text that is no text; such a row must not stop the page.
pub(super) fn event(row: &SqliteRow) -> Result<Envelope, BadRow> {
    match envelope_row(row) {
        Ok(columns) => columns.open(),
        Err(error) => Err(BadRow {
            event_id: row.try_get("event_id").unwrap_or_default(),
            cause: format!("{error}: {}", error.source_text()),
        }),
    }
}

/// Text as far as it is text: what cannot be read is replaced, and does not stop the page.
pub(super) fn text(row: &SqliteRow, column: &str) -> Result<Option<String>> {
    if let Ok(text) = row.try_get(column) {
        return Ok(text);
    }
    let bytes: Vec<u8> = row.try_get_unchecked(column)?;
    Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
}

pub(super) fn status(row: &SqliteRow) -> Result<Status> {
    let code: i16 = row.try_get("status")?;
    Status::from_code(code)
        .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no such status (code={code})")))
}

pub(super) fn attempts(row: &SqliteRow) -> Result<u32> {
    let attempts: i32 = row.try_get("attempts")?;
    Ok(u32::try_from(attempts).unwrap_or(0))
}

fn envelope_row(row: &SqliteRow) -> Result<Row> {
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
        occurred_at: Timestamp::from_unix_micros(row.try_get("occurred_at")?),
    })
}
