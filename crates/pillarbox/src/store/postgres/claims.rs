//! Leases on rows: due rows, one by one.

use async_trait::async_trait;

use super::arrays::{Entry, Rows};
use super::row::page;
use super::settle::Settler;
use super::{PostgresStore, sql::claims as sql};
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId};
use crate::store::content::Fit;
use crate::store::{
    Claim, Claims, MAX_DUE, Order, Pending, RenewRows, RowLease, SettleRows, Starts,
};

#[async_trait]
impl Claims for PostgresStore {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        let fit = Fit::of(&claim.budget, claim.limit as usize);
        let text = if claim.order == Order::Key { sql::CLAIM_HEADS } else { sql::CLAIM };
        let mut query = self
            .query(text)
            .bind(claim.owner.as_str())
            .bind(claim.shards.iter().map(|shard| shard.0).collect::<Vec<_>>())
            .bind(i64::from(claim.limit))
            .bind(micros(claim.length))
            .bind(fit.payload)
            .bind(fit.headers);
        if claim.order == Order::Key {
            query = query.bind(claim.after.as_deref().unwrap_or_default());
        }
        self.run(self.work(), async |it| -> Result<_> {
            let mut rows = page(query.fetch_all(&mut *it).await?)?;
            let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
            rows.sort_by_key(|row| (place(row), row.seq));
            let chosen = claim.budget.choose(&rows, |_| 0);
            self.fetch_content(it, &mut rows, chosen).await?;
            Ok(rows)
        })
        .await
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        let Rows { shards, seqs, tokens } = Rows::of(&renew.rows);
        let query = self
            .query_scalar(sql::RENEW_ROWS)
            .bind(renew.owner.as_str())
            .bind(shards)
            .bind(seqs)
            .bind(tokens)
            .bind(micros(renew.length));
        let kept = self.run(self.leases(), async |it| query.fetch_all(it).await).await?;
        Ok(kept.into_iter().map(Seq).collect())
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        let Rows { shards, seqs, tokens } = Rows::of(rows);
        let query =
            self.query(sql::RELEASE_ROWS).bind(owner.as_str()).bind(shards).bind(seqs).bind(tokens);
        let released = self.run(self.work(), async |it| query.execute(it).await).await?;
        Ok(released.rows_affected())
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        self.write_under_tokens(sql::RECLAIM, rows).await
    }

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        let Rows { shards, seqs, tokens } = Rows::of(&starts.rows);
        let query = self
            .query_as(sql::RECORD_STARTS)
            .bind(shards)
            .bind(seqs)
            .bind(tokens)
            .bind(i64::from(starts.below));
        let counted: Vec<(i64, i32)> =
            self.run(self.work(), async |it| query.fetch_all(it).await).await?;
        Ok(counted.into_iter().map(|(seq, times)| (Seq(seq), times.unsigned_abs())).collect())
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        let entries = settle.verdicts.iter().map(Entry::from).collect();
        let settler = Settler { store: self, owner: &settle.owner, fence: None };
        Ok(settler.settle(entries).await?.applied)
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        let shards: Vec<i16> = shards.iter().map(|shard| shard.0).collect();
        let query = self.query_scalar(sql::COUNT_DUE).bind(shards).bind(i64::from(MAX_DUE));
        let count: i64 = self.run(self.work(), async |it| query.fetch_one(it).await).await?;
        Ok(count.unsigned_abs())
    }
}

impl PostgresStore {
    /// Runs a statement that takes rows under their tokens and nothing else. Returns how many it
    /// changed.
    pub(super) async fn write_under_tokens(
        &self,
        text: &'static str,
        rows: &[RowLease],
    ) -> Result<u64> {
        let Rows { shards, seqs, tokens } = Rows::of(rows);
        let query = self.query(text).bind(shards).bind(seqs).bind(tokens);
        let written = self.run(self.work(), async |it| query.execute(it).await).await?;
        Ok(written.rows_affected())
    }
}
