//! How much there is of what.

use sqlx::{MySqlConnection, Row as _, mysql::MySqlRow};

use super::MysqlStore;
use super::sql::admin as sql;
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{Breakdown, MAX_TYPES, ShardStats, Stats, TypeStats};

pub(super) async fn stats(store: &MysqlStore) -> Result<Stats> {
    let mut call = store.call().await?;
    let row = sqlx::query(store.sql(sql::STATS)).fetch_one(&mut *call).await;
    call.end();
    let row = row?;
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

pub(super) async fn breakdown(store: &MysqlStore) -> Result<Breakdown> {
    let mut call = store.call().await?;
    let breakdown = counted(store, &mut call).await;
    call.end();
    breakdown
}

async fn counted(store: &MysqlStore, connection: &mut MySqlConnection) -> Result<Breakdown> {
    let done: i64 =
        sqlx::query_scalar(store.sql(sql::COUNT_DONE)).fetch_one(&mut *connection).await?;
    let shards = sqlx::query(store.sql(sql::SHARD_STATS)).fetch_all(&mut *connection).await?;
    let types = sqlx::query(store.sql(sql::TYPE_STATS))
        .bind(i64::try_from(MAX_TYPES).unwrap_or(i64::MAX))
        .fetch_all(connection)
        .await?;
    Ok(Breakdown {
        done: u64::try_from(done).unwrap_or(0),
        shards: shards.iter().map(shard_stats).collect::<Result<_>>()?,
        types: types.iter().map(type_stats).collect::<Result<_>>()?,
    })
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
