//! New rows, read without a write since the shard's lease says whose they are; and their verdicts.

use std::collections::BTreeMap;
use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{Encode, Sqlite, Type};

use super::claims::by_token;
use super::row::Columns;
use super::settle::{Alike, Batch, json};
use super::{SqliteStore, sql::events as sql};
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Epoch, Seq, ShardId};
use crate::pooled::PooledTx;
use crate::store::content::{Fit, fill};
use crate::store::{
    Due, DueRow, Events, Heads, HeadsCursor, Notifications, Pending, Promote, Read, ReadHeads,
    ReadKeys, RowLease, Settle, Settled,
};

#[async_trait]
impl Events for SqliteStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        let fit = Fit::of(&read.budget, read.rows());
        let mut found = Vec::new();
        for want in &read.shards {
            found.extend(
                self.read_page(sql::READ, want.shard, want.floor.0, read.limit, fit).await?,
            );
        }
        let chosen = read.budget.choose(&found, |row| read.line(row));
        self.fetch_content(&mut found, chosen).await?;
        Ok(found)
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        let fit = Fit::of(&read.budget, read.rows());
        let mut found = Vec::new();
        for want in &read.keys {
            found.extend(
                self.read_page(sql::READ_KEYS, want.shard, &*want.key, read.limit, fit).await?,
            );
        }
        let chosen = read.budget.choose(&found, |row| read.line(row));
        self.fetch_content(&mut found, chosen).await?;
        Ok(found)
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        let newest = self.query_scalar(sql::NEWEST).bind(read.shard.0);
        let newest = Seq(newest.fetch_one(&self.pool).await?);
        let fit = Fit::of(&read.budget, read.limit as usize);
        let mut found = match &read.after {
            HeadsCursor::Key(after) => {
                self.read_page(sql::READ_HEADS, read.shard, &**after, read.limit, fit).await?
            }
            HeadsCursor::Keyless(after) => self.keyless(read, *after, fit).await?,
        };
        let chosen = read.budget.choose(&found, |_| 0);
        self.fetch_content(&mut found, chosen).await?;
        Ok(Heads::of(read, found, newest))
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        // Looks first: while nothing is due, nobody keeps the writers waiting.
        let mut due = Due::default();
        for shard in &promote.shards {
            let mut next = self.next_due(*shard).await?;
            let left = i64::from(promote.limit).saturating_sub_unsigned(due.rows.len() as u64);
            if next.is_some_and(|wait| wait.is_zero()) && left > 0 {
                due.rows.append(&mut self.promote_due(*shard, left).await?);
                next = self.next_due(*shard).await?;
            }
            due.next = due.next.into_iter().chain(next).min();
        }
        Ok(due)
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut postponed = 0;
        for ((shard, token), seqs) in by_token(rows) {
            let update = self.query(sql::POSTPONE).bind(json(&seqs)).bind(shard.0);
            postponed += update.bind(token.0).execute(&mut *tx).await?.rows_affected();
        }
        tx.commit().await?;
        Ok(postponed)
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        let mut batch = Batch::new(&settle.owner);
        for it in &settle.settlements {
            batch.add(
                Alike::new(
                    it.shard,
                    Some(it.epoch),
                    it.token,
                    &it.verdict,
                    it.settled_by.as_deref(),
                ),
                it.seq,
            );
        }
        if batch.write_all(self).await? {
            return Ok(Settled { applied: batch.seqs, refused: Vec::new() });
        }
        let mut tx = self.begin().await?;
        let refused = self.refused(&mut tx, settle).await?;
        let applied = batch.write_some(self, &mut tx).await?;
        tx.commit().await?;
        Ok(Settled { applied, refused })
    }

    async fn locked(&self, _: &[RowLease]) -> Result<Vec<Seq>> {
        // SQLite locks the whole file, never a row.
        Ok(Vec::new())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        Ok(None)
    }

    async fn notify(&self) -> Result<()> {
        Ok(())
    }
}

