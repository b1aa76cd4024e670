//! Row claims: due rows under a lease of their own.

use super::PostgresStore;
use super::columns::Rows;
use super::read::{fetch, page};
use super::sql::claim as sql;
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId};
use crate::store::content::Fit;
use crate::store::{Claim, MAX_DUE, Order, Pending, RenewRows, RowLease, Starts};

pub(super) async fn claim(store: &PostgresStore, claim: &Claim) -> Result<Vec<Pending>> {
    let fit = Fit::of(&claim.budget, claim.limit as usize);
    let text = if claim.order == Order::Key { sql::CLAIM_HEADS } else { sql::CLAIM };
    let mut query = sqlx::query(store.sql(text))
        .persistent(store.named)
        .bind(claim.owner.as_str())
        .bind(claim.shards.iter().map(|shard| shard.0).collect::<Vec<_>>())
        .bind(i64::from(claim.limit))
        .bind(micros(claim.length))
        .bind(fit.payload)
        .bind(fit.headers);
    if claim.order == Order::Key {
        query = query.bind(claim.after.as_deref().unwrap_or_default());
    }
    let mut link = store.link(store.work()).await?;
    let rows = query.fetch_all(&mut *link).await?;
    let mut rows = page(rows)?;
    let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
    rows.sort_by_key(|row| (place(row), row.seq));
    let chosen = claim.budget.choose(&rows, |_| 0);
    fetch(store, &mut link, &mut rows, chosen).await?;
    link.end().await?;
    Ok(rows)
}

pub(super) async fn locked(store: &PostgresStore, rows: &[RowLease]) -> Result<Vec<Seq>> {
    let Rows { shards, seqs, .. } = Rows::of(rows);
    let mut link = store.link(store.work()).await?;
    let locked: Vec<i64> = sqlx::query_scalar(store.sql(sql::LOCKED))
        .persistent(store.named)
        .bind(shards)
        .bind(seqs)
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    Ok(locked.into_iter().map(Seq).collect())
}

pub(super) async fn count_due(store: &PostgresStore, shards: &[ShardId]) -> Result<u64> {
    let mut link = store.link(store.work()).await?;
    let count: i64 = sqlx::query_scalar(store.sql(sql::COUNT_DUE))
        .persistent(store.named)
        .bind(shards.iter().map(|shard| shard.0).collect::<Vec<_>>())
        .bind(i64::from(MAX_DUE))
        .fetch_one(&mut *link)
        .await?;
    link.end().await?;
    Ok(count.unsigned_abs())
}

pub(super) async fn renew_rows(store: &PostgresStore, renew: &RenewRows) -> Result<Vec<Seq>> {
    let Rows { shards, seqs, tokens } = Rows::of(&renew.rows);
    let mut link = store.link(store.leases()).await?;
    let kept: Vec<i64> = sqlx::query_scalar(store.sql(sql::RENEW_ROWS))
        .persistent(store.named)
        .bind(renew.owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .bind(micros(renew.length))
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    Ok(kept.into_iter().map(Seq).collect())
}

pub(super) async fn release_rows(
    store: &PostgresStore,
    owner: &OwnerId,
    rows: &[RowLease],
) -> Result<u64> {
    let Rows { shards, seqs, tokens } = Rows::of(rows);
    let mut link = store.link(store.work()).await?;
    let released = sqlx::query(store.sql(sql::RELEASE_ROWS))
        .persistent(store.named)
        .bind(owner.as_str())
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .execute(&mut *link)
        .await?;
    link.end().await?;
    Ok(released.rows_affected())
}

pub(super) async fn reclaim(store: &PostgresStore, rows: &[RowLease]) -> Result<u64> {
    write_under_token(store, sql::RECLAIM, rows).await
}

/// Runs a statement that takes rows under their tokens and nothing else. Returns how many it changed.
pub(super) async fn write_under_token(
    store: &PostgresStore,
    text: &'static str,
    rows: &[RowLease],
) -> Result<u64> {
    let Rows { shards, seqs, tokens } = Rows::of(rows);
    let mut link = store.link(store.work()).await?;
    let written = sqlx::query(store.sql(text))
        .persistent(store.named)
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .execute(&mut *link)
        .await?;
    link.end().await?;
    Ok(written.rows_affected())
}

pub(super) async fn record_starts(
    store: &PostgresStore,
    starts: &Starts,
) -> Result<Vec<(Seq, u32)>> {
    let Rows { shards, seqs, tokens } = Rows::of(&starts.rows);
    let mut link = store.link(store.work()).await?;
    let counted: Vec<(i64, i32)> = sqlx::query_as(store.sql(sql::SUSPECT))
        .persistent(store.named)
        .bind(shards)
        .bind(seqs)
        .bind(tokens)
        .bind(i64::from(starts.below))
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    Ok(counted.into_iter().map(|(seq, times)| (Seq(seq), times.unsigned_abs())).collect())
}
