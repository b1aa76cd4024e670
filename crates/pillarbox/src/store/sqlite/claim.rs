//! Row claims: new rows under a lease of their own.

use std::collections::HashMap;

use super::SqliteStore;
use super::read::{Columns, fetch};
use super::settle::{Alike, Batch, json};
use super::sql::claim as sql;
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::content::Fit;
use crate::store::{Claim, MAX_DUE, Order, Pending, RenewRows, RowLease, SettleRows, Starts};

/// A row that is larger than any event is leased by itself, when there is nothing else: to write such
/// a row keeps every writer waiting.
pub(super) async fn claim(store: &SqliteStore, claim: &Claim) -> Result<Vec<Pending>> {
    let mut claimed = claim_of_size(store, claim, claim.limit, Size::Small).await?;
    if claimed.is_empty() {
        claimed = claim_of_size(store, claim, claim.limit.min(1), Size::Large).await?;
    }
    let chosen = claim.budget.choose(&claimed, |_| 0);
    fetch(store, &mut claimed, chosen).await?;
    Ok(claimed)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Small,
    /// Larger than any event.
    Large,
}

/// Looks first: who finds nothing does not keep the writers waiting.
async fn claim_of_size(
    store: &SqliteStore,
    claim: &Claim,
    limit: u32,
    size: Size,
) -> Result<Vec<Pending>> {
    let mut claimed = Vec::new();
    let mut after = claim.after.as_deref();
    for shard in &claim.shards {
        let left = i64::from(limit).saturating_sub_unsigned(claimed.len() as u64);
        if left <= 0 {
            break;
        }
        let found = match claim.order {
            Order::None => sqlx::query_as(store.sql(sql::LOOK)).bind(shard.0).bind(left),
            Order::Key => sqlx::query_as(store.sql(sql::LOOK_HEADS))
                .bind(shard.0)
                .bind(left)
                .bind(after.take().unwrap_or_default()),
        };
        let found = found.bind(Fit::WHOLE.payload).bind(Fit::WHOLE.headers);
        let found: Vec<(i64, bool)> =
            found.bind(size == Size::Large).fetch_all(&store.pool).await?;
        if !found.is_empty() {
            claimed.append(&mut lease(store, claim, *shard, found).await?);
        }
    }
    Ok(claimed)
}

async fn lease(
    store: &SqliteStore,
    claim: &Claim,
    shard: ShardId,
    found: Vec<(i64, bool)>,
) -> Result<Vec<Pending>> {
    let found: HashMap<Seq, bool> =
        found.into_iter().map(|(seq, is_lapsed)| (Seq(seq), is_lapsed)).collect();
    let fit = Fit::of(&claim.budget, claim.limit as usize);
    let rows = sqlx::query(store.sql(sql::CLAIM))
        .bind(json(&found.keys().copied().collect::<Vec<_>>()))
        .bind(claim.owner.as_str())
        .bind(micros(claim.length))
        .bind(fit.payload)
        .bind(fit.headers)
        .fetch_all(store.writer())
        .await?;
    let rows: Result<Vec<Pending>> =
        rows.into_iter().map(|row| Columns::of(&row).pending(shard)).collect();
    let mut rows = rows?;
    // What is returned says nothing of the lease that the row had.
    for row in &mut rows {
        row.lapsed = found.get(&row.seq) == Some(&true);
    }
    // SQLite promises no order for what an UPDATE returns.
    rows.sort_unstable_by_key(|row| row.seq);
    Ok(rows)
}

pub(super) async fn count_due(store: &SqliteStore, shards: &[ShardId]) -> Result<u64> {
    let mut due = 0;
    for shard in shards {
        let count = sqlx::query_scalar(store.sql(sql::COUNT_DUE)).bind(shard.0).bind(MAX_DUE);
        due += count.fetch_one(&store.pool).await.map(i64::unsigned_abs)?;
    }
    Ok(due.min(u64::from(MAX_DUE)))
}

pub(super) async fn renew_rows(store: &SqliteStore, renew: &RenewRows) -> Result<Vec<Seq>> {
    let mut tx = store.begin().await?;
    let mut kept = Vec::new();
    for ((shard, token), seqs) in by_token(&renew.rows) {
        let renewed: Vec<i64> = sqlx::query_scalar(store.sql(sql::RENEW_ROWS))
            .bind(json(&seqs))
            .bind(shard.0)
            .bind(token.0)
            .bind(renew.owner.as_str())
            .bind(micros(renew.length))
            .fetch_all(&mut *tx)
            .await?;
        kept.extend(renewed.into_iter().map(Seq));
    }
    tx.commit().await?;
    Ok(kept)
}

pub(super) async fn release_rows(
    store: &SqliteStore,
    owner: &OwnerId,
    rows: &[RowLease],
) -> Result<u64> {
    let mut tx = store.begin().await?;
    let mut released = 0;
    for ((shard, token), seqs) in by_token(rows) {
        let update = sqlx::query(store.sql(sql::RELEASE_ROWS))
            .bind(json(&seqs))
            .bind(shard.0)
            .bind(token.0)
            .bind(owner.as_str());
        released += update.execute(&mut *tx).await?.rows_affected();
    }
    tx.commit().await?;
    Ok(released)
}

pub(super) async fn reclaim(store: &SqliteStore, rows: &[RowLease]) -> Result<u64> {
    let mut tx = store.begin().await?;
    let mut freed = 0;
    for ((shard, token), seqs) in by_token(rows) {
        let update = sqlx::query(store.sql(sql::RECLAIM)).bind(json(&seqs)).bind(shard.0);
        freed += update.bind(token.0).execute(&mut *tx).await?.rows_affected();
    }
    tx.commit().await?;
    Ok(freed)
}

pub(super) async fn record_starts(store: &SqliteStore, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
    let mut tx = store.begin().await?;
    let mut counted = Vec::new();
    for ((shard, token), seqs) in by_token(&starts.rows) {
        let update = sqlx::query_as(store.sql(sql::SUSPECT)).bind(json(&seqs)).bind(shard.0);
        let update = update.bind(token.0).bind(starts.below);
        let rows: Vec<(i64, u32)> = update.fetch_all(&mut *tx).await?;
        counted.extend(rows.into_iter().map(|(seq, times)| (Seq(seq), times)));
    }
    tx.commit().await?;
    Ok(counted)
}

pub(super) async fn settle_rows(store: &SqliteStore, settle: &SettleRows) -> Result<Vec<Seq>> {
    let mut batch = Batch::new(&settle.owner);
    for it in &settle.verdicts {
        let RowLease { shard, seq, token } = it.row;
        batch.add(Alike::new(shard, None, token, &it.verdict, it.settled_by.as_deref()), seq);
    }
    if batch.write_all(store).await? {
        return Ok(batch.seqs);
    }
    let mut tx = store.begin().await?;
    let applied = batch.write_some(store, &mut tx).await?;
    tx.commit().await?;
    Ok(applied)
}

pub(super) fn by_token(rows: &[RowLease]) -> HashMap<(ShardId, Token), Vec<Seq>> {
    let mut groups: HashMap<_, Vec<Seq>> = HashMap::new();
    for row in rows {
        groups.entry((row.shard, row.token)).or_default().push(row.seq);
    }
    groups
}
