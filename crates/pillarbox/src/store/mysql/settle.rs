//! Verdicts, written in batches behind the fence.

use std::collections::{BTreeMap, HashSet};

use serde_json::{Value, json};
use sqlx::MySql;

use super::{MysqlStore, sql};
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId};
use crate::pooled::PooledTx;
use crate::store::mark::Mark;
use crate::store::{Settle, Settled, Settlement};
use crate::verdict::Verdict;

/// Far below what any server takes in one packet.
const MOST_BYTES: usize = 1024 * 1024;

/// Nearly always every verdict applies, and the number of rows says so. If not, the same again,
/// with a look at which.
pub(super) async fn settle(store: &MysqlStore, settle: &Settle) -> Result<Settled> {
    if settle.settlements.is_empty() {
        return Ok(Settled::default());
    }
    match settle_as(store, settle, Look::After).await? {
        Some(settled) => Ok(settled),
        None => Ok(settle_as(store, settle, Look::First).await?.unwrap_or_default()),
    }
}

/// When to find out which verdicts apply.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Look {
    /// By the number of rows written.
    After,
    /// By a statement of its own.
    First,
}

/// `None` when fewer rows were written than verdicts given, and nobody knows which.
async fn settle_as(store: &MysqlStore, settle: &Settle, look: Look) -> Result<Option<Settled>> {
    let mut tx = store.begin().await?;
    let fences = fences(settle);
    let held = lock(store, &mut tx, &settle.owner, &fences).await?;
    let is_held =
        |it: &&Settlement| held.contains(&it.shard) && fences.get(&it.shard) == Some(&it.epoch);
    let mut settlements: Vec<&Settlement> = settle.settlements.iter().filter(is_held).collect();
    if look == Look::First {
        let mut applicable = pick(store, &mut tx, &settlements).await?;
        // Each once: of two verdicts on one row the first counts.
        settlements.retain(|it| applicable.remove(&it.seq));
    }
    let (deleted, marked): (Vec<&Settlement>, Vec<&Settlement>) =
        settlements.iter().partition(|it| it.verdict == Verdict::Delete);
    let mut written = 0;
    for rows in lists(deleted.iter().map(|it| fence_of(it))) {
        written += write(store, &mut tx, sql::SETTLE_DELETE, rows).await?;
    }
    for rows in lists(marked.iter().map(|it| mark(it))) {
        written += write(store, &mut tx, sql::SETTLE_MARK, rows).await?;
    }
    if written != settlements.len() as u64 {
        tx.rollback().await?;
        return Ok(None);
    }
    tx.commit().await?;
    let refused = fences.keys().filter(|shard| !held.contains(shard)).copied().collect();
    Ok(Some(Settled { applied: settlements.iter().map(|it| it.seq).collect(), refused }))
}

/// The newest epoch named for each shard. A verdict of another one is stale by itself.
fn fences(settle: &Settle) -> BTreeMap<ShardId, Epoch> {
    let mut fences = BTreeMap::new();
    for settlement in &settle.settlements {
        let newest = fences.entry(settlement.shard).or_insert(settlement.epoch);
        *newest = settlement.epoch.max(*newest);
    }
    fences
}

/// Locks the shards that are still held at these epochs, until the end of the transaction.
async fn lock(
    store: &MysqlStore,
    tx: &mut PooledTx<MySql>,
    owner: &OwnerId,
    fences: &BTreeMap<ShardId, Epoch>,
) -> Result<HashSet<ShardId>> {
    let list: Value = fences.iter().map(|(shard, epoch)| json!([shard.0, epoch.0])).collect();
    let shards: Vec<i16> = sqlx::query_scalar(store.sql(sql::FENCE))
        .bind(list.to_string())
        .bind(owner.as_str())
        .fetch_all(&mut **tx)
        .await?;
    Ok(shards.into_iter().map(ShardId).collect())
}

async fn pick(
    store: &MysqlStore,
    tx: &mut PooledTx<MySql>,
    settlements: &[&Settlement],
) -> Result<HashSet<Seq>> {
    let mut applicable = HashSet::new();
    for list in lists(settlements.iter().map(|it| fence_of(it))) {
        let seqs: Vec<i64> =
            sqlx::query_scalar(store.sql(sql::SETTLE_PICK)).bind(list).fetch_all(&mut **tx).await?;
        applicable.extend(seqs.into_iter().map(Seq));
    }
    Ok(applicable)
}

async fn write(
    store: &MysqlStore,
    tx: &mut PooledTx<MySql>,
    statement: &'static str,
    rows: String,
) -> Result<u64> {
    let written = sqlx::query(store.sql(statement)).bind(rows).execute(&mut **tx).await?;
    Ok(written.rows_affected())
}

/// JSON arrays of these, none of them too large for one statement.
fn lists(rows: impl Iterator<Item = Value>) -> Vec<String> {
    let mut lists: Vec<String> = Vec::new();
    for row in rows {
        let row = row.to_string();
        match lists.last_mut() {
            Some(list) if list.len() + row.len() < MOST_BYTES => {
                list.push(',');
                list.push_str(&row);
            }
            _ => lists.push(format!("[{row}")),
        }
    }
    lists.iter_mut().for_each(|list| list.push(']'));
    lists
}

fn fence_of(settlement: &Settlement) -> Value {
    json!([settlement.seq.0, settlement.token.0])
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
