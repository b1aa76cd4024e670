//! New rows, read without a write since the shard's lease says whose they are; and their verdicts.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;
use sqlx::{PgConnection, Row as _, postgres::PgRow};

use super::arrays::{Entry, Rows};
use super::notifications::PostgresNotifications;
use super::row::{Columns, moment, page};
use super::settle::{Fence, Settler};
use super::{PostgresStore, sql::events as sql};
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::store::content::{Fit, fill};
use crate::store::{
    Due, DueRow, Events, Heads, HeadsCursor, Notifications, Pending, Promote, Read, ReadHeads,
    ReadKeys, RowLease, Settle, Settled,
};

/// When to look again for rows that somebody else has locked.
const LOCKED_ROWS_DELAY: Duration = Duration::from_secs(1);

#[async_trait]
impl Events for PostgresStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        let fit = Fit::of(&read.budget, read.rows());
        let query = self
            .query(sql::READ)
            .bind(read.shards.iter().map(|want| want.shard.0).collect::<Vec<_>>())
            .bind(read.shards.iter().map(|want| want.floor.0).collect::<Vec<_>>())
            .bind(i64::from(read.limit))
            .bind(fit.payload)
            .bind(fit.headers);
        self.run(self.work(), async |it| -> Result<_> {
            let mut rows = page(query.fetch_all(&mut *it).await?)?;
            rows.sort_by_key(|row| (row.shard, row.seq));
            let chosen = read.budget.choose(&rows, |row| read.line(row));
            self.fetch_content(it, &mut rows, chosen).await?;
            Ok(rows)
        })
        .await
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        let fit = Fit::of(&read.budget, read.rows());
        let query = self
            .query(sql::READ_KEYS)
            .bind(read.keys.iter().map(|want| want.shard.0).collect::<Vec<_>>())
            .bind(read.keys.iter().map(|want| &*want.key).collect::<Vec<_>>())
            .bind(i64::from(read.limit))
            .bind(fit.payload)
            .bind(fit.headers);
        self.run(self.work(), async |it| -> Result<_> {
            let mut rows = page(query.fetch_all(&mut *it).await?)?;
            let chosen = read.budget.choose(&rows, |row| read.line(row));
            self.fetch_content(it, &mut rows, chosen).await?;
            Ok(rows)
        })
        .await
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        let newest = self.query_scalar(sql::NEWEST).bind(read.shard.0);
        let fit = Fit::of(&read.budget, read.limit as usize);
        let query = match &read.after {
            HeadsCursor::Key(key) => self.query(sql::READ_HEADS).bind(read.shard.0).bind(&**key),
            HeadsCursor::Keyless(seq) => {
                self.query(sql::READ_KEYLESS).bind(read.shard.0).bind(seq.0)
            }
        };
        let mut query = query.bind(i64::from(read.limit)).bind(fit.payload).bind(fit.headers);
        if matches!(read.after, HeadsCursor::Keyless(_)) {
            query = query.bind(read.up_to.0);
        }
        self.run(self.work(), async |it| -> Result<_> {
            let newest = Seq(newest.fetch_one(&mut *it).await?);
            let mut rows = page(query.fetch_all(&mut *it).await?)?;
            let chosen = read.budget.choose(&rows, |_| 0);
            self.fetch_content(it, &mut rows, chosen).await?;
            Ok(Heads::of(read, rows, newest))
        })
        .await
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        let shards: Vec<i16> = promote.shards.iter().map(|shard| shard.0).collect();
        self.run(self.work(), async |it| -> Result<_> {
            let next = self.next_due(it, &shards).await?;
            if next == Some(Duration::ZERO) {
                return self.promote_due(it, &shards, promote.limit).await;
            }
            Ok(Due { rows: Vec::new(), next })
        })
        .await
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        self.write_under_tokens(sql::POSTPONE, rows).await
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        let fence = Fence::of(&settle.settlements);
        let entries = settle.settlements.iter().filter(|it| fence.is_newest(it)).map(Entry::from);
        let settler = Settler { store: self, owner: &settle.owner, fence: Some(&fence) };
        settler.settle(entries.collect()).await
    }

    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>> {
        let Rows { shards, seqs, .. } = Rows::of(rows);
        let query = self.query_scalar(sql::LOCKED).bind(shards).bind(seqs);
        let locked = self.run(self.work(), async |it| query.fetch_all(it).await).await?;
        Ok(locked.into_iter().map(Seq).collect())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        if !self.named {
            // LISTEN belongs to a session, and behind a pooler there is none.
            return Ok(None);
        }
        Ok(Some(Box::new(PostgresNotifications::connect(self).await?)))
    }

    async fn notify(&self) -> Result<()> {
        let query = self.query(sql::NOTIFY).bind(PostgresNotifications::channel(self));
        self.run(self.work(), async |it| query.execute(it).await).await.map(drop)
    }
}

impl PostgresStore {
    /// Fetches the content of rows that were read without.
    pub(super) async fn fetch_content(
        &self,
        connection: &mut PgConnection,
        rows: &mut Vec<Pending>,
        chosen: Vec<(ShardId, Seq)>,
    ) -> Result<()> {
        if chosen.is_empty() {
            return Ok(());
        }
        let found = self
            .query(sql::READ_CONTENT)
            .bind(chosen.iter().map(|(shard, _)| shard.0).collect::<Vec<_>>())
            .bind(chosen.iter().map(|(_, seq)| seq.0).collect::<Vec<_>>())
            .bind(Fit::WHOLE.payload)
            .bind(Fit::WHOLE.headers)
            .fetch_all(connection)
            .await?;
        let content = |row: PgRow| {
            let mut columns = Columns::of(&row);
            Ok((Seq(columns.next()?), columns.content()?))
        };
        let fetched = found.into_iter().map(content).collect::<Result<_>>()?;
        fill(rows, &chosen, fetched);
        Ok(())
    }

    /// How long until the next waiting row is due.
    async fn next_due(
        &self,
        connection: &mut PgConnection,
        shards: &[i16],
    ) -> Result<Option<Duration>> {
        let row = self.query(sql::NEXT_DUE).bind(shards).fetch_one(connection).await?;
        let due_at = row.try_get_unchecked::<Option<i64>, _>(0)?.map(moment);
        let now = moment(row.try_get_unchecked(1)?);
        Ok(due_at.map(|due_at| due_at.since(now)))
    }

    async fn promote_due(
        &self,
        connection: &mut PgConnection,
        shards: &[i16],
        limit: u32,
    ) -> Result<Due> {
        let query = self.query(sql::PROMOTE).bind(shards).bind(i64::from(limit));
        let row = query.fetch_one(&mut *connection).await?;
        let found: i64 = row.try_get(0)?;
        let (shards_of, seqs): (Vec<i16>, Vec<i64>) = (row.try_get(1)?, row.try_get(2)?);
        let keys: Vec<Option<String>> = row.try_get(3)?;
        let places = shards_of.into_iter().zip(seqs).zip(keys);
        let rows: Vec<DueRow> = places
            .map(|((shard, seq), key)| DueRow {
                shard: ShardId(shard),
                seq: Seq(seq),
                key: key.map(Arc::from),
            })
            .collect();
        // Where others have been found behind those that are locked, they come at once.
        let (found, is_full) = (found.unsigned_abs(), found >= i64::from(limit));
        let is_stuck = (rows.len() as u64) < found && (rows.is_empty() || !is_full);
        let next = self.next_due(connection, shards).await?;
        let next = if is_stuck { next.map(|next| next.max(LOCKED_ROWS_DELAY)) } else { next };
        Ok(Due { rows, next })
    }
}
