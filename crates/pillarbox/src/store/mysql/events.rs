//! New rows, read without a write since the shard's lease says whose they are; and their verdicts.

use std::collections::{BTreeMap, HashSet};
use std::sync::{Arc, atomic::Ordering};
use std::time::Duration;

use async_trait::async_trait;
use serde_json::{Value, json};
use sqlx::{AssertSqlSafe, MySql, MySqlConnection};

use super::claims::list;
use super::read::{FEW, Range, SNAPSHOT, parts};
use super::row::{fitting, page};
use super::settle::{Batch, Line, Look, fences, given_up, unsettled};
use super::{MysqlStore, sql::events as sql};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId};
use crate::pooled::PooledTx;
use crate::store::content::Fit;
use crate::store::{
    Due, Events, Heads, HeadsCursor, KeyRead, Notifications, Pending, Promote, Read, ReadHeads,
    ReadKeys, RowLease, Settle, Settled, Settlement, ShardRead,
};

/// No content: it is fetched for those that can be started.
const NOTHING: Fit = Fit { payload: 0, headers: 0 };

/// When to look again for rows that somebody else has locked.
const LOCKED_ROWS_DELAY: Duration = Duration::from_secs(1);

#[async_trait]
impl Events for MysqlStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        // Nearly always few rows are there, and one statement has them all. In a crowd each shard gets its
        // own page, and its end is found first, in the same snapshot.
        let whole =
            |want: &ShardRead| Range { shard: want.shard, floor: want.floor, end: Seq(i64::MAX) };
        let mut ranges: Vec<Range> = read.shards.iter().map(whole).collect();
        if ranges.is_empty() || read.limit == 0 {
            return Ok(Vec::new());
        }
        let most = u32::try_from(read.rows()).unwrap_or(u32::MAX);
        let few = if ranges.len() == 1 { read.limit } else { FEW.min(most) };
        if ranges.len() == 1 || !self.crowded.load(Ordering::Relaxed) {
            let few_rows =
                async |it: &mut MySqlConnection| self.few_rows(it, read, &ranges, few).await;
            if let Some(rows) = self.run(&self.relay, few_rows).await? {
                return Ok(rows);
            }
        }
        let mut tx = PooledTx::begin(&self.relay, Some(SNAPSHOT)).await?;
        self.find_ends(&mut tx, &mut ranges, read.limit).await?;
        let fit = Fit::of(&read.budget, read.rows());
        let mut rows = self.read_ranges(&mut tx, &ranges, u32::MAX, fit).await?;
        let is_crowd = rows.len() > few as usize;
        let chosen = read.budget.choose(&rows, |row| read.line(row));
        self.fetch_content(&mut tx, &mut rows, chosen).await?;
        tx.commit().await?;
        self.crowded.store(is_crowd, Ordering::Relaxed);
        Ok(rows)
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        if read.keys.is_empty() {
            return Ok(Vec::new());
        }
        let none = KeyRead { shard: ShardId(-1), key: Arc::from("") };
        let part = self.tables.render(sql::READ_KEYS);
        let (text, parts) = parts(&part, "\nunion all", &read.keys, none);
        let fit = Fit::of(&read.budget, read.rows());
        let mut query = sqlx::query(AssertSqlSafe(text));
        for KeyRead { shard, key } in parts {
            query = fitting(query, fit)
                .bind(shard.0)
                .bind(String::from(&*key))
                .bind(i64::from(read.limit));
        }
        self.run(&self.relay, async |it| -> Result<_> {
            let mut rows = page(query.fetch_all(&mut *it).await?)?;
            let chosen = read.budget.choose(&rows, |row| read.line(row));
            self.fetch_content(it, &mut rows, chosen).await?;
            Ok(rows)
        })
        .await
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        // In one snapshot: a row that is found is there when it is read.
        let mut tx = PooledTx::begin(&self.relay, Some(SNAPSHOT)).await?;
        let newest = self.newest_of(&mut tx, read.shard).await?;
        let found = match &read.after {
            HeadsCursor::Key(after) => self.keyed_heads(&mut tx, read, after).await?,
            HeadsCursor::Keyless(after) => self.keyless_heads(&mut tx, read, *after).await?,
        };
        let query = fitting(self.query(sql::READ_HEADS), NOTHING);
        let query = query.bind(Value::from(found).to_string());
        let mut rows = page(query.fetch_all(&mut *tx).await?)?;
        rows.sort_unstable_by(|one, other| (&one.key, one.seq).cmp(&(&other.key, other.seq)));
        let chosen = read.budget.choose(&rows, |_| 0);
        self.fetch_content(&mut tx, &mut rows, chosen).await?;
        tx.commit().await?;
        Ok(Heads::of(read, rows, newest))
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        // Looks first: while nothing is due, nothing is locked.
        let waits = self.next_due(&promote.shards).await?;
        let due = |(_, wait): &&(ShardId, Duration)| wait.is_zero();
        let shards: Vec<_> = waits.iter().filter(due).map(|(shard, _)| *shard).collect();
        if shards.is_empty() || promote.limit == 0 {
            return Ok(Due { rows: Vec::new(), next: soonest(&waits) });
        }
        let limit = promote.limit as usize;
        let found = self.find_due(&shards, limit).await?;
        let rows = self.promote_due(&found).await?;
        if found.len() == limit && !rows.is_empty() {
            return Ok(Due { rows, next: Some(Duration::ZERO) });
        }
        let next = soonest(&self.next_due(&promote.shards).await?);
        let is_locked = rows.len() < found.len() && next.is_some_and(|wait| wait.is_zero());
        Ok(Due { rows, next: if is_locked { Some(LOCKED_ROWS_DELAY) } else { next } })
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let rows = self.unlocked(&mut tx, rows).await?;
        let update = self.query(sql::POSTPONE).bind(list(&rows));
        let postponed = update.execute(&mut *tx).await?;
        tx.commit().await?;
        Ok(postponed.rows_affected())
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        if settle.settlements.is_empty() {
            return Ok(Settled::default());
        }
        let fences = fences(settle);
        for look in [Look::After, Look::First] {
            let mut tx = self.begin().await?;
            let owned = self.lock_shards(&mut tx, &settle.owner, &fences).await?;
            let is_owned = |it: &&Settlement| {
                owned.contains(&it.shard) && fences.get(&it.shard) == Some(&it.epoch)
            };
            let batch = settle.settlements.iter().filter(is_owned).map(Line::from).collect();
            let batch = Batch { lines: batch, leased_to: None };
            let written = match batch.write(self, &mut tx, look).await {
                Ok(written) => written,
                Err(error) => return Err(given_up(tx, error).await),
            };
            if let Some(applied) = written {
                crash_point!("settle.inside"?);
                tx.commit().await?;
                let refused =
                    fences.keys().filter(|shard| !owned.contains(shard)).copied().collect();
                return Ok(Settled { applied, refused });
            }
            tx.rollback().await?;
        }
        Err(unsettled())
    }

    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>> {
        // The locks that it gets for looking end with the statement.
        let list = list(rows);
        let present = self.query_scalar(sql::PRESENT).bind(&list);
        let unlocked = self.query_scalar(sql::UNLOCKED).bind(&list);
        let (present, unlocked): (Vec<i64>, Vec<i64>) = self
            .run(&self.relay, async |it| -> Result<_> {
                Ok((present.fetch_all(&mut *it).await?, unlocked.fetch_all(it).await?))
            })
            .await?;
        Ok(present.into_iter().filter(|seq| !unlocked.contains(seq)).map(Seq).collect())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        Ok(None)
    }

    async fn notify(&self) -> Result<()> {
        Ok(())
    }
}

fn soonest(waits: &[(ShardId, Duration)]) -> Option<Duration> {
    waits.iter().map(|(_, wait)| *wait).min()
}

impl MysqlStore {
    /// Locks the shards that are still owned at these epochs, until the end of the transaction.
    async fn lock_shards(
        &self,
        tx: &mut PooledTx<MySql>,
        owner: &OwnerId,
        fences: &BTreeMap<ShardId, Epoch>,
    ) -> Result<HashSet<ShardId>> {
        let list: Value = fences.iter().map(|(shard, epoch)| json!([shard.0, epoch.0])).collect();
        let shards: Vec<i16> = self
            .query_scalar(sql::FENCE)
            .bind(list.to_string())
            .bind(owner.as_str())
            .fetch_all(&mut **tx)
            .await?;
        Ok(shards.into_iter().map(ShardId).collect())
    }
}
