//! Heads of keys: one row of each, however many wait behind it.

use sqlx::{MySql, Result};

use super::{MysqlStore, sql::events as sql};
use crate::id::{Seq, ShardId};
use crate::pooled::PooledTx;
use crate::store::ReadHeads;

impl MysqlStore {
    pub(super) async fn newest_of(&self, tx: &mut PooledTx<MySql>, shard: ShardId) -> Result<Seq> {
        let newest = self.query_scalar(sql::NEWEST).bind(shard.0);
        let newest: Option<i64> = newest.fetch_optional(&mut **tx).await?;
        Ok(newest.map_or(Seq::START, Seq))
    }

    /// Looks at as many rows as heads are missing, and goes on behind the last key seen.
    pub(super) async fn keyed_heads(
        &self,
        tx: &mut PooledTx<MySql>,
        read: &ReadHeads,
        after: &str,
    ) -> Result<Vec<i64>> {
        let (mut after, limit) = (after.to_owned(), i64::from(read.limit));
        let (mut found, mut missing) = (Vec::new(), limit);
        while missing > 0 {
            let look = self.query_as(sql::READ_HEADS_FIND).bind(read.shard.0).bind(&after);
            let heads: Vec<(i64, String, i64)> = look.bind(missing).fetch_all(&mut **tx).await?;
            let passed: i64 = heads.iter().map(|(.., passed)| passed).sum();
            found.extend(heads.iter().map(|(seq, ..)| *seq));
            let Some((_, last, _)) = heads.into_iter().last().filter(|_| passed == missing) else {
                break;
            };
            (after, missing) = (last, limit - found.len() as i64);
        }
        Ok(found)
    }

    pub(super) async fn keyless_heads(
        &self,
        tx: &mut PooledTx<MySql>,
        read: &ReadHeads,
        after: Seq,
    ) -> Result<Vec<i64>> {
        let look = self.query_scalar(sql::READ_KEYLESS_FIND).bind(read.shard.0);
        let look = look.bind(after.0).bind(read.up_to.0).bind(i64::from(read.limit));
        look.fetch_all(&mut **tx).await
    }
}
