//! Leases on rows: due rows, one by one.

use std::collections::HashMap;

use async_trait::async_trait;

use super::row::Columns;
use super::settle::{Alike, Batch, json};
use super::{SqliteStore, sql::claims as sql};
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::content::Fit;
use crate::store::{
    Claim, Claims, Content, MAX_DUE, Order, Pending, RenewRows, RowLease, SettleRows, Starts,
};

#[async_trait]
impl Claims for SqliteStore {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        let mut claimed = self.claim_events(claim).await?;
        if claimed.is_empty() && claim.limit > 0 {
            return self.find_oversized(claim).await;
        }
        let chosen = claim.budget.choose(&claimed, |_| 0);
        self.fetch_content(&mut claimed, chosen).await?;
        Ok(claimed)
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        let mut tx = self.begin().await?;
        let mut kept = Vec::new();
        for ((shard, token), seqs) in by_token(&renew.rows) {
            let renewed: Vec<i64> = self
                .query_scalar(sql::RENEW_ROWS)
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

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut released = 0;
        for ((shard, token), seqs) in by_token(rows) {
            let update = self
                .query(sql::RELEASE_ROWS)
                .bind(json(&seqs))
                .bind(shard.0)
                .bind(token.0)
                .bind(owner.as_str());
            released += update.execute(&mut *tx).await?.rows_affected();
        }
        tx.commit().await?;
        Ok(released)
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut freed = 0;
        for ((shard, token), seqs) in by_token(rows) {
            let update = self.query(sql::RECLAIM).bind(json(&seqs)).bind(shard.0);
            freed += update.bind(token.0).execute(&mut *tx).await?.rows_affected();
        }
        tx.commit().await?;
        Ok(freed)
    }

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        let mut tx = self.begin().await?;
        let mut counted = Vec::new();
        for ((shard, token), seqs) in by_token(&starts.rows) {
            let update = self.query_as(sql::RECORD_STARTS).bind(json(&seqs)).bind(shard.0);
            let update = update.bind(token.0).bind(starts.below);
            let rows: Vec<(i64, u32)> = update.fetch_all(&mut *tx).await?;
            counted.extend(rows.into_iter().map(|(seq, times)| (Seq(seq), times)));
        }
        tx.commit().await?;
        Ok(counted)
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        let mut batch = Batch::new(&settle.owner);
        for it in &settle.verdicts {
            let RowLease { shard, seq, token } = it.row;
            batch.add(Alike::new(shard, None, token, &it.verdict, it.settled_by.as_deref()), seq);
        }
        if batch.write_all(self).await? {
            return Ok(batch.seqs);
        }
        let mut tx = self.begin().await?;
        let applied = batch.write_some(self, &mut tx).await?;
        tx.commit().await?;
        Ok(applied)
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        let mut due = 0;
        for shard in shards {
            let count = self.query_scalar(sql::COUNT_DUE).bind(shard.0).bind(MAX_DUE);
            due += count.fetch_one(&self.pool).await.map(i64::unsigned_abs)?;
        }
        Ok(due.min(u64::from(MAX_DUE)))
    }
}

#[derive(Clone, Copy, PartialEq, Eq)]
enum Size {
    Event,
    /// Larger than any event.
    Oversized,
}

impl SqliteStore {
    /// Leases rows of the size of an event. Searches first: a claim that finds nothing does not block
    /// the writers.
    async fn claim_events(&self, claim: &Claim) -> Result<Vec<Pending>> {
        let mut claimed = Vec::new();
        let mut after = claim.after.as_deref();
        for shard in &claim.shards {
            let left = i64::from(claim.limit).saturating_sub_unsigned(claimed.len() as u64);
            if left <= 0 {
                break;
            }
            let after = after.take().unwrap_or_default();
            let found = self.find(claim, *shard, after, left, Size::Event).await?;
            if !found.is_empty() {
                claimed.append(&mut self.lease(claim, *shard, found).await?);
            }
        }
        Ok(claimed)
    }

    /// Returns one row that is larger than any event, without a lease.
    ///
    /// It is never delivered and needs none, and for a lease SQLite would write all of it again and
    /// block every writer. The token as read fences its verdict. If another owner has the shard, the
    /// row is left to it, so that only one of the two writes it.
    async fn find_oversized(&self, claim: &Claim) -> Result<Vec<Pending>> {
        let mut after = claim.after.as_deref();
        for shard in &claim.shards {
            let after = after.take().unwrap_or_default();
            let found = self.find(claim, *shard, after, 1, Size::Oversized).await?;
            if found.is_empty() || self.is_owned_by_another(*shard, &claim.owner).await? {
                continue;
            }
            let mut rows = self.read_whole(*shard, found.keys()).await?;
            // A row that was replaced in the meantime may be an event, which needs a lease.
            rows.retain(|row| matches!(row.content, Content::Invalid(_)));
            rows.iter_mut().for_each(|row| row.lapsed = false);
            return Ok(rows);
        }
        Ok(Vec::new())
    }

    async fn is_owned_by_another(&self, shard: ShardId, owner: &OwnerId) -> Result<bool> {
        let query = self.query_scalar(sql::IS_OWNED_BY_ANOTHER).bind(shard.0);
        Ok(query.bind(owner.as_str()).fetch_one(&self.pool).await?)
    }

    /// Finds rows that can be claimed, and whether each may have crashed its last owner.
    async fn find(
        &self,
        claim: &Claim,
        shard: ShardId,
        after: &str,
        limit: i64,
        size: Size,
    ) -> Result<HashMap<Seq, bool>> {
        let found = match claim.order {
            Order::None => self.query_as(sql::FIND_CLAIMABLE).bind(shard.0).bind(limit),
            Order::Key => self.query_as(sql::FIND_HEADS).bind(shard.0).bind(limit).bind(after),
        };
        let found = found.bind(size == Size::Oversized).bind(json(&claim.budget.skip));
        let found: Vec<(i64, bool)> = found.fetch_all(&self.pool).await?;
        Ok(found.into_iter().map(|(seq, is_lapsed)| (Seq(seq), is_lapsed)).collect())
    }

    async fn lease(
        &self,
        claim: &Claim,
        shard: ShardId,
        found: HashMap<Seq, bool>,
    ) -> Result<Vec<Pending>> {
        let fit = Fit::of(&claim.budget, claim.limit as usize);
        let rows = self
            .query(sql::CLAIM)
            .bind(json(found.keys()))
            .bind(claim.owner.as_str())
            .bind(micros(claim.length))
            .bind(fit.payload)
            .bind(fit.headers)
            .fetch_all(self.writer())
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
}

pub(super) fn by_token(rows: &[RowLease]) -> HashMap<(ShardId, Token), Vec<Seq>> {
    let mut groups: HashMap<_, Vec<Seq>> = HashMap::new();
    for row in rows {
        groups.entry((row.shard, row.token)).or_default().push(row.seq);
    }
    groups
}
