//! What operators and upkeep ask for.

use sqlx::Row as _;

use super::read::{attempts, envelope_row, status};
use super::{PostgresStore, sql};
use crate::clock::{Timestamp, from_micros, micros};
use crate::error::Result;
use crate::id::{EventId, Seq, ShardId, Token};
use crate::store::{Purge, Stats, StoredEvent};

pub(super) async fn replay(store: &PostgresStore, ids: &[EventId]) -> Result<u64> {
    let ids: Vec<&str> = ids.iter().map(EventId::as_str).collect();
    let replayed = sqlx::query(store.sql(sql::REPLAY)).bind(ids).execute(&store.pool).await?;
    Ok(replayed.rows_affected())
}

pub(super) async fn purge(store: &PostgresStore, purge: &Purge) -> Result<u64> {
    let purged = sqlx::query(store.sql(sql::PURGE))
        .bind(purge.status.code())
        .bind(micros(purge.older_than))
        .bind(i64::from(purge.limit))
        .execute(&store.pool)
        .await?;
    Ok(purged.rows_affected())
}

pub(super) async fn stats(store: &PostgresStore) -> Result<Stats> {
    let row = sqlx::query(store.sql(sql::STATS)).fetch_one(&store.pool).await?;
    let count = |column| -> Result<u64> {
        let count: i64 = row.try_get(column)?;
        Ok(u64::try_from(count).unwrap_or(0))
    };
    let oldest_lag: Option<i64> = row.try_get("oldest_lag")?;
    Ok(Stats {
        new: count("new")?,
        retry: count("retry")?,
        held: count("held")?,
        dead: count("dead")?,
        oldest_lag: oldest_lag.map(from_micros),
        owners: count("owners")?,
        owned_shards: count("owned_shards")?,
    })
}

pub(super) async fn event(store: &PostgresStore, id: &EventId) -> Result<Option<StoredEvent>> {
    let query = sqlx::query(store.sql(sql::EVENT)).bind(id.as_str());
    let Some(row) = query.fetch_optional(&store.pool).await? else { return Ok(None) };
    let done_at: Option<i64> = row.try_get("done_at")?;
    Ok(Some(StoredEvent {
        seq: Seq(row.try_get("seq")?),
        shard: ShardId(row.try_get("shard")?),
        key: row.try_get("ordering_key")?,
        token: Token(row.try_get("lock_token")?),
        status: status(&row)?,
        attempts: attempts(&row)?,
        available_at: Timestamp::from_unix_micros(row.try_get("available_at")?),
        created_at: Timestamp::from_unix_micros(row.try_get("created_at")?),
        done_at: done_at.map(Timestamp::from_unix_micros),
        settled_by: row.try_get("settled_by")?,
        last_error: row.try_get("last_error")?,
        event: envelope_row(&row)?.open(),
    }))
}
