//! Rows whose time has come, or has not.

use std::{sync::Arc, time::Duration};

use super::claim::by_token;
use super::settle::json;
use super::{SqliteStore, sql};
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::store::{Due, DueRow, Promote, RowLease};

/// Looks first: while nothing is due, nobody keeps the writers waiting.
pub(super) async fn promote(store: &SqliteStore, promote: &Promote) -> Result<Due> {
    let mut due = Due::default();
    for shard in &promote.shards {
        let mut next = next_due(store, *shard).await?;
        let left = i64::from(promote.limit).saturating_sub_unsigned(due.rows.len() as u64);
        if next.is_some_and(|wait| wait.is_zero()) && left > 0 {
            due.rows.append(&mut make_new(store, *shard, left).await?);
            next = next_due(store, *shard).await?;
        }
        due.next = due.next.into_iter().chain(next).min();
    }
    Ok(due)
}

async fn next_due(store: &SqliteStore, shard: ShardId) -> Result<Option<Duration>> {
    let next = sqlx::query_scalar(store.sql(sql::NEXT_DUE)).bind(shard.0);
    let next: Option<i64> = next.fetch_one(&store.pool).await?;
    Ok(next.map(from_micros))
}

async fn make_new(store: &SqliteStore, shard: ShardId, limit: i64) -> Result<Vec<DueRow>> {
    let update = sqlx::query_as(store.sql(sql::PROMOTE)).bind(shard.0).bind(limit);
    let rows: Vec<(i64, Option<Vec<u8>>)> = update.fetch_all(store.writer()).await?;
    let key = |key: Vec<u8>| Arc::from(String::from_utf8_lossy(&key));
    let row = |(seq, ordering_key): (i64, Option<Vec<u8>>)| DueRow {
        shard,
        seq: Seq(seq),
        key: ordering_key.map(key),
    };
    Ok(rows.into_iter().map(row).collect())
}

pub(super) async fn postpone(store: &SqliteStore, rows: &[RowLease]) -> Result<u64> {
    let mut tx = store.begin().await?;
    let mut postponed = 0;
    for ((shard, token), seqs) in by_token(rows) {
        let update = sqlx::query(store.sql(sql::POSTPONE)).bind(json(&seqs)).bind(shard.0);
        postponed += update.bind(token.0).execute(&mut *tx).await?.rows_affected();
    }
    tx.commit().await?;
    Ok(postponed)
}
