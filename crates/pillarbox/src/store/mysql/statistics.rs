//! Counts of events.

use async_trait::async_trait;
use sqlx::{MySqlConnection, Row as _, mysql::MySqlRow};

use super::{MysqlStore, sql::statistics as sql};
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{Breakdown, MAX_TYPES, ShardStats, Statistics, Stats, TypeStats};

#[async_trait]
impl Statistics for MysqlStore {
    async fn stats(&self) -> Result<Stats> {
        let query = self.query(sql::STATS);
        let row = self.run(&self.relay, async |it| query.fetch_one(it).await).await?;
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
        self.run(&self.relay, async |it| self.counted(it).await).await
    }
}

impl MysqlStore {
    async fn counted(&self, connection: &mut MySqlConnection) -> Result<Breakdown> {
        let done: i64 = self.query_scalar(sql::COUNT_DONE).fetch_one(&mut *connection).await?;
        let shards = self.query(sql::SHARD_STATS).fetch_all(&mut *connection).await?;
        let types = self
            .query(sql::TYPE_STATS)
            .bind(i64::try_from(MAX_TYPES).unwrap_or(i64::MAX))
            .fetch_all(connection)
            .await?;
        Ok(Breakdown {
            done: u64::try_from(done).unwrap_or(0),
            shards: shards.iter().map(shard_stats).collect::<Result<_>>()?,
            types: types.iter().map(type_stats).collect::<Result<_>>()?,
        })
    }
}

fn shard_stats(row: &MySqlRow) -> Result<ShardStats> {
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

fn type_stats(row: &MySqlRow) -> Result<TypeStats> {
    Ok(TypeStats {
        event_type: row.try_get("event_type")?,
        new: count(row, "new")?,
        waiting: count(row, "waiting")?,
        held: count(row, "held")?,
        dead: count(row, "dead")?,
    })
}

fn count(row: &MySqlRow, column: &str) -> Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