impl SqliteStore {
    async fn keyless(&self, read: &ReadHeads, after: Seq, fit: Fit) -> Result<Vec<Pending>> {
        let page = self.query(sql::READ_KEYLESS).bind(read.shard.0).bind(after.0);
        let page = page.bind(i64::from(read.limit)).bind(fit.payload).bind(fit.headers);
        let rows = page.bind(read.up_to.0).fetch_all(&self.pool).await?;
        rows.into_iter().map(|row| Columns::of(&row).pending(read.shard)).collect()
    }

    /// The first rows of a shard above a floor, of a key in it, or of each key behind one.
    async fn read_page<'q, T: Encode<'q, Sqlite> + Type<Sqlite> + Send + 'q>(
        &self,
        text: &'static str,
        shard: ShardId,
        which: T,
        limit: u32,
        fit: Fit,
    ) -> Result<Vec<Pending>> {
        let page = self.query(text).bind(shard.0).bind(which).bind(i64::from(limit));
        let rows = page.bind(fit.payload).bind(fit.headers).fetch_all(&self.pool).await?;
        rows.into_iter().map(|row| Columns::of(&row).pending(shard)).collect()
    }

    /// Fetches the content of rows that were read without.
    pub(super) async fn fetch_content(
        &self,
        rows: &mut Vec<Pending>,
        chosen: Vec<(ShardId, Seq)>,
    ) -> Result<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let found = self.read_whole(ShardId(0), chosen.iter().map(|(_, seq)| seq)).await?;
        fill(rows, &chosen, found.into_iter().map(|row| (row.seq, row.content)).collect());
        Ok(())
    }

    /// Reads rows with as much content as an event may have.
    pub(super) async fn read_whole<'a>(
        &self,
        shard: ShardId,
        seqs: impl IntoIterator<Item = &'a Seq>,
    ) -> Result<Vec<Pending>> {
        let rows = self
            .query(sql::READ_CONTENT)
            .bind(json(seqs))
            .bind(Fit::WHOLE.payload)
            .bind(Fit::WHOLE.headers)
            .fetch_all(&self.pool)
            .await?;
        rows.into_iter().map(|row| Columns::of(&row).pending(shard)).collect()
    }

    async fn next_due(&self, shard: ShardId) -> Result<Option<Duration>> {
        let next = self.query_scalar(sql::NEXT_DUE).bind(shard.0);
        let next: Option<i64> = next.fetch_one(&self.pool).await?;
        Ok(next.map(from_micros))
    }

    async fn promote_due(&self, shard: ShardId, limit: i64) -> Result<Vec<DueRow>> {
        let update = self.query_as(sql::PROMOTE).bind(shard.0).bind(limit);
        let rows: Vec<(i64, Option<Vec<u8>>)> = update.fetch_all(self.writer()).await?;
        let key = |key: Vec<u8>| Arc::from(String::from_utf8_lossy(&key));
        let row = |(seq, ordering_key): (i64, Option<Vec<u8>>)| DueRow {
            shard,
            seq: Seq(seq),
            key: ordering_key.map(key),
        };
        Ok(rows.into_iter().map(row).collect())
    }

    /// Shards that are not held at the newest epoch that is named for them.
    async fn refused(&self, tx: &mut PooledTx<Sqlite>, settle: &Settle) -> Result<Vec<ShardId>> {
        let mut newest: BTreeMap<ShardId, Epoch> = BTreeMap::new();
        for settlement in &settle.settlements {
            let epoch = newest.entry(settlement.shard).or_insert(settlement.epoch);
            *epoch = settlement.epoch.max(*epoch);
        }
        let mut refused = Vec::new();
        for (shard, epoch) in newest {
            let query = self.query_scalar(sql::IS_OWNED).bind(shard.0);
            let query = query.bind(settle.owner.as_str()).bind(epoch.0);
            let is_owned: bool = query.fetch_one(&mut **tx).await?;
            if !is_owned {
                refused.push(shard);
            }
        }
        Ok(refused)
    }
}
