//! Who is alive, and who holds which shard.

use sqlx::{Postgres, Row as _};

use super::{PostgresStore, migrate::mode, sql};
use crate::clock::micros;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Renewal, ShardOrigin,
};

pub(super) async fn join(store: &PostgresStore, join: &Join) -> Result<()> {
    let lease = &join.lease;
    let mut tx = store.begin_on(store.leases()).await?;
    sqlx::raw_sql(sql::BE_PATIENT).execute(&mut *tx).await?;
    let setting =
        sqlx::query(store.sql(sql::LOCK_MOVES)).persistent(store.named).fetch_one(&mut *tx).await?;
    mode(&setting)?.refuse_other(join.mode)?;
    sqlx::query(store.sql(sql::JOIN))
        .persistent(store.named)
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

pub(super) async fn renew(store: &PostgresStore, lease: &Lease) -> Result<Renewal> {
    let mut link = store.link(store.leases()).await?;
    let renewed = sqlx::query(store.sql(sql::RENEW))
        .persistent(store.named)
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .execute(&mut *link)
        .await?;
    link.end().await?;
    if renewed.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
}

pub(super) async fn members(store: &PostgresStore) -> Result<Vec<Member>> {
    let mut link = store.link(store.leases()).await?;
    let members: Vec<(String, i16, i64)> = sqlx::query_as(store.sql(sql::MEMBERS))
        .persistent(store.named)
        .bind(i64::from(MAX_MEMBERS))
        .fetch_all(&mut *link)
        .await?;
    link.end().await?;
    Ok(members.into_iter().map(Member::stored).collect())
}

pub(super) async fn acquire_shards(
    store: &PostgresStore,
    take: &AcquireShards,
) -> Result<Vec<OwnedShard>> {
    let mut tx = store.begin_on(store.leases()).await?;
    sqlx::raw_sql(sql::BE_PATIENT).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).persistent(store.named).execute(&mut *tx).await?;
    remove_lapsed(store, &mut tx).await?;
    let entered: bool = sqlx::query_scalar(store.sql(sql::IS_OWNER))
        .persistent(store.named)
        .bind(take.owner.as_str())
        .fetch_one(&mut *tx)
        .await?;
    let mut taken = Vec::new();
    if entered {
        let rows = sqlx::query(store.sql(sql::TAKE))
            .persistent(store.named)
            .bind(take.owner.as_str())
            .bind(i64::from(take.most))
            .bind(take.held.iter().map(|shard| shard.0).collect::<Vec<_>>())
            .fetch_all(&mut *tx)
            .await?;
        for row in rows {
            let lapsed: bool = row.try_get("lapsed")?;
            taken.push(OwnedShard {
                shard: ShardId(row.try_get("shard")?),
                epoch: Epoch(row.try_get("epoch")?),
                origin: if lapsed { ShardOrigin::Lapsed } else { ShardOrigin::Free },
            });
        }
    }
    crash_point!("take.inside"?);
    tx.commit().await?;
    Ok(taken)
}

pub(super) async fn remove_lapsed(
    store: &PostgresStore,
    tx: &mut PooledTx<Postgres>,
) -> Result<()> {
    let ahead = sqlx::query_scalar(store.sql(sql::AHEAD)).persistent(store.named);
    let ahead: Vec<String> = ahead.fetch_all(&mut **tx).await?;
    if !ahead.is_empty() {
        let end = sqlx::query(store.sql(sql::END_ROW_LEASES)).persistent(store.named);
        end.bind(ahead).execute(&mut **tx).await?;
    }
    sqlx::query(store.sql(sql::REMOVE_LAPSED)).persistent(store.named).execute(&mut **tx).await?;
    Ok(())
}

pub(super) async fn release(
    store: &PostgresStore,
    owner: &OwnerId,
    holdings: &[OwnedShard],
) -> Result<u64> {
    let shards: Vec<i16> = holdings.iter().map(|holding| holding.shard.0).collect();
    let epochs: Vec<i64> = holdings.iter().map(|holding| holding.epoch.0).collect();
    let mut link = store.link(store.leases()).await?;
    let released = sqlx::query(store.sql(sql::RELEASE))
        .persistent(store.named)
        .bind(owner.as_str())
        .bind(shards)
        .bind(epochs)
        .execute(&mut *link)
        .await?;
    link.end().await?;
    Ok(released.rows_affected())
}

pub(super) async fn leave(store: &PostgresStore, owner: &OwnerId) -> Result<()> {
    let mut tx = store.begin_on(store.leases()).await?;
    sqlx::raw_sql(sql::BE_PATIENT).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).persistent(store.named).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::RELEASE_ALL))
        .persistent(store.named)
        .bind(owner.as_str())
        .execute(&mut *tx)
        .await?;
    sqlx::query(store.sql(sql::REMOVE_OWNER))
        .persistent(store.named)
        .bind(owner.as_str())
        .execute(&mut *tx)
        .await?;
    crash_point!("leave.inside"?);
    tx.commit().await?;
    Ok(())
}
