//! Verdicts, written in batches behind the fence.

use std::collections::BTreeMap;

use serde_json::{Value, json};
use sqlx::Sqlite;

use super::{SqliteStore, sql};
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId};
use crate::pooled::PooledTx;
use crate::store::mark::Mark;
use crate::store::{Settle, Settled, Settlement};
use crate::verdict::Verdict;

pub(super) async fn settle(store: &SqliteStore, settle: &Settle) -> Result<Settled> {
    let mut tx = store.begin().await?;
    let fence = fence(store, &mut tx, settle).await?;
    let held = |it: &&Settlement| fence.get(&it.shard) == Some(&(it.epoch, true));
    let (deleted, marked): (Vec<&Settlement>, Vec<&Settlement>) =
        settle.settlements.iter().filter(held).partition(|it| it.verdict == Verdict::Delete);
    let mut applied = Vec::new();
    if !deleted.is_empty() {
        let rows = deleted.iter().map(|it| json!([it.seq.0, it.token.0])).collect();
        applied.extend(write(store, &mut tx, sql::SETTLE_DELETE, rows).await?);
    }
    if !marked.is_empty() {
        let rows = marked.iter().map(|it| mark(it)).collect();
        applied.extend(write(store, &mut tx, sql::SETTLE_MARK, rows).await?);
    }
    tx.commit().await?;
    let refused = fence.iter().filter(|(_, (_, held))| !held).map(|(shard, _)| *shard).collect();
    Ok(Settled { applied, refused })
}

/// The newest epoch named for each shard, and whether the shard is held at it.
async fn fence(
    store: &SqliteStore,
    tx: &mut PooledTx<Sqlite>,
    settle: &Settle,
) -> Result<BTreeMap<ShardId, (Epoch, bool)>> {
    let mut fence = BTreeMap::new();
    for settlement in &settle.settlements {
        let (newest, _) = fence.entry(settlement.shard).or_insert((settlement.epoch, false));
        *newest = settlement.epoch.max(*newest);
    }
    for (shard, (epoch, held)) in &mut fence {
        *held = is_held(store, tx, &settle.owner, *shard, *epoch).await?;
    }
    Ok(fence)
}

async fn is_held(
    store: &SqliteStore,
    tx: &mut PooledTx<Sqlite>,
    owner: &OwnerId,
    shard: ShardId,
    epoch: Epoch,
) -> Result<bool> {
    let held = sqlx::query_scalar(store.sql(sql::FENCE))
        .bind(shard.0)
        .bind(owner.as_str())
        .bind(epoch.0)
        .fetch_one(&mut **tx)
        .await?;
    Ok(held)
}

async fn write(
    store: &SqliteStore,
    tx: &mut PooledTx<Sqlite>,
    statement: &'static str,
    rows: Vec<Value>,
) -> Result<impl Iterator<Item = Seq>> {
    let seqs: Vec<i64> = sqlx::query_scalar(store.sql(statement))
        .bind(Value::Array(rows).to_string())
        .fetch_all(&mut **tx)
        .await?;
    Ok(seqs.into_iter().map(Seq))
}

/// A verdict as the statement unpacks it.
fn mark(settlement: &Settlement) -> Value {
    let mark = Mark::of(&settlement.verdict);
    json!([
        settlement.seq.0,
        settlement.token.0,
        mark.status.code(),
        mark.tried,
        mark.delay,
        mark.error,
        settlement.settled_by,
    ])
}
