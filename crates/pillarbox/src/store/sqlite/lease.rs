//! Who is alive, and who holds which shard.

use serde_json::json;
use sqlx::{Row as _, Sqlite};

use super::migrate::mode;
use super::{SqliteStore, sql};
use crate::clock::micros;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Renewal, ShardOrigin,
};

/// In one transaction, so that the mode cannot be changed in between.
pub(super) async fn join(store: &SqliteStore, join: &Join) -> Result<()> {
    let mut tx = store.begin().await?;
    mode(store, &mut tx).await?.refuse_other(join.mode)?;
    sqlx::query(store.sql(sql::JOIN))
        .bind(join.lease.owner.as_str())
        .bind(micros(join.lease.length))
        .bind(i16::try_from(join.lease.wants).unwrap_or(i16::MAX))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

pub(super) async fn renew(store: &SqliteStore, lease: &Lease) -> Result<Renewal> {
    let renewed = sqlx::query(store.sql(sql::RENEW))
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .execute(store.writer())
        .await?;
    if renewed.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
}

pub(super) async fn members(store: &SqliteStore) -> Result<Vec<Member>> {
    let members: Vec<(String, i16, i64)> = sqlx::query_as(store.sql(sql::MEMBERS))
        .bind(i64::from(MAX_MEMBERS))
        .fetch_all(&store.pool)
        .await?;
    Ok(members.into_iter().map(Member::stored).collect())
}

pub(super) async fn acquire_shards(
    store: &SqliteStore,
    take: &AcquireShards,
) -> Result<Vec<OwnedShard>> {
    let mut tx = store.begin().await?;
    remove_lapsed(store, &mut tx).await?;
    let entered: bool = sqlx::query_scalar(store.sql(sql::IS_OWNER))
        .bind(take.owner.as_str())
        .fetch_one(&mut *tx)
        .await?;
    let mut taken = Vec::new();
    if entered {
        let rows = sqlx::query(store.sql(sql::FREE))
            .bind(i64::from(take.most))
            .bind(take.owner.as_str())
            .bind(json!(take.held.iter().map(|shard| shard.0).collect::<Vec<_>>()).to_string())
            .fetch_all(&mut *tx)
            .await?;
        for row in rows {
            let (shard, epoch): (i16, i64) = (row.try_get("shard")?, row.try_get("epoch")?);
            sqlx::query(store.sql(sql::TAKE))
                .bind(take.owner.as_str())
                .bind(shard)
                .execute(&mut *tx)
                .await?;
            let lapsed: bool = row.try_get("lapsed")?;
            taken.push(OwnedShard {
                shard: ShardId(shard),
                epoch: Epoch(epoch + 1),
                origin: if lapsed { ShardOrigin::Lapsed } else { ShardOrigin::Free },
            });
        }
    }
    crash_point!("take.inside"?);
    tx.commit().await?;
    Ok(taken)
}

pub(super) async fn remove_lapsed(store: &SqliteStore, tx: &mut PooledTx<Sqlite>) -> Result<()> {
    let ahead: Vec<String> = sqlx::query_scalar(store.sql(sql::AHEAD)).fetch_all(&mut **tx).await?;
    if !ahead.is_empty() {
        let end = sqlx::query(store.sql(sql::END_ROW_LEASES)).bind(json!(ahead).to_string());
        end.execute(&mut **tx).await?;
    }
    sqlx::query(store.sql(sql::REMOVE_LAPSED)).execute(&mut **tx).await?;
    Ok(())
}

pub(super) async fn release(
    store: &SqliteStore,
    owner: &OwnerId,
    holdings: &[OwnedShard],
) -> Result<u64> {
    let mut tx = store.begin().await?;
    let mut released = 0;
    for holding in holdings {
        let update = sqlx::query(store.sql(sql::RELEASE))
            .bind(owner.as_str())
            .bind(holding.shard.0)
            .bind(holding.epoch.0);
        released += update.execute(&mut *tx).await?.rows_affected();
    }
    tx.commit().await?;
    Ok(released)
}

pub(super) async fn leave(store: &SqliteStore, owner: &OwnerId) -> Result<()> {
    let mut tx = store.begin().await?;
    sqlx::query(store.sql(sql::RELEASE_ALL)).bind(owner.as_str()).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::REMOVE_OWNER)).bind(owner.as_str()).execute(&mut *tx).await?;
    crash_point!("leave.inside"?);
    tx.commit().await?;
    Ok(())
}
