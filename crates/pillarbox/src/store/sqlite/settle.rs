//! Verdicts, written in batches behind the fence.

use std::collections::{BTreeMap, HashMap, HashSet};

use sqlx::Sqlite;

use super::{SqliteStore, sql};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId, Token};
use crate::pooled::PooledTx;
use crate::store::mark::Mark;
use crate::store::{Settle, Settled, Status};
use crate::verdict::Verdict;

pub(super) async fn settle(store: &SqliteStore, settle: &Settle) -> Result<Settled> {
    let mut batch = Batch::new(&settle.owner);
    for it in &settle.settlements {
        batch.add(
            Alike::new(it.shard, Some(it.epoch), it.token, &it.verdict, it.settled_by.as_deref()),
            it.seq,
        );
    }
    if batch.write_all(store).await? {
        return Ok(Settled { applied: batch.seqs, refused: Vec::new() });
    }
    let mut tx = store.begin().await?;
    let refused = refused(store, &mut tx, settle).await?;
    let applied = batch.write_some(store, &mut tx).await?;
    tx.commit().await?;
    Ok(Settled { applied, refused })
}

/// Shards that are not held at the newest epoch that is named for them.
async fn refused(
    store: &SqliteStore,
    tx: &mut PooledTx<Sqlite>,
    settle: &Settle,
) -> Result<Vec<ShardId>> {
    let mut newest: BTreeMap<ShardId, Epoch> = BTreeMap::new();
    for settlement in &settle.settlements {
        let epoch = newest.entry(settlement.shard).or_insert(settlement.epoch);
        *epoch = settlement.epoch.max(*epoch);
    }
    let mut refused = Vec::new();
    for (shard, epoch) in newest {
        let query = sqlx::query_scalar(store.sql(sql::IS_HELD)).bind(shard.0);
        let query = query.bind(settle.owner.as_str()).bind(epoch.0);
        let is_held: bool = query.fetch_one(&mut **tx).await?;
        if !is_held {
            refused.push(shard);
        }
    }
    Ok(refused)
}

/// Verdicts of one owner, those that say the same of their rows side by side.
///
/// A statement that answers with a number costs half of one that answers with its rows, and
/// nearly always all verdicts apply: what did not is only asked for when the number is short.
pub(super) struct Batch<'a> {
    owner: &'a OwnerId,
    pub(super) seqs: Vec<Seq>,
    groups: HashMap<Alike<'a>, Vec<Due>>,
}

/// A row, and in how many microseconds it is due again.
type Due = (Seq, i64);

/// What rows must have in common to share a statement.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Alike<'a> {
    shard: ShardId,
    /// `None` where the lease of the row is the fence.
    epoch: Option<Epoch>,
    token: Token,
    /// `None` deletes.
    mark: Option<Mark<'a>>,
    route: Option<&'a str>,
}

impl<'a> Alike<'a> {
    pub(super) fn new(
        shard: ShardId,
        epoch: Option<Epoch>,
        token: Token,
        verdict: &'a Verdict,
        route: Option<&'a str>,
    ) -> Self {
        let mark = (*verdict != Verdict::Delete).then(|| Mark::of(verdict));
        Self { shard, epoch, token, mark, route: mark.and(route) }
    }

    fn statement(&self) -> &'static str {
        match (self.epoch, self.mark) {
            (Some(_), None) => sql::SETTLE_DELETE,
            (Some(_), Some(_)) if self.is_put_off() => sql::SETTLE_PUT_OFF,
            (Some(_), Some(_)) => sql::SETTLE_END,
            (None, None) => sql::claim::SETTLE_ROWS_DELETE,
            (None, Some(_)) if self.is_put_off() => sql::claim::SETTLE_ROWS_PUT_OFF,
            (None, Some(_)) => sql::claim::SETTLE_ROWS_END,
        }
    }

    fn is_put_off(&self) -> bool {
        self.mark.is_some_and(|mark| mark.status == Status::Waiting)
    }

    fn is_failure(&self) -> bool {
        self.mark.is_some_and(|mark| mark.tried > 0)
    }
}

impl<'a> Batch<'a> {
    pub(super) fn new(owner: &'a OwnerId) -> Self {
        Self { owner, seqs: Vec::new(), groups: HashMap::new() }
    }

    pub(super) fn add(&mut self, mut alike: Alike<'a>, seq: Seq) {
        let delay = alike.mark.as_mut().map_or(0, |mark| std::mem::take(&mut mark.delay));
        self.seqs.push(seq);
        self.groups.entry(alike).or_default().push((seq, delay));
    }

