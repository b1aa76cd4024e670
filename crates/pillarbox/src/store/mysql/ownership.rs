//! Leases of relays, and the shards that they own.

use async_trait::async_trait;
use serde_json::json;
use sqlx::{MySql, Row as _};

use super::{MysqlStore, schema::mode, sql::ownership as sql};
use crate::clock::micros;
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, OwnerId, ShardId};
use crate::pooled::PooledTx;
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Ownership, Renewal, ShardOrigin,
};

#[async_trait]
impl Ownership for MysqlStore {
    async fn join(&self, join: &Join) -> Result<()> {
        let lease = &join.lease;
        let mut tx = self.begin_move().await?;
        let setting = self.query(sql::LOCK_SETTING).fetch_one(&mut *tx).await?;
        mode(&setting)?.refuse_other(join.mode)?;
        self.query(sql::JOIN)
            .bind(lease.owner.as_str())
            .bind(micros(lease.length))
            .bind(micros(lease.length))
            .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
            .execute(&mut *tx)
            .await?;
        tx.commit().await?;
        Ok(())
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        // sqlx asks for the rows found, not only those changed: a renewal to the same moment counts.
        let query = self
            .query(sql::RENEW)
            .bind(micros(lease.length))
            .bind(micros(lease.length))
            .bind(i16::try_from(lease.wants).unwrap_or(i16::MAX))
            .bind(lease.owner.as_str());
        let renewed = self.run(&self.leases, async |it| query.execute(it).await).await?;
        if renewed.rows_affected() == 0 { Ok(Renewal::Lost) } else { Ok(Renewal::Kept) }
    }

    async fn members(&self) -> Result<Vec<Member>> {
        let query = self.query_as(sql::MEMBERS).bind(i64::from(MAX_MEMBERS));
        let members: Vec<(String, i16, i64)> =
            self.run(&self.leases, async |it| query.fetch_all(it).await).await?;
        Ok(members.into_iter().map(Member::stored).collect())
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        let mut tx = self.begin_move().await?;
        self.query(sql::LOCK_SETTING).execute(&mut *tx).await?;
        self.remove_lapsed(&mut tx).await?;
        let entered: bool = self
            .query_scalar(sql::IS_OWNER)
            .bind(acquire.owner.as_str())
            .fetch_one(&mut *tx)
            .await?;
        let mut free = Vec::new();
        if entered {
            let rows = self
                .query(sql::FREE_SHARDS)
                .bind(acquire.owner.as_str())
                .bind(acquire.owner.as_str())
                .bind(
                    json!(acquire.owned.iter().map(|shard| shard.0).collect::<Vec<_>>())
                        .to_string(),
                )
                .bind(i64::from(acquire.most))
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
            let taken = self
                .query(sql::ACQUIRE_SHARDS)
                .bind(list(&free))
                .bind(acquire.owner.as_str())
                .execute(&mut *tx)
                .await?;
            if taken.rows_affected() != free.len() as u64 {
                let message = "a shard moved while it was taken: someone writes to outbox_shard";
                return Err(Error::new(ErrorKind::Unavailable, message));
            }
        }
        crash_point!("take.inside"?);
        tx.commit().await?;
        let next = |owned: OwnedShard| OwnedShard { epoch: Epoch(owned.epoch.0 + 1), ..owned };
        Ok(free.into_iter().map(next).collect())
    }

    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64> {
        let mut shards = shards.to_vec();
        shards.sort_unstable_by_key(|owned| owned.shard);
        let query = self.query(sql::RELEASE).bind(list(&shards)).bind(owner.as_str());
        let released = self.run(&self.leases, async |it| query.execute(it).await).await?;
        Ok(released.rows_affected())
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        let mut tx = self.begin_move().await?;
        self.query(sql::LOCK_SETTING).execute(&mut *tx).await?;
        self.query(sql::RELEASE_ALL).bind(owner.as_str()).execute(&mut *tx).await?;
        self.query(sql::REMOVE_OWNER).bind(owner.as_str()).execute(&mut *tx).await?;
        crash_point!("leave.inside"?);
        tx.commit().await?;
        Ok(())
    }
}

impl MysqlStore {
    pub(super) async fn remove_lapsed(&self, tx: &mut PooledTx<MySql>) -> Result<()> {
        let ahead: Vec<String> = self.query_scalar(sql::OWNERS_AHEAD).fetch_all(&mut **tx).await?;
        if !ahead.is_empty() {
            let rows = self.query_scalar(sql::LEASES_AHEAD).bind(json!(ahead).to_string());
            let rows: Vec<i64> = rows.fetch_all(&mut **tx).await?;
            let end = self.query(sql::END_ROW_LEASES).bind(json!(rows).to_string());
            end.execute(&mut **tx).await?;
        }
        self.query(sql::REMOVE_LAPSED).execute(&mut **tx).await?;
        Ok(())
    }
}

/// Shards and epochs as the statements unpack them.
fn list(shards: &[OwnedShard]) -> String {
    let pairs = shards.iter().map(|owned| json!([owned.shard.0, owned.epoch.0]));
    json!(pairs.collect::<Vec<_>>()).to_string()
}
