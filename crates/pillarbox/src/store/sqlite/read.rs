//! New rows, read without a write: the shard's lease says whose they are.

use std::{sync::Arc, time::Duration};

use sqlx::sqlite::SqliteRow;
use sqlx::{Decode, Encode, Row as _, Sqlite, Type, TypeInfo as _, ValueRef as _};

use super::settle::json;
use super::{SqliteStore, sql};
use crate::clock::{Timestamp, from_micros};
use crate::envelope::{BadRow, Row, Sizes};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Seq, ShardId, Token};
use crate::store::content::{Fit, fill, opened};
use crate::store::{
    Before, Content, Heads, HeadsCursor, Pending, Read, ReadHeads, ReadKeys, Status,
};

pub(super) async fn read(store: &SqliteStore, read: &Read) -> Result<Vec<Pending>> {
    let fit = Fit::of(&read.budget, read.rows());
    let mut found = Vec::new();
    for want in &read.shards {
        found.extend(page(store, sql::READ, want.shard, want.floor.0, read.limit, fit).await?);
    }
    let chosen = read.budget.choose(&found, |row| read.line(row));
    fetch(store, &mut found, chosen).await?;
    Ok(found)
}

pub(super) async fn read_keys(store: &SqliteStore, read: &ReadKeys) -> Result<Vec<Pending>> {
    let fit = Fit::of(&read.budget, read.rows());
    let mut found = Vec::new();
    for want in &read.keys {
        found.extend(page(store, sql::READ_KEY, want.shard, &*want.key, read.limit, fit).await?);
    }
    let chosen = read.budget.choose(&found, |row| read.line(row));
    fetch(store, &mut found, chosen).await?;
    Ok(found)
}

pub(super) async fn read_heads(store: &SqliteStore, read: &ReadHeads) -> Result<Heads> {
    let newest = sqlx::query_scalar(store.sql(sql::NEWEST)).bind(read.shard.0);
    let newest = Seq(newest.fetch_one(&store.pool).await?);
    let fit = Fit::of(&read.budget, read.limit as usize);
    let mut found = match &read.after {
        HeadsCursor::Key(after) => {
            page(store, sql::READ_HEADS, read.shard, &**after, read.limit, fit).await?
        }
        HeadsCursor::Keyless(after) => keyless(store, read, *after, fit).await?,
    };
    let chosen = read.budget.choose(&found, |_| 0);
    fetch(store, &mut found, chosen).await?;
    Ok(Heads::of(read, found, newest))
}

async fn keyless(
    store: &SqliteStore,
    read: &ReadHeads,
    after: Seq,
    fit: Fit,
) -> Result<Vec<Pending>> {
    let page = sqlx::query(store.sql(sql::READ_KEYLESS)).bind(read.shard.0).bind(after.0);
    let page = page.bind(i64::from(read.limit)).bind(fit.payload).bind(fit.headers);
    let rows = page.bind(read.up_to.0).fetch_all(&store.pool).await?;
    rows.into_iter().map(|row| Columns::of(&row).pending(read.shard)).collect()
}

/// The first rows of a shard above a floor, of a key in it, or of each key behind one.
async fn page<'q, T: Encode<'q, Sqlite> + Type<Sqlite> + Send + 'q>(
    store: &SqliteStore,
    text: &'static str,
    shard: ShardId,
    which: T,
    limit: u32,
    fit: Fit,
) -> Result<Vec<Pending>> {
    let page = sqlx::query(store.sql(text)).bind(shard.0).bind(which).bind(i64::from(limit));
    let rows = page.bind(fit.payload).bind(fit.headers).fetch_all(&store.pool).await?;
    rows.into_iter().map(|row| Columns::of(&row).pending(shard)).collect()
}

/// Fetches the content of rows that were read without.
pub(super) async fn fetch(
    store: &SqliteStore,
    rows: &mut Vec<Pending>,
    chosen: Vec<(ShardId, Seq)>,
) -> Result<()> {
    if chosen.is_empty() {
        return Ok(());
    }
    let found = whole(store, ShardId(0), chosen.iter().map(|(_, seq)| seq)).await?;
    fill(rows, &chosen, found.into_iter().map(|row| (row.seq, row.content)).collect());
    Ok(())
}

/// These rows, with whatever an event may have.
pub(super) async fn whole<'a>(
    store: &SqliteStore,
    shard: ShardId,
    seqs: impl IntoIterator<Item = &'a Seq>,
) -> Result<Vec<Pending>> {
    let rows = sqlx::query(store.sql(sql::READ_CONTENT))
        .bind(json(seqs))
        .bind(Fit::WHOLE.payload)
        .bind(Fit::WHOLE.headers)
        .fetch_all(&store.pool)
        .await?;
    rows.into_iter().map(|row| Columns::of(&row).pending(shard)).collect()
}

