//! Rows whose time has come, or has not.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::MysqlStore;
use super::claim::{list, unlocked};
use super::read::parts;
use super::sql::wait as sql;
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::store::{Due, DueRow, Promote, RowLease};

/// When to look again for rows that somebody else has locked.
const LOCKED: Duration = Duration::from_secs(1);

/// As many rows as are looked for in a shard, however few are wanted.
const FEW: usize = 16;

/// Looks first: while nothing is due, nothing is locked.
pub(super) async fn promote(store: &MysqlStore, promote: &Promote) -> Result<Due> {
    let waits = next_due(store, &promote.shards).await?;
    let due = |(_, wait): &&(ShardId, Duration)| wait.is_zero();
    let shards: Vec<_> = waits.iter().filter(due).map(|(shard, _)| *shard).collect();
    if shards.is_empty() || promote.limit == 0 {
        return Ok(Due { rows: Vec::new(), next: soonest(&waits) });
    }
    let limit = promote.limit as usize;
    let found = find(store, &shards, limit).await?;
    let rows = make_new(store, &found).await?;
    if found.len() == limit && !rows.is_empty() {
        return Ok(Due { rows, next: Some(Duration::ZERO) });
    }
    let next = soonest(&next_due(store, &promote.shards).await?);
    let is_locked = rows.len() < found.len() && next.is_some_and(|wait| wait.is_zero());
    Ok(Due { rows, next: if is_locked { Some(LOCKED) } else { next } })
}

/// In how long each of the shards has a row that is due, as far as one waits there.
async fn next_due(store: &MysqlStore, shards: &[ShardId]) -> Result<Vec<(ShardId, Duration)>> {
    let list: Value = shards.iter().map(|shard| shard.0).collect();
    let mut call = store.call().await?;
    let query = sqlx::query_as(store.sql(sql::NEXT_DUE)).bind(list.to_string());
    let waits: Result<Vec<(i16, i64)>, _> = query.fetch_all(&mut *call).await;
    call.end();
    Ok(waits?.into_iter().map(|(shard, wait)| (ShardId(shard), from_micros(wait))).collect())
}

fn soonest(waits: &[(ShardId, Duration)]) -> Option<Duration> {
    waits.iter().map(|(_, wait)| *wait).min()
}

/// Those that have been due for longest; of each shard no more than twice its share, so that the look
/// stays as small as the limit, however many shards there are.
async fn find(store: &MysqlStore, shards: &[ShardId], limit: usize) -> Result<Vec<i64>> {
    let share = (2 * limit.div_ceil(shards.len())).max(FEW).min(limit);
    let part = store.tables.render(sql::LOOK_DUE);
    let (text, parts) = parts(&part, "\nunion all", shards, ShardId(-1));
    let text = format!("select seq from ({text}\n) due order by moment, seq limit ?");
    let mut query = sqlx::query_scalar(AssertSqlSafe(text));
    for shard in parts {
        query = query.bind(shard.0).bind(i64::try_from(share).unwrap_or(i64::MAX));
    }
    let mut call = store.call().await?;
    let limit = i64::try_from(limit).unwrap_or(i64::MAX);
    let found = query.bind(limit).fetch_all(&mut *call).await;
    call.end();
    Ok(found?)
}

async fn make_new(store: &MysqlStore, found: &[i64]) -> Result<Vec<DueRow>> {
    let mut seqs = found.to_vec();
    // In order, as everyone who locks rows.
    seqs.sort_unstable();
    let mut tx = store.begin().await?;
    let pick = sqlx::query_as(store.sql(sql::PROMOTE_PICK)).bind(Value::from(seqs).to_string());
    let rows: Vec<(i64, i16, Option<String>)> = pick.fetch_all(&mut *tx).await?;
    let seqs: Value = rows.iter().map(|(seq, ..)| *seq).collect();
    sqlx::query(store.sql(sql::PROMOTE)).bind(seqs.to_string()).execute(&mut *tx).await?;
    tx.commit().await?;
    let row = |(seq, shard, key): (i64, i16, Option<String>)| DueRow {
        shard: ShardId(shard),
        seq: Seq(seq),
        key: key.map(Arc::from),
    };
    Ok(rows.into_iter().map(row).collect())
}

pub(super) async fn postpone(store: &MysqlStore, rows: &[RowLease]) -> Result<u64> {
    let mut tx = store.begin().await?;
    let rows = unlocked(store, &mut tx, rows).await?;
    let update = sqlx::query(store.sql(sql::POSTPONE)).bind(list(&rows));
    let postponed = update.execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(postponed.rows_affected())
}
