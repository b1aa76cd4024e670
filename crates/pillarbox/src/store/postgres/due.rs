//! Rows whose time has come, and rows whose time has not.

use std::{sync::Arc, time::Duration};

use sqlx::Row as _;

use super::claim::write_under_token;
use super::pinned::PinnedConnection;
use super::read::moment;
use super::{PostgresStore, sql::due as sql};
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::store::{Due, DueRow, Promote, RowLease};

/// Rows that somebody has locked are looked at again after this long.
const LOCKED: Duration = Duration::from_secs(1);

pub(super) async fn promote(store: &PostgresStore, promote: &Promote) -> Result<Due> {
    let shards: Vec<i16> = promote.shards.iter().map(|shard| shard.0).collect();
    let mut link = store.link(store.work()).await?;
    let mut due = Due { rows: Vec::new(), next: next_due(store, &mut link, &shards).await? };
    if due.next == Some(Duration::ZERO) {
        due = write(store, &mut link, promote, &shards).await?;
    }
    link.end().await?;
    Ok(due)
}

/// How long until the next waiting row is due.
async fn next_due(
    store: &PostgresStore,
    link: &mut PinnedConnection,
    shards: &[i16],
) -> Result<Option<Duration>> {
    let row = sqlx::query(store.sql(sql::NEXT_DUE))
        .persistent(store.named)
        .bind(shards)
        .fetch_one(&mut **link)
        .await?;
    let due_at = row.try_get_unchecked::<Option<i64>, _>(0)?.map(moment);
    let now = moment(row.try_get_unchecked(1)?);
    Ok(due_at.map(|due_at| due_at.since(now)))
}

async fn write(
    store: &PostgresStore,
    link: &mut PinnedConnection,
    promote: &Promote,
    shards: &[i16],
) -> Result<Due> {
    let row = sqlx::query(store.sql(sql::PROMOTE))
        .persistent(store.named)
        .bind(shards)
        .bind(i64::from(promote.limit))
        .fetch_one(&mut **link)
        .await?;
    let found: i64 = row.try_get(0)?;
    let (shards_of, seqs): (Vec<i16>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
    let keys: Vec<Option<String>> = row.try_get(3)?;
    let places = shards_of.into_iter().zip(seqs).zip(keys);
    let rows: Vec<DueRow> = places
        .map(|((shard, seq), key)| DueRow {
            shard: ShardId(shard),
            seq: Seq(seq),
            key: key.map(Arc::from),
        })
        .collect();
    // Where others have been found behind those that are locked, they come at once.
    let (found, is_full) = (found.unsigned_abs(), found >= i64::from(promote.limit));
    let is_stuck = (rows.len() as u64) < found && (rows.is_empty() || !is_full);
    let next = next_due(store, link, shards).await?;
    let next = if is_stuck { next.map(|next| next.max(LOCKED)) } else { next };
    Ok(Due { rows, next })
}

pub(super) async fn postpone(store: &PostgresStore, rows: &[RowLease]) -> Result<u64> {
    write_under_token(store, sql::POSTPONE, rows).await
}
