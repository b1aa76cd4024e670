//! Verdicts, written in batches behind the fence.

use std::collections::BTreeMap;

use sqlx::{PgExecutor, Row as _, postgres::PgRow};

use super::{PostgresStore, sql};
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId};
use crate::store::mark::Mark;
use crate::store::{Settle, Settled, Settlement};
use crate::verdict::Verdict;

pub(super) async fn settle(store: &PostgresStore, settle: &Settle) -> Result<Settled> {
    let mut settlements: Vec<&Settlement> = settle.settlements.iter().collect();
    // In order, as everyone who locks rows: so none waits in a circle.
    settlements.sort_by_key(|settlement| settlement.seq);
    let (deleted, marked): (Vec<&Settlement>, Vec<&Settlement>) =
        settlements.into_iter().partition(|settlement| settlement.verdict == Verdict::Delete);
    if marked.is_empty() {
        let mut link = store.link(&store.pool).await?;
        let deleted = delete(store, &mut *link, &settle.owner, &deleted).await?;
        link.end().await?;
        return Ok(deleted);
    }
    if deleted.is_empty() {
        let mut link = store.link(&store.pool).await?;
        let marked = mark(store, &mut *link, &settle.owner, &marked).await?;
        link.end().await?;
        return Ok(marked);
    }
    let mut tx = store.begin().await?;
    let mut settled = delete(store, &mut *tx, &settle.owner, &deleted).await?;
    let more = mark(store, &mut *tx, &settle.owner, &marked).await?;
    tx.commit().await?;
    settled.applied.extend(more.applied);
    settled.refused.extend(more.refused);
    settled.refused.sort_unstable();
    settled.refused.dedup();
    Ok(settled)
}

async fn delete(
    store: &PostgresStore,
    executor: impl PgExecutor<'_>,
    owner: &OwnerId,
    settlements: &[&Settlement],
) -> Result<Settled> {
    let columns = Columns::of(settlements);
    let row = sqlx::query(store.sql(sql::SETTLE_DELETE))
        .persistent(store.named)
        .bind(owner.as_str())
        .bind(&columns.fence_shards)
        .bind(&columns.fence_epochs)
        .bind(&columns.shards)
        .bind(&columns.seqs)
        .bind(&columns.tokens)
        .fetch_one(executor)
        .await?;
    columns.settled(&row)
}

async fn mark(
    store: &PostgresStore,
    executor: impl PgExecutor<'_>,
    owner: &OwnerId,
    settlements: &[&Settlement],
) -> Result<Settled> {
    let columns = Columns::of(settlements);
    let marks = Marks::of(settlements.iter().map(|it| (&it.verdict, it.settled_by.as_deref())));
    let row = sqlx::query(store.sql(sql::SETTLE_MARK))
        .persistent(store.named)
        .bind(owner.as_str())
        .bind(&columns.fence_shards)
        .bind(&columns.fence_epochs)
        .bind(&columns.shards)
        .bind(&columns.seqs)
        .bind(&columns.tokens)
        .bind(marks.statuses)
        .bind(marks.tried)
        .bind(marks.delays)
        .bind(marks.errors)
        .bind(marks.routes)
        .fetch_one(executor)
        .await?;
    columns.settled(&row)
}

/// Verdicts, column by column.
pub(super) struct Marks<'a> {
    pub(super) statuses: Vec<i16>,
    pub(super) tried: Vec<i32>,
    pub(super) delays: Vec<i64>,
    pub(super) errors: Vec<Option<&'a str>>,
    pub(super) routes: Vec<Option<&'a str>>,
}

impl<'a> Marks<'a> {
    pub(super) fn of(verdicts: impl Iterator<Item = (&'a Verdict, Option<&'a str>)>) -> Self {
        let (marks, routes): (Vec<Mark<'a>>, Vec<Option<&'a str>>) =
            verdicts.map(|(verdict, route)| (Mark::of(verdict), route)).unzip();
        Self {
            statuses: marks.iter().map(|mark| mark.status.code()).collect(),
            tried: marks.iter().map(|mark| mark.tried).collect(),
            delays: marks.iter().map(|mark| mark.delay).collect(),
            errors: marks.iter().map(|mark| mark.error).collect(),
            routes,
        }
    }
}

/// What both statements bind, column by column.
struct Columns {
    fence_shards: Vec<i16>,
    fence_epochs: Vec<i64>,
    shards: Vec<i16>,
    seqs: Vec<i64>,
    tokens: Vec<i32>,
}

impl Columns {
    /// A verdict of another epoch than the shard's newest in this batch is stale by itself: its
    /// shard binds as -1, which no fence lets through.
    fn of(settlements: &[&Settlement]) -> Self {
        let mut fences = BTreeMap::new();
        for settlement in settlements {
            let newest = fences.entry(settlement.shard.0).or_insert(settlement.epoch.0);
            *newest = settlement.epoch.0.max(*newest);
        }
        let shard = |it: &&Settlement| match fences.get(&it.shard.0) {
            Some(epoch) if *epoch == it.epoch.0 => it.shard.0,
            _ => -1,
        };
        Self {
            shards: settlements.iter().map(shard).collect(),
            seqs: settlements.iter().map(|it| it.seq.0).collect(),
            tokens: settlements.iter().map(|it| it.token.0).collect(),
            fence_shards: fences.keys().copied().collect(),
            fence_epochs: fences.values().copied().collect(),
        }
    }

    fn settled(&self, row: &PgRow) -> Result<Settled> {
        let locked: Vec<i16> = row.try_get("locked")?;
        let settled: Option<Vec<i64>> = row.try_get("settled")?;
        let settled = settled.unwrap_or_else(|| self.seqs.clone());
        let refused = self.fence_shards.iter().filter(|shard| !locked.contains(shard));
        Ok(Settled {
            applied: settled.into_iter().map(Seq).collect(),
            refused: refused.map(|shard| ShardId(*shard)).collect(),
        })
    }
}
