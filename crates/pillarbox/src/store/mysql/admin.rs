//! What operators and upkeep ask for.

use sqlx::Row as _;

use super::read::{attempts, envelope_row, status};
use super::{MysqlStore, sql};
use crate::clock::{Timestamp, from_micros, micros};
use crate::error::Result;
use crate::id::{EventId, Seq, ShardId, Token};
use crate::store::{Purge, Stats, StoredEvent};

/// One by one, by the index: a list would have to be compared in another character set.
pub(super) async fn replay(store: &MysqlStore, ids: &[EventId]) -> Result<u64> {
    let mut tx = store.begin().await?;
    let mut replayed = 0;
    for id in ids {
        let update = sqlx::query(store.sql(sql::REPLAY)).bind(id.as_str());
        replayed += update.execute(&mut *tx).await?.rows_affected();
    }
    tx.commit().await?;
    Ok(replayed)
}

pub(super) async fn purge(store: &MysqlStore, purge: &Purge) -> Result<u64> {
    let mut call = store.call().await?;
    let purged = sqlx::query(store.sql(sql::PURGE))
        .bind(purge.status.code())
        .bind(micros(purge.older_than))
        .bind(i64::from(purge.limit))
        .execute(&mut *call)
        .await;
    call.end();
    Ok(purged?.rows_affected())
}

pub(super) async fn stats(store: &MysqlStore) -> Result<Stats> {
    let mut call = store.call().await?;
    let row = sqlx::query(store.sql(sql::STATS)).fetch_one(&mut *call).await;
    call.end();
    let row = row?;
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

pub(super) async fn event(store: &MysqlStore, id: &EventId) -> Result<Option<StoredEvent>> {
    let mut call = store.call().await?;
    let query = sqlx::query(store.sql(sql::EVENT)).bind(id.as_str());
    let row = query.fetch_optional(&mut *call).await;
    call.end();
    let Some(row) = row? else { return Ok(None) };
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
