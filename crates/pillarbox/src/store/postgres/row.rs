//! Rows as the statements list their columns.

use std::sync::Arc;

use sqlx::{Decode, Postgres, Row as _, postgres::PgRow};

use crate::clock::Timestamp;
use crate::envelope::{Row, Sizes};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::store::content::opened;
use crate::store::{Content, Pending, Predecessor, Status};

/// The year 2000, in microseconds since 1970.
const MICROS_IN_2000: i64 = 946_684_800_000_000;

/// The rows, without what the driver keeps of them.
pub(super) fn page(rows: Vec<PgRow>) -> Result<Vec<Pending>> {
    rows.into_iter().map(|row| pending(&row)).collect()
}

pub(super) fn pending(row: &PgRow) -> Result<Pending> {
    let mut columns = Columns::of(row);
    let (seq, shard) = (Seq(columns.next()?), ShardId(columns.next()?));
    let (key, token) = (columns.next::<Option<&str>>()?.map(Arc::from), Token(columns.next()?));
    let (status, attempts) = (columns.status()?, columns.attempts()?);
    let available_at = columns.time()?;
    let locked_until = columns.next::<Option<i64>>()?.map(moment);
    let now = columns.time()?;
    let is_leased = locked_until.is_some_and(|until| until > now);
    Ok(Pending {
        seq,
        shard,
        key,
        token,
        status,
        attempts,
        due_in: locked_until.map_or(available_at, |it| it.max(available_at)).since(now),
        is_early: available_at > now && !is_leased,
        lapsed: locked_until.is_some_and(|until| until <= now),
        before: columns.before()?,
        content: columns.content()?,
    })
}

/// A time as PostgreSQL sends it: microseconds since 2000, and the ends of the range for the
/// infinities, which are cut to the years that there are.
pub(super) fn moment(micros: i64) -> Timestamp {
    Timestamp::from_unix_micros(micros.saturating_add(MICROS_IN_2000))
}

/// A row's columns one after the other, as the statement lists them: looking each up by its name,
/// and its type in the catalogue, would cost more than reading it.
pub(super) struct Columns<'r> {
    row: &'r PgRow,
    at: usize,
}

impl<'r> Columns<'r> {
    pub(super) fn of(row: &'r PgRow) -> Self {
        Self { row, at: 0 }
    }

    pub(super) fn next<T: Decode<'r, Postgres>>(&mut self) -> Result<T> {
        self.at += 1;
        Ok(self.row.try_get_unchecked(self.at - 1)?)
    }

    fn before(&mut self) -> Result<Predecessor> {
        Ok(match self.next::<i32>()? {
            0 => Predecessor::Nothing,
            1 => Predecessor::Waiting,
            _ => Predecessor::Unread,
        })
    }

    pub(super) fn status(&mut self) -> Result<Status> {
        let code: i16 = self.next()?;
        Status::from_code(code)
            .ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no such status (code={code})")))
    }

    pub(super) fn attempts(&mut self) -> Result<u32> {
        Ok(u32::try_from(self.next::<i32>()?).unwrap_or(0))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp> {
        Ok(moment(self.next()?))
    }

    /// What `event_columns` lists, as far as it was sent.
    pub(super) fn content(&mut self) -> Result<Content> {
        let (row, sizes) = self.sized_row()?;
        Ok(opened(row, sizes))
    }

    fn sized_row(&mut self) -> Result<(Row, Sizes)> {
        let (payload, headers) = (self.next::<Option<i32>>()?, self.next::<Option<i32>>()?);
        let sizes = Sizes { payload: payload.map(Into::into), headers: headers.map(Into::into) };
        let row = Row {
            event_id: self.next()?,
            event_type: self.next()?,
            event_version: self.next()?,
            aggregate_type: self.next()?,
            aggregate_id: self.next()?,
            partition_key: self.next()?,
            tenant_id: self.next()?,
            payload: self.next()?,
            payload_bytes: self.next()?,
            content_type: self.next()?,
            headers: self.next()?,
            occurred_at: self.time()?,
        };
        Ok((row, sizes))
    }
}
