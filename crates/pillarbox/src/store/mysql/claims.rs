//! Leases on rows: due rows, one by one.

use std::collections::HashSet;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

use super::candidate::candidates;
use super::read::parts;
use super::row::{fitting, page};
use super::settle::{Batch, Line, Look, given_up, unsettled};
use super::{MysqlStore, sql::claims as sql, sql::events::UNLOCKED};
use crate::clock::micros;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::pooled::PooledTx;
use crate::store::content::Fit;
use crate::store::{
    Claim, Claims, MAX_DUE, Pending, RenewRows, RowLease, RowVerdict, SettleRows, Starts,
};

/// How often a claim looks, when others were quicker to lock all that it found.
const LOOKS: usize = 3;

#[async_trait]
impl Claims for MysqlStore {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        // Nothing is locked before it is known that there is something to be had.
        for _ in 0..LOOKS {
            let candidates = candidates(self, claim).await?;
            if candidates.is_empty() {
                break;
            }
            let rows = self.lease(claim, candidates).await?;
            if !rows.is_empty() {
                return Ok(rows);
            }
        }
        Ok(Vec::new())
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        // A lease that still stands after the statement was prolonged by it.
        let mut tx = self.begin_move().await?;
        let rows = self.unlocked(&mut tx, &renew.rows).await?;
        let list = list(&rows);
        let renewed = self
            .query(sql::RENEW_ROWS)
            .bind(&list)
            .bind(renew.owner.as_str())
            .bind(micros(renew.length))
            .execute(&mut *tx)
            .await?;
        let kept = if renewed.rows_affected() == rows.len() as u64 {
            rows.iter().map(|row| row.seq).collect()
        } else {
            let kept = self.query_scalar(sql::KEPT_ROWS).bind(&list);
            let kept: Vec<i64> = kept.bind(renew.owner.as_str()).fetch_all(&mut *tx).await?;
            kept.into_iter().map(Seq).collect()
        };
        tx.commit().await?;
        Ok(kept)
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        let query = self.query(sql::RELEASE_ROWS).bind(list(rows)).bind(owner.as_str());
        let released = self.run(&self.relay, async |it| query.execute(it).await).await?;
        Ok(released.rows_affected())
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = self.unlocked(&mut tx, rows).await?;
        let freed = self.query(sql::RECLAIM).bind(list(&rows)).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(freed.rows_affected())
    }

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        // Nothing says which rows an UPDATE changed: they are looked at first, under a lock.
        let (mut tx, below) = (self.begin().await?, i64::from(starts.below));
        let rows = self.unlocked(&mut tx, &starts.rows).await?;
        let list = list(&rows);
        let found: Vec<(i64, i32)> =
            self.query_as(sql::FIND_STARTS).bind(&list).bind(below).fetch_all(&mut *tx).await?;
        self.query(sql::RECORD_STARTS).bind(&list).bind(below).execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(found
            .into_iter()
            .map(|(seq, times)| (Seq(seq), times.max(0).unsigned_abs() + 1))
            .collect())
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        if settle.verdicts.is_empty() {
            return Ok(Vec::new());
        }
        for look in [Look::After, Look::First] {
            let mut tx = self.begin().await?;
            let lines = settle.verdicts.iter().map(Line::from).collect();
            let batch = Batch { lines, leased_to: Some(&settle.owner) };
            let written = match batch.write(self, &mut tx, look).await {
                Ok(written) => written,
                Err(error) => return Err(given_up(tx, error).await),
            };
            if let Some(applied) = written {
                tx.commit().await?;
                return Ok(applied);
            }
            tx.rollback().await?;
        }
        Err(unsettled())
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        if shards.is_empty() {
            return Ok(0);
        }
        self.run(&self.relay, async |it| -> Result<_> {
            let new = self.count_among(it, sql::COUNT_DUE, shards).await?;
            let waiting = self.count_among(it, sql::COUNT_DUE_WAITING, shards).await?;
            Ok((new + waiting).min(u64::from(MAX_DUE)))
        })
        .await
    }
}

impl MysqlStore {
    async fn lease(&self, claim: &Claim, candidates: Vec<i64>) -> Result<Vec<Pending>> {
        let mut tx = self.begin().await?;
        let fit = Fit::of(&claim.budget, claim.limit as usize);
        let rows = fitting(self.query(sql::CLAIM_PICK), fit)
            .bind(Value::from(candidates).to_string())
            .bind(i64::from(claim.limit))
            .fetch_all(&mut *tx)
            .await?;
        let mut rows = page(rows)?;
        if rows.is_empty() {
            tx.rollback().await?;
            return Ok(rows);
        }
        let seqs: Value = rows.iter().map(|row| row.seq.0).collect();
        self.query(sql::CLAIM)
            .bind(seqs.to_string())
            .bind(claim.owner.as_str())
            .bind(micros(claim.length))
            .execute(&mut *tx)
            .await?;
        let place = |row: &Pending| claim.shards.iter().position(|shard| *shard == row.shard);
        rows.sort_by_key(|row| (place(row), row.seq));
        let chosen = claim.budget.choose(&rows, |_| 0);
        self.fetch_content(&mut tx, &mut rows, chosen).await?;
        tx.commit().await?;
        // They were read before the claim moved their tokens on.
        for row in &mut rows {
            row.token = Token(row.token.0 % i32::MAX + 1);
        }
        Ok(rows)
    }

    async fn count_among(
        &self,
        connection: &mut MySqlConnection,
        text: &'static str,
        shards: &[ShardId],
    ) -> Result<u64> {
        let (marks, shards) = parts("?", ", ", shards, ShardId(-1));
        let text = self.tables.render(text).replace("{shards}", &marks);
        let mut query = sqlx::query_scalar(AssertSqlSafe(text));
        for shard in shards {
            query = query.bind(shard.0);
        }
        let count = query.bind(i64::from(MAX_DUE)).fetch_one(connection).await;
        Ok(count.map(i64::unsigned_abs)?)
    }

    /// Locks those of the rows that no other transaction has locked.
    pub(super) async fn unlocked(
        &self,
        tx: &mut PooledTx<MySql>,
        rows: &[RowLease],
    ) -> Result<Vec<RowLease>> {
        let unlocked = self.query_scalar(UNLOCKED).bind(list(rows));
        let unlocked: HashSet<i64> = unlocked.fetch_all(&mut **tx).await?.into_iter().collect();
        Ok(rows.iter().filter(|row| unlocked.contains(&row.seq.0)).copied().collect())
    }
}

impl<'a> From<&'a RowVerdict> for Line<'a> {
    fn from(it: &'a RowVerdict) -> Self {
        let RowLease { shard, seq, token } = it.row;
        Self { shard, seq, token, verdict: &it.verdict, route: it.settled_by.as_deref() }
    }
}

/// Rows and tokens as the statements unpack them; in order of `seq`, as everyone who locks rows, so
/// that none waits in a circle.
pub(super) fn list(rows: &[RowLease]) -> String {
    let mut rows = rows.to_vec();
    rows.sort_unstable_by_key(|row| row.seq);
    let list: Value = rows.iter().map(|row| json!([row.shard.0, row.seq.0, row.token.0])).collect();
    list.to_string()
}
