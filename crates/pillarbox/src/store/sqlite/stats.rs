//! How much there is of what.

use sqlx::Row as _;
use sqlx::sqlite::SqliteRow;

use super::SqliteStore;
use super::read::text;
use super::sql::admin as sql;
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{Breakdown, MAX_TYPES, ShardStats, Stats, TypeStats};

pub(super) async fn stats(store: &SqliteStore) -> Result<Stats> {
    let row = sqlx::query(store.sql(sql::STATS)).fetch_one(&store.pool).await?;
    let oldest_lag: Option<i64> = row.try_get("oldest_lag")?;
    Ok(Stats {
        new: count(&row, "new")?,
        retry: count(&row, "retry")?,
        held: count(&row, "held")?,
        dead: count(&row, "dead")?,
        oldest_lag: oldest_lag.map(from_micros),
        owners: count(&row, "owners")?,
        owned_shards: count(&row, "owned_shards")?,
    })
}

/// In one transaction that only reads, so that the counts are of one moment and nobody waits.
pub(super) async fn breakdown(store: &SqliteStore) -> Result<Breakdown> {
    let mut tx = PooledTx::begin(&store.pool, None).await?;
    let shards = sqlx::query(store.sql(sql::SHARD_STATS)).fetch_all(&mut *tx).await?;
    let types = sqlx::query(store.sql(sql::TYPE_STATS))
        .bind(i64::try_from(MAX_TYPES).unwrap_or(i64::MAX))
        .fetch_all(&mut *tx)
        .await?;
    let done: i64 = sqlx::query_scalar(store.sql(sql::COUNT_DONE)).fetch_one(&mut *tx).await?;
    tx.commit().await?;
    Ok(Breakdown {
        done: u64::try_from(done).unwrap_or(0),
        shards: shards.iter().map(shard_stats).collect::<Result<_>>()?,
        types: types.iter().map(type_stats).collect::<Result<_>>()?,
    })
}

fn shard_stats(row: &SqliteRow) -> Result<ShardStats> {
    let oldest_lag: Option<i64> = row.try_get("oldest_lag")?;
    Ok(ShardStats {
        shard: ShardId(row.try_get("shard")?),
        owner: text(row, "owner")?.map(OwnerId::stored),
        epoch: Epoch(row.try_get("epoch")?),
        new: count(row, "new")?,
        retry: count(row, "retry")?,
        held: count(row, "held")?,
        oldest_lag: oldest_lag.map(from_micros),
    })
}

fn type_stats(row: &SqliteRow) -> Result<TypeStats> {
    Ok(TypeStats {
        event_type: text(row, "event_type")?.unwrap_or_default(),
        new: count(row, "new")?,
        retry: count(row, "retry")?,
        held: count(row, "held")?,
        dead: count(row, "dead")?,
    })
}

fn count(row: &SqliteRow, column: &str) -> Result<u64> {
    let count: i64 = row.try_get(column)?;
    Ok(u64::try_from(count).unwrap_or(0))
}
