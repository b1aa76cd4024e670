//! Counts of events.

use async_trait::async_trait;
use sqlx::{Row as _, postgres::PgRow};

use super::{PostgresStore, sql::statistics as sql};
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{Breakdown, MAX_TYPES, ShardStats, Statistics, Stats, TypeStats};

#[async_trait]
impl Statistics for PostgresStore {
    async fn stats(&self) -> Result<Stats> {
        let query = self.query(sql::STATS);
        let row = self.run(&self.pool, async |it| query.fetch_one(it).await).await?;
        Ok(Stats {
            new: count(&row, "new")?,
            waiting: count(&row, "waiting")?,
            held: count(&row, "held")?,
            dead: count(&row, "dead")?,
            oldest_lag: row.try_get::<Option<i64>, _>("oldest_lag")?.map(from_micros),
            owners: count(&row, "owners")?,
            owned_shards: count(&row, "owned_shards")?,
        })
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        let (done, shards) = (self.query_scalar(sql::COUNT_DONE), self.query(sql::SHARD_STATS));
        let types = self.query(sql::TYPE_STATS);
        let types = types.bind(i64::try_from(MAX_TYPES).unwrap_or(i64::MAX));
        // Each on its own: a transaction would keep a snapshot for as long as all of them take.
        let done: i64 = self.run(&self.pool, async |it| done.fetch_one(it).await).await?;
        let shards = self.run(&self.pool, async |it| shards.fetch_all(it).await).await?;
        let types = self.run(&self.pool, async |it| types.fetch_all(it).await).await?;
        Ok(Breakdown {
            done: u64::try_from(done).unwrap_or(0),
            shards: shards.iter().map(shard_stats).collect::<Result<_>>()?,
            types: types.iter().map(type_stats).collect::<Result<_>>()?,
        })
    }
}

fn shard_stats(row: &PgRow) -> Result<ShardStats> {
    let owner: Option<String> = row.try_get("owner")?;
    Ok(ShardStats {
        shard: ShardId(row.try_get("shard")?),
        owner: owner.map(OwnerId::stored),
        epoch: Epoch(row.try_get("epoch")?),
        new: count(row, "new")?,
        waiting: count(row, "waiting")?,
        held: count(row, "held")?,
        oldest_lag: row.try_get::<Option<i64>, _>("oldest_lag")?.map(from_micros),
    })
}

fn type_stats(row: &PgRow) -> Result<TypeStats> {
    Ok(TypeStats {
        event_type: row.try_get("event_type")?,
        new: count(row, "new")?,
        waiting: count(row, "waiting")?,
        held: count(row, "held")?,
        dead: count(row, "dead")?,
    })
}

fn count(row: &PgRow, column: &str) -> Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
