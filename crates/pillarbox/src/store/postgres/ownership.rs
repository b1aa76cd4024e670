//! Leases of relays, and the shards that they own.

use async_trait::async_trait;
use sqlx::{Postgres, Row as _};

use super::{PostgresStore, schema::mode, sql::ownership as sql};
use crate::clock::micros;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Ownership, Renewal, ShardOrigin,
};

#[async_trait]
impl Ownership for PostgresStore {
    async fn join(&self, join: &Join) -> Result<()> {
        let lease = &join.lease;
        let mut tx = self.begin_on(self.leases()).await?;
        sqlx::raw_sql(sql::LIMIT_WAITS).execute(&mut *tx).await?;
        let setting = self.query(sql::LOCK_SETTING).fetch_one(&mut *tx).await?;
        mode(&setting)?.refuse_other(join.mode)?;
        self.query(sql::JOIN)
            .bind(lease.owner.as_str())
            .bind(micros(lease.length))
            .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        let query = self
            .query(sql::RENEW)
            .bind(lease.owner.as_str())
            .bind(micros(lease.length))
            .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX));
        let renewed = self.run(self.leases(), async |it| query.execute(it).await).await?;
        if renewed.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
    }

    async fn members(&self) -> Result<Vec<Member>> {
        let query = self.query_as(sql::MEMBERS).bind(i64::from(MAX_MEMBERS));
        let members = self.run(self.leases(), async |it| query.fetch_all(it).await).await?;
        Ok(members.into_iter().map(Member::stored).collect())
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        let owner = acquire.owner.as_str();
        let mut tx = self.begin_on(self.leases()).await?;
        sqlx::raw_sql(sql::LIMIT_WAITS).execute(&mut *tx).await?;
        self.query(sql::LOCK_SETTING).execute(&mut *tx).await?;
        self.remove_lapsed(&mut tx).await?;
        let is_owner = self.query_scalar(sql::IS_OWNER).bind(owner);
        let mut acquired = Vec::new();
        if is_owner.fetch_one(&mut *tx).await? {
            let owned: Vec<i16> = acquire.owned.iter().map(|shard| shard.0).collect();
            let take = self.query(sql::ACQUIRE_SHARDS).bind(owner).bind(i64::from(acquire.most));
            for row in take.bind(owned).fetch_all(&mut *tx).await? {
                let lapsed: bool = row.try_get("lapsed")?;
                acquired.push(OwnedShard {
                    shard: ShardId(row.try_get("shard")?),
                    epoch: Epoch(row.try_get("epoch")?),
                    origin: if lapsed { ShardOrigin::Lapsed } else { ShardOrigin::Free },
                });
            }
        }
        crash_point!("take.inside"?);
        tx.commit().await?;
        Ok(acquired)
    }

    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64> {
        let query = self
            .query(sql::RELEASE)
            .bind(owner.as_str())
            .bind(shards.iter().map(|owned| owned.shard.0).collect::<Vec<_>>())
            .bind(shards.iter().map(|owned| owned.epoch.0).collect::<Vec<_>>());
        let released = self.run(self.leases(), async |it| query.execute(it).await).await?;
        Ok(released.rows_affected())
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        let mut tx = self.begin_on(self.leases()).await?;
        sqlx::raw_sql(sql::LIMIT_WAITS).execute(&mut *tx).await?;
        self.query(sql::LOCK_SETTING).execute(&mut *tx).await?;
        self.query(sql::RELEASE_ALL).bind(owner.as_str()).execute(&mut *tx).await?;
        self.query(sql::REMOVE_OWNER).bind(owner.as_str()).execute(&mut *tx).await?;
        crash_point!("leave.inside"?);
        tx.commit().await?;
        Ok(())
    }
}

impl PostgresStore {
    /// Removes owners whose lease has lapsed. Leases on rows end where a clock that was ahead wrote
    /// them.
    pub(super) async fn remove_lapsed(&self, tx: &mut PooledTx<Postgres>) -> Result<()> {
        let ahead: Vec<String> = self.query_scalar(sql::OWNERS_AHEAD).fetch_all(&mut **tx).await?;
        if !ahead.is_empty() {
            self.query(sql::END_ROW_LEASES).bind(ahead).execute(&mut **tx).await?;
        }
        self.query(sql::REMOVE_LAPSED).execute(&mut **tx).await?;
        Ok(())
    }
}
