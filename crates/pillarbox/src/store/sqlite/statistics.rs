//! Counts of events.

use async_trait::async_trait;
use sqlx::sqlite::SqliteRow;

use super::row::Columns;
use super::{SqliteStore, sql::statistics as sql};
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{Breakdown, MAX_TYPES, ShardStats, Statistics, Stats, TypeStats};

#[async_trait]
impl Statistics for SqliteStore {
    async fn stats(&self) -> Result<Stats> {
        let row = self.query(sql::STATS).fetch_one(&self.pool).await?;
        let mut columns = Columns::of(&row);
        Ok(Stats {
            new: columns.count()?,
            waiting: columns.count()?,
            held: columns.count()?,
            oldest_lag: columns.next::<Option<i64>>()?.map(from_micros),
            dead: columns.count()?,
            owners: columns.count()?,
            owned_shards: columns.count()?,
        })
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        // In one transaction that only reads, so that the counts are of one moment and nobody waits.
        let mut tx = PooledTx::begin(&self.pool, None).await?;
        let shards = self.query(sql::SHARD_STATS).fetch_all(&mut *tx).await?;
        let types = self
            .query(sql::TYPE_STATS)
            .bind(i64::try_from(MAX_TYPES).unwrap_or(i64::MAX))
            .fetch_all(&mut *tx)
            .await?;
        let done: i64 = self.query_scalar(sql::COUNT_DONE).fetch_one(&mut *tx).await?;
        tx.commit().await?;
        Ok(Breakdown {
            done: u64::try_from(done).unwrap_or(0),
            shards: shards.iter().map(shard_stats).collect::<Result<_>>()?,
            types: types.iter().map(type_stats).collect::<Result<_>>()?,
        })
    }
}

fn shard_stats(row: &SqliteRow) -> Result<ShardStats> {
    let mut columns = Columns::of(row);
    Ok(ShardStats {
        shard: ShardId(columns.next()?),
        owner: columns.text()?.map(OwnerId::stored),
        epoch: Epoch(columns.next()?),
        new: columns.count()?,
        waiting: columns.count()?,
        held: columns.count()?,
        oldest_lag: columns.next::<Option<i64>>()?.map(from_micros),
    })
}

fn type_stats(row: &SqliteRow) -> Result<TypeStats> {
    let mut columns = Columns::of(row);
    Ok(TypeStats {
        event_type: columns.text()?.unwrap_or_default(),
        new: columns.count()?,
        waiting: columns.count()?,
        held: columns.count()?,
        dead: columns.count()?,
    })
}
