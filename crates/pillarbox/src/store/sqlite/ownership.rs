//! Leases of relays, and the shards that they own.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{Row as _, Sqlite};

use super::{SqliteStore, sql::ownership as sql};
use crate::clock::micros;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Ownership, Renewal, ShardOrigin,
};

#[async_trait]
impl Ownership for SqliteStore {
    async fn join(&self, join: &Join) -> Result<()> {
        // In one transaction, so that the mode cannot be changed in between.
        let mut tx = self.begin().await?;
        self.mode(&mut tx).await?.refuse_other(join.mode)?;
        self.query(sql::JOIN)
            .bind(join.lease.owner.as_str())
            .bind(micros(join.lease.length))
            .bind(i16::try_from(join.lease.wants).unwrap_or(i16::MAX))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        let renewed = self
            .query(sql::RENEW)
            .bind(lease.owner.as_str())
            .bind(micros(lease.length))
            .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
            .execute(self.writer())
            .await?;
        if renewed.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
    }

    async fn members(&self) -> Result<Vec<Member>> {
        let members: Vec<(String, i16, i64)> =
            self.query_as(sql::MEMBERS).bind(i64::from(MAX_MEMBERS)).fetch_all(&self.pool).await?;
        Ok(members.into_iter().map(Member::stored).collect())
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        let mut tx = self.begin().await?;
        self.remove_lapsed(&mut tx).await?;
        let entered: bool = self
            .query_scalar(sql::IS_OWNER)
            .bind(acquire.owner.as_str())
            .fetch_one(&mut *tx)
            .await?;
        let mut taken = Vec::new();
        if entered {
            let rows = self
                .query(sql::FREE_SHARDS)
                .bind(i64::from(acquire.most))
                .bind(acquire.owner.as_str())
                .bind(
                    json!(acquire.owned.iter().map(|shard| shard.0).collect::<Vec<_>>())
                        .to_string(),
                )
                .fetch_all(&mut *tx)
                .await?;
            for row in rows {
                let (shard, epoch): (i16, i64) = (row.try_get("shard")?, row.try_get("epoch")?);
                self.query(sql::ACQUIRE_SHARDS)
                    .bind(acquire.owner.as_str())
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

    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64> {
        let mut tx = self.begin().await?;
        let mut released = 0;
        for owned in shards {
            let update = self
                .query(sql::RELEASE)
                .bind(owner.as_str())
                .bind(owned.shard.0)
                .bind(owned.epoch.0);
            released += update.execute(&mut *tx).await?.rows_affected();
        }
        tx.commit().await?;
        Ok(released)
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        let mut tx = self.begin().await?;
        self.query(sql::RELEASE_ALL).bind(owner.as_str()).execute(&mut *tx).await?;
        self.query(sql::REMOVE_OWNER).bind(owner.as_str()).execute(&mut *tx).await?;
        crash_point!("leave.inside"?);
        tx.commit().await?;
        Ok(())
    }
}

impl SqliteStore {
    pub(super) async fn remove_lapsed(&self, tx: &mut PooledTx<Sqlite>) -> Result<()> {
        let ahead: Vec<String> = self.query_scalar(sql::OWNERS_AHEAD).fetch_all(&mut **tx).await?;
        if !ahead.is_empty() {
            let end = self.query(sql::END_ROW_LEASES).bind(json!(ahead).to_string());
            end.execute(&mut **tx).await?;
        }
        self.query(sql::REMOVE_LAPSED).execute(&mut **tx).await?;
        Ok(())
    }
}