    /// Writes all verdicts; nothing at all, and says so, when there is one that does not apply.
    pub(super) async fn write_all(&self, store: &SqliteStore) -> Result<bool> {
        let mut tx = store.begin().await?;
        for (alike, rows) in &self.groups {
            if self.write(store, &mut tx, alike, rows).await? < rows.len() {
                tx.rollback().await?;
                return Ok(false);
            }
        }
        let failed = self.groups.iter().filter(|(alike, _)| alike.is_failure());
        let failed: Vec<Seq> = failed.flat_map(|(_, rows)| seqs(rows)).copied().collect();
        audit(store, &mut tx, &failed).await?;
        crash_point!("settle.inside"?);
        tx.commit().await?;
        Ok(true)
    }

    /// Writes the verdicts that apply, and says which these are.
    pub(super) async fn write_some(
        &self,
        store: &SqliteStore,
        tx: &mut PooledTx<Sqlite>,
    ) -> Result<Vec<Seq>> {
        let (mut applied, mut failed) = (HashSet::new(), Vec::new());
        for (alike, rows) in &self.groups {
            let found = self.find(store, tx, alike, rows).await?;
            let is_found = |(seq, _): &&Due| found.contains(seq);
            let rows: Vec<Due> = rows.iter().filter(is_found).copied().collect();
            self.write(store, tx, alike, &rows).await?;
            failed.extend(found.iter().filter(|_| alike.is_failure()));
            applied.extend(found);
        }
        audit(store, tx, &failed).await?;
        Ok(self.seqs.iter().copied().filter(|seq| applied.remove(seq)).collect())
    }

    async fn find(
        &self,
        store: &SqliteStore,
        tx: &mut PooledTx<Sqlite>,
        alike: &Alike<'_>,
        rows: &[Due],
    ) -> Result<HashSet<Seq>> {
        let statement = match alike.epoch {
            Some(_) => sql::SETTLE_FINDS,
            None => sql::claim::SETTLE_ROWS_FINDS,
        };
        let mut query = sqlx::query_scalar(store.sql(statement))
            .bind(json(seqs(rows)))
            .bind(alike.shard.0)
            .bind(alike.token.0)
            .bind(self.owner.as_str());
        if let Some(epoch) = alike.epoch {
            query = query.bind(epoch.0);
        }
        let found: Vec<i64> = query.fetch_all(&mut **tx).await?;
        Ok(found.into_iter().map(Seq).collect())
    }

    async fn write(
        &self,
        store: &SqliteStore,
        tx: &mut PooledTx<Sqlite>,
        alike: &Alike<'_>,
        rows: &[Due],
    ) -> Result<usize> {
        let mut query = sqlx::query(store.sql(alike.statement()))
            .bind(if alike.is_put_off() { due(rows) } else { json(seqs(rows)) })
            .bind(alike.shard.0)
            .bind(alike.token.0)
            .bind(self.owner.as_str());
        if let Some(mark) = alike.mark {
            query = query.bind(mark.status.code()).bind(mark.tried);
            query = query.bind(mark.error).bind(alike.route);
        }
        if let Some(epoch) = alike.epoch {
            query = query.bind(epoch.0);
        }
        let written = query.execute(&mut **tx).await?.rows_affected();
        Ok(usize::try_from(written).unwrap_or(usize::MAX))
    }
}

/// What failed, and was written, leaves its lines in the audit.
async fn audit(store: &SqliteStore, tx: &mut PooledTx<Sqlite>, failed: &[Seq]) -> Result<()> {
    if !failed.is_empty() {
        let insert = sqlx::query(store.sql(sql::AUDIT_FAILURES)).bind(json(failed));
        insert.execute(&mut **tx).await?;
    }
    Ok(())
}

fn seqs(rows: &[Due]) -> impl Iterator<Item = &Seq> {
    rows.iter().map(|(seq, _)| seq)
}

/// Places, each with its time, as a statement unpacks them.
fn due(rows: &[Due]) -> String {
    let rows: Vec<[i64; 2]> = rows.iter().map(|(seq, delay)| [seq.0, *delay]).collect();
    serde_json::to_string(&rows).expect("numbers only")
}

/// Places as a statement unpacks them.
pub(super) fn json<'a>(seqs: impl IntoIterator<Item = &'a Seq>) -> String {
    let seqs: Vec<i64> = seqs.into_iter().map(|seq| seq.0).collect();
    serde_json::to_string(&seqs).expect("numbers only")
}
