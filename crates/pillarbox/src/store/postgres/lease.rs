//! Who is alive, and who holds which shard.

use sqlx::Row as _;

use super::{PostgresStore, migrate::mode, sql};
use crate::clock::micros;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{Holding, Join, Lease, Origin, Renewal, Take};

pub(super) async fn join(store: &PostgresStore, join: &Join) -> Result<()> {
    let lease = &join.lease;
    let mut tx = store.begin_on(&store.leases).await?;
    sqlx::query(sql::BE_PATIENT).execute(&mut *tx).await?;
    let setting = sqlx::query(store.sql(sql::LOCK_MOVES)).fetch_one(&mut *tx).await?;
    mode(&setting)?.refuse_other(join.mode)?;
    sqlx::query(store.sql(sql::JOIN))
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

pub(super) async fn renew(store: &PostgresStore, lease: &Lease) -> Result<Renewal> {
    let renewed = sqlx::query(store.sql(sql::RENEW))
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .execute(&store.leases)
        .await?;
    if renewed.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
}

pub(super) async fn take(store: &PostgresStore, take: &Take) -> Result<Vec<Holding>> {
    let mut tx = store.begin_on(&store.leases).await?;
    sqlx::query(sql::BE_PATIENT).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::REMOVE_LAPSED)).execute(&mut *tx).await?;
    let entered: bool = sqlx::query_scalar(store.sql(sql::IS_OWNER))
        .bind(take.owner.as_str())
        .fetch_one(&mut *tx)
        .await?;
    let mut taken = Vec::new();
    if entered {
        let rows = sqlx::query(store.sql(sql::TAKE))
            .bind(take.owner.as_str())
            .bind(i64::from(take.most))
            .bind(take.held.iter().map(|shard| shard.0).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
        for row in rows {
            let lapsed: bool = row.try_get("lapsed")?;
            taken.push(Holding {
                shard: ShardId(row.try_get("shard")?),
                epoch: Epoch(row.try_get("epoch")?),
                origin: if lapsed { Origin::Lapsed } else { Origin::Free },
            });
        }
    }
    tx.commit().await?;
    Ok(taken)
}

pub(super) async fn release(
    store: &PostgresStore,
    owner: &OwnerId,
    holdings: &[Holding],
) -> Result<u64> {
    let shards: Vec<i16> = holdings.iter().map(|holding| holding.shard.0).collect();
    let epochs: Vec<i64> = holdings.iter().map(|holding| holding.epoch.0).collect();
    let released = sqlx::query(store.sql(sql::RELEASE))
        .bind(owner.as_str())
        .bind(shards)
        .bind(epochs)
        .execute(&store.leases)
        .await?;
    Ok(released.rows_affected())
}

pub(super) async fn leave(store: &PostgresStore, owner: &OwnerId) -> Result<()> {
    let mut tx = store.begin_on(&store.leases).await?;
    sqlx::query(sql::BE_PATIENT).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::RELEASE_ALL)).bind(owner.as_str()).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::REMOVE_OWNER)).bind(owner.as_str()).execute(&mut *tx).await?;
    tx.commit().await?;
    Ok(())
}
