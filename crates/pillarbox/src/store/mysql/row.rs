//! Rows, by the names of their columns.

use std::sync::Arc;

use sqlx::mysql::{MySqlArguments, MySqlRow};
use sqlx::{MySql, Row as _, query::Query};
use time::{OffsetDateTime, PrimitiveDateTime};

use crate::clock::{Timestamp, from_micros};
use crate::envelope::{Row, Sizes};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::store::content::{Fit, opened};
use crate::store::{Content, Pending, Predecessor, Status};

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
