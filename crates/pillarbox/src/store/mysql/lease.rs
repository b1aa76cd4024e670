//! Who is alive, and who holds which shard.

use serde_json::json;
use sqlx::{MySql, Row as _};

use super::{MysqlStore, migrate::mode, sql};
use crate::clock::micros;
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Renewal, ShardOrigin,
};

pub(super) async fn join(store: &MysqlStore, join: &Join) -> Result<()> {
    let lease = &join.lease;
    let mut tx = store.begin_move().await?;
    let setting = sqlx::query(store.sql(sql::LOCK_MOVES)).fetch_one(&mut *tx).await?;
    mode(&setting)?.refuse_other(join.mode)?;
    sqlx::query(store.sql(sql::JOIN))
        .bind(lease.owner.as_str())
        .bind(micros(lease.length))
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .execute(&mut *tx)
        .await?;
    tx.commit().await?;
    Ok(())
}

/// sqlx asks for the rows found, not only those changed: a renewal to the same moment counts.
pub(super) async fn renew(store: &MysqlStore, lease: &Lease) -> Result<Renewal> {
    let mut call = store.lease_call().await?;
    let renewed = sqlx::query(store.sql(sql::RENEW))
        .bind(micros(lease.length))
        .bind(micros(lease.length))
        .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
        .bind(lease.owner.as_str())
        .execute(&mut *call)
        .await;
    call.end();
    if renewed?.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
}

pub(super) async fn members(store: &MysqlStore) -> Result<Vec<Member>> {
    let mut call = store.lease_call().await?;
    let members: Result<Vec<(String, i16, i64)>, _> = sqlx::query_as(store.sql(sql::MEMBERS))
        .bind(i64::from(MAX_MEMBERS))
        .fetch_all(&mut *call)
        .await;
    call.end();
    Ok(members?.into_iter().map(Member::stored).collect())
}

pub(super) async fn acquire_shards(
    store: &MysqlStore,
    take: &AcquireShards,
) -> Result<Vec<OwnedShard>> {
    let mut tx = store.begin_move().await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).execute(&mut *tx).await?;
    remove_lapsed(store, &mut tx).await?;
    let entered: bool = sqlx::query_scalar(store.sql(sql::IS_OWNER))
        .bind(take.owner.as_str())
        .fetch_one(&mut *tx)
        .await?;
    let mut free = Vec::new();
    if entered {
        let rows = sqlx::query(store.sql(sql::FREE))
            .bind(take.owner.as_str())
            .bind(take.owner.as_str())
            .bind(json!(take.held.iter().map(|shard| shard.0).collect::<Vec<_>>()).to_string())
            .bind(i64::from(take.most))
            .fetch_all(&mut *tx)
            .await?;
        for row in rows {
            let lapsed: bool = row.try_get("lapsed")?;
            free.push(OwnedShard {
                shard: ShardId(row.try_get("shard")?),
                epoch: Epoch(row.try_get("epoch")?),
                origin: if lapsed { ShardOrigin::Lapsed } else { ShardOrigin::Free },
            });
        }
    }
    if !free.is_empty() {
        let taken = sqlx::query(store.sql(sql::TAKE))
            .bind(list(&free))
            .bind(take.owner.as_str())
            .execute(&mut *tx)
            .await?;
        if taken.rows_affected() != free.len() as u64 {
            let message = "a shard moved while it was taken: someone writes to outbox_shard";
            return Err(Error::new(ErrorKind::Unavailable, message));
        }
    }
    crash_point!("take.inside"?);
    tx.commit().await?;
    let next = |holding: OwnedShard| OwnedShard { epoch: Epoch(holding.epoch.0 + 1), ..holding };
    Ok(free.into_iter().map(next).collect())
}

pub(super) async fn remove_lapsed(store: &MysqlStore, tx: &mut PooledTx<MySql>) -> Result<()> {
    let ahead: Vec<String> = sqlx::query_scalar(store.sql(sql::AHEAD)).fetch_all(&mut **tx).await?;
    if !ahead.is_empty() {
        let rows = sqlx::query_scalar(store.sql(sql::ROWS_AHEAD)).bind(json!(ahead).to_string());
        let rows: Vec<i64> = rows.fetch_all(&mut **tx).await?;
        let end = sqlx::query(store.sql(sql::END_ROW_LEASES)).bind(json!(rows).to_string());
        end.execute(&mut **tx).await?;
    }
    sqlx::query(store.sql(sql::REMOVE_LAPSED)).execute(&mut **tx).await?;
    Ok(())
}

pub(super) async fn release(
    store: &MysqlStore,
    owner: &OwnerId,
    holdings: &[OwnedShard],
) -> Result<u64> {
    let mut holdings = holdings.to_vec();
    holdings.sort_unstable_by_key(|holding| holding.shard);
    let mut call = store.lease_call().await?;
    let released = sqlx::query(store.sql(sql::RELEASE))
        .bind(list(&holdings))
        .bind(owner.as_str())
        .execute(&mut *call)
        .await;
    call.end();
    Ok(released?.rows_affected())
}

pub(super) async fn leave(store: &MysqlStore, owner: &OwnerId) -> Result<()> {
    let mut tx = store.begin_move().await?;
    sqlx::query(store.sql(sql::LOCK_MOVES)).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::RELEASE_ALL)).bind(owner.as_str()).execute(&mut *tx).await?;
    sqlx::query(store.sql(sql::REMOVE_OWNER)).bind(owner.as_str()).execute(&mut *tx).await?;
    crash_point!("leave.inside"?);
    tx.commit().await?;
    Ok(())
}

/// Shards and epochs as the statements unpack them.
fn list(holdings: &[OwnedShard]) -> String {
    let pairs = holdings.iter().map(|holding| json!([holding.shard.0, holding.epoch.0]));
    json!(pairs.collect::<Vec<_>>()).to_string()
}
