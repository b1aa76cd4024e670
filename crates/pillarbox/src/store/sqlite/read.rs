//! Pending rows, read without a write: the shard's lease says whose they are.

use sqlx::{Row as _, TypeInfo as _, ValueRef as _, sqlite::SqliteRow};

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
    let numbers = Numbers::of(row)?;
    Ok(Pending {
        seq: Seq(row.try_get("seq")?),
        shard,
        key: text(row, "ordering_key")?,
        token: numbers.token,
        status: numbers.status,
        attempts: numbers.attempts,
        due_in: from_micros(row.try_get("due_in")?),
        behind: numbers.behind,
        event: event(row, &numbers),
    })
}

/// The small numbers of a row, which come two and three in one.
pub(super) struct Numbers {
    pub(super) token: Token,
    pub(super) attempts: u32,
    pub(super) status: Status,
    behind: bool,
    event_version: i32,
}

impl Numbers {
    pub(super) fn of(row: &SqliteRow) -> Result<Self> {
        let (counts, state): (i64, i64) = (row.try_get("counts")?, row.try_get("state")?);
        Ok(Self {
            token: Token(i32::try_from(counts >> 32).unwrap_or(0)),
            attempts: u32::try_from(counts & i64::from(u32::MAX)).unwrap_or(0),
            status: status_of((state >> 1) & 7)?,
            behind: state & 1 == 1,
            event_version: i32::try_from(state >> 4).unwrap_or(0),
        })
    }
}

/// Another program may have written text that is no text; such a row must not stop the page.
pub(super) fn event(row: &SqliteRow, numbers: &Numbers) -> Result<Envelope, BadRow> {
    match envelope_row(row, numbers) {
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
    status_of(row.try_get("status")?)
}

fn status_of(code: i64) -> Result<Status> {
    let status = i16::try_from(code).ok().and_then(Status::from_code);
    status.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no such status (code={code})")))
}

pub(super) fn attempts(row: &SqliteRow) -> Result<u32> {
    let attempts: i32 = row.try_get("attempts")?;
    Ok(u32::try_from(attempts).unwrap_or(0))
}

fn envelope_row(row: &SqliteRow, numbers: &Numbers) -> Result<Row> {
    let is_text = row.try_get_raw("payload")?.type_info().name() == "TEXT";
    Ok(Row {
        event_id: row.try_get("event_id")?,
        event_type: row.try_get("event_type")?,
        event_version: numbers.event_version,
        aggregate_type: row.try_get("aggregate_type")?,
        aggregate_id: row.try_get("aggregate_id")?,
        partition_key: row.try_get("partition_key")?,
        tenant_id: row.try_get("tenant_id")?,
        payload: is_text.then(|| row.try_get("payload")).transpose()?,
        payload_bytes: (!is_text).then(|| row.try_get("payload")).transpose()?,
        content_type: row.try_get("content_type")?,
        headers: row.try_get("headers")?,
        occurred_at: Timestamp::from_unix_micros(row.try_get("occurred_at")?),
    })
}