/// What `row_columns!` says of a lease, if there is one.
const STANDS: i64 = 1;
const LAPSED: i64 = 2;

/// A row's columns one after the other, as the statement lists them: looking each up by its name
/// would cost more than reading it.
pub(super) struct Columns<'r> {
    row: &'r SqliteRow,
    at: usize,
}

impl<'r> Columns<'r> {
    pub(super) fn of(row: &'r SqliteRow) -> Self {
        Self { row, at: 0 }
    }

    pub(super) fn next<T: Decode<'r, Sqlite> + Type<Sqlite>>(&mut self) -> Result<T> {
        self.at += 1;
        Ok(self.row.try_get(self.at - 1)?)
    }

    /// Another program may have written text that is no text: what cannot be read is replaced,
    /// and does not stop the page.
    pub(super) fn text(&mut self) -> Result<Option<String>> {
        if let Ok(text) = self.next() {
            return Ok(text);
        }
        let bytes: Vec<u8> = self.row.try_get_unchecked(self.at - 1)?;
        Ok(Some(String::from_utf8_lossy(&bytes).into_owned()))
    }

    pub(super) fn time(&mut self) -> Result<Timestamp> {
        Ok(Timestamp::from_unix_micros(self.next()?))
    }

    pub(super) fn count(&mut self) -> Result<u64> {
        Ok(u64::try_from(self.next::<i64>()?).unwrap_or(0))
    }

    pub(super) fn attempts(&mut self) -> Result<u32> {
        Ok(u32::try_from(self.next::<i64>()?.max(0)).unwrap_or(u32::MAX))
    }

    pub(super) fn status(&mut self) -> Result<Status> {
        status_of(self.next()?)
    }

    /// What `row_columns!` lists.
    pub(super) fn pending(&mut self, shard: ShardId) -> Result<Pending> {
        let seq = Seq(self.next()?);
        let (counts, state): (i64, i64) = (self.next()?, self.next()?);
        let (status, lease) = (status_of((state >> 4) & 7)?, state & 3);
        let due_in = from_micros(self.next()?);
        Ok(Pending {
            seq,
            shard,
            token: Token(i32::try_from(counts >> 32).unwrap_or(0)),
            attempts: u32::try_from(counts & i64::from(u32::MAX)).unwrap_or(0),
            status,
            due_in,
            is_early: status == Status::New && due_in > Duration::ZERO && lease != STANDS,
            lapsed: lease == LAPSED,
            before: match (state >> 2) & 3 {
                0 => Before::Nothing,
                1 => Before::Waiting,
                _ => Before::Unread,
            },
            key: self.text()?.map(Arc::from),
            content: self.content(i32::try_from(state >> 7).unwrap_or(0)),
        })
    }

    /// A row that is no event must not stop the page.
    fn content(&mut self, event_version: i32) -> Content {
        let event_id = self.at;
        match self.sized_row(event_version) {
            Ok((row, None)) => row.open().into(),
            Ok((row, Some(sizes))) => opened(row, sizes),
            Err(error) => Content::Invalid(BadRow {
                event_id: self.row.try_get(event_id).unwrap_or_default(),
                cause: format!("{error}: {}", error.source_text()),
            }),
        }
    }

    /// With the sizes of payload and headers, if these were not sent.
    fn sized_row(&mut self, event_version: i32) -> Result<(Row, Option<Sizes>)> {
        let (event_id, event_type) = (self.next()?, self.next()?);
        let (aggregate_type, aggregate_id) = (self.next()?, self.next()?);
        let (partition_key, tenant_id) = (self.next()?, self.next()?);
        let (mut payload, mut payload_bytes, mut sizes) = (None, None, None);
        match self.row.try_get_raw(self.at)?.type_info().name() {
            "TEXT" => payload = self.next()?,
            "INTEGER" => sizes = Some(unpacked(self.next()?)),
            _ => payload_bytes = self.next()?,
        }
        let row = Row {
            event_id,
            event_type,
            event_version,
            aggregate_type,
            aggregate_id,
            partition_key,
            tenant_id,
            payload,
            payload_bytes,
            content_type: self.next()?,
            headers: self.next()?,
            occurred_at: self.time()?,
        };
        Ok((row, sizes))
    }
}

/// Sizes as `row_columns` packs them.
fn unpacked(sizes: i64) -> Sizes {
    let headers = Some(sizes & i64::from(u32::MAX)).filter(|size| *size > 0);
    Sizes { payload: Some(sizes >> 32), headers }
}

fn status_of(code: i64) -> Result<Status> {
    let status = i16::try_from(code).ok().and_then(Status::from_code);
    status.ok_or_else(|| Error::new(ErrorKind::Corrupt, format!("no such status (code={code})")))
}
