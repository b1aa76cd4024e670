//! Row claims: new rows under a lease of their own.

use std::collections::HashMap;

use super::SqliteStore;
use super::read::{Columns, fetch, whole};
use super::settle::{Alike, Batch, json};
use super::sql::claim as sql;
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::content::Fit;
use crate::store::{
    Claim, Content, MAX_DUE, Order, Pending, RenewRows, RowLease, SettleRows, Suspects,
};

pub(super) async fn claim(store: &SqliteStore, claim: &Claim) -> Result<Vec<Pending>> {
    let mut claimed = claim_of_legal_size(store, claim).await?;
    if claimed.is_empty() && claim.limit > 0 {
        return one_large(store, claim).await;
    }
    let chosen = claim.budget.choose(&claimed, |_| 0);
    fetch(store, &mut claimed, chosen).await?;
    Ok(claimed)
}

/// Looks first: who finds nothing does not keep the writers waiting.
async fn claim_of_legal_size(store: &SqliteStore, claim: &Claim) -> Result<Vec<Pending>> {
    let mut claimed = Vec::new();
    let mut after = claim.after.as_deref();
    for shard in &claim.shards {
        let left = i64::from(claim.limit).saturating_sub_unsigned(claimed.len() as u64);
        if left <= 0 {
            break;
        }
        let after = after.take().unwrap_or_default();
        let found = look(store, claim, *shard, after, left, Size::Legal).await?;
        if !found.is_empty() {
            claimed.append(&mut lease(store, claim, *shard, found).await?);
        }
    }
    Ok(claimed)
}

/// One row that is larger than any event. It is never delivered and needs no lease: SQLite would
/// write all of it anew, and keep every writer waiting. The verdict is fenced by the token as it was
/// read. Where somebody else has the shard, the row is left to them, so that two do not write it.
async fn one_large(store: &SqliteStore, claim: &Claim) -> Result<Vec<Pending>> {
    let mut after = claim.after.as_deref();
    for shard in &claim.shards {
        let after = after.take().unwrap_or_default();
        let found = look(store, claim, *shard, after, 1, Size::Large).await?;
        if found.is_empty() || is_anothers(store, *shard, &claim.owner).await? {
            continue;
        }
        let mut rows = whole(store, *shard, found.keys()).await?;
        // What was replaced meanwhile may be an event, which needs a lease.
        rows.retain(|row| matches!(row.content, Content::Invalid(_)));
        rows.iter_mut().for_each(|row| row.lapsed = false);
        return Ok(rows);
    }
    Ok(Vec::new())
}

async fn is_anothers(store: &SqliteStore, shard: ShardId, owner: &OwnerId) -> Result<bool> {
    let query = sqlx::query_scalar(store.sql(sql::IS_ANOTHERS)).bind(shard.0);
    Ok(query.bind(owner.as_str()).fetch_one(&store.pool).await?)
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Legal,
    /// Larger than any event.
    Large,
}

/// Rows that can be had, and of each whether its last owner may have died of it.
async fn look(
    store: &SqliteStore,
    claim: &Claim,
    shard: ShardId,
    after: &str,
    limit: i64,
    size: Size,
) -> Result<HashMap<Seq, bool>> {
    let found = match claim.order {
        Order::None => sqlx::query_as(store.sql(sql::LOOK)).bind(shard.0).bind(limit),
        Order::Key => {
            sqlx::query_as(store.sql(sql::LOOK_HEADS)).bind(shard.0).bind(limit).bind(after)
        }
    };
    let found = found.bind(size == Size::Large).bind(json(&claim.budget.skip));
    let found: Vec<(i64, bool)> = found.fetch_all(&store.pool).await?;
    Ok(found.into_iter().map(|(seq, is_lapsed)| (Seq(seq), is_lapsed)).collect())
}

async fn lease(
    store: &SqliteStore,
    claim: &Claim,
    shard: ShardId,
    found: HashMap<Seq, bool>,
) -> Result<Vec<Pending>> {
    let fit = Fit::of(&claim.budget, claim.limit as usize);
    let rows = sqlx::query(store.sql(sql::CLAIM))
        .bind(json(found.keys()))
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

pub(super) async fn suspect(store: &SqliteStore, suspects: &Suspects) -> Result<Vec<(Seq, u32)>> {
    let mut tx = store.begin().await?;
    let mut counted = Vec::new();
    for ((shard, token), seqs) in by_token(&suspects.rows) {
        let update = sqlx::query_as(store.sql(sql::SUSPECT)).bind(json(&seqs)).bind(shard.0);
        let update = update.bind(token.0).bind(suspects.below);
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
