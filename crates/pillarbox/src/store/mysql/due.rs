//! Waiting rows whose time has come.

use std::{sync::Arc, time::Duration};

use serde_json::Value;
use sqlx::AssertSqlSafe;

use super::read::parts;
use super::{MysqlStore, sql::events as sql};
use crate::clock::from_micros;
use crate::error::Result;
use crate::id::{Seq, ShardId};
use crate::store::DueRow;

/// As many rows as are looked for in a shard, however few are wanted.
const FEW: usize = 16;

impl MysqlStore {
    /// In how long each of the shards has a row that is due, as far as one waits there.
    pub(super) async fn next_due(&self, shards: &[ShardId]) -> Result<Vec<(ShardId, Duration)>> {
        let list: Value = shards.iter().map(|shard| shard.0).collect();
        let query = self.query_as(sql::NEXT_DUE).bind(list.to_string());
        let waits: Vec<(i16, i64)> =
            self.run(&self.relay, async |it| query.fetch_all(it).await).await?;
        Ok(waits.into_iter().map(|(shard, wait)| (ShardId(shard), from_micros(wait))).collect())
    }

    /// Those that have been due for longest; of each shard no more than twice its share, so that the
    /// look stays as small as the limit, however many shards there are.
    pub(super) async fn find_due(&self, shards: &[ShardId], limit: usize) -> Result<Vec<i64>> {
        let share = (2 * limit.div_ceil(shards.len())).max(FEW).min(limit);
        let part = self.tables.render(sql::FIND_DUE);
        let (text, parts) = parts(&part, "\nunion all", shards, ShardId(-1));
        let text = format!("select seq from ({text}\n) due order by moment, seq limit ?");
        let mut query = sqlx::query_scalar(AssertSqlSafe(text));
        for shard in parts {
            query = query.bind(shard.0).bind(i64::try_from(share).unwrap_or(i64::MAX));
        }
        let query = query.bind(i64::try_from(limit).unwrap_or(i64::MAX));
        self.run(&self.relay, async |it| query.fetch_all(it).await).await
    }

    pub(super) async fn promote_due(&self, found: &[i64]) -> Result<Vec<DueRow>> {
        let mut seqs = found.to_vec();
        // In order, as everyone who locks rows.
        seqs.sort_unstable();
        let mut tx = self.begin().await?;
        let pick = self.query_as(sql::PROMOTE_PICK).bind(Value::from(seqs).to_string());
        let rows: Vec<(i64, i16, Option<String>)> = pick.fetch_all(&mut *tx).await?;
        let seqs: Value = rows.iter().map(|(seq, ..)| *seq).collect();
        self.query(sql::PROMOTE).bind(seqs.to_string()).execute(&mut *tx).await?;
        tx.commit().await?;
        let row = |(seq, shard, key): (i64, i16, Option<String>)| DueRow {
            shard: ShardId(shard),
            seq: Seq(seq),
            key: key.map(Arc::from),
        };
        Ok(rows.into_iter().map(row).collect())
    }
}
