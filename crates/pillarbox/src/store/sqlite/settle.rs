//! Verdicts, written in batches behind the fence.

use std::collections::{HashMap, HashSet};

use sqlx::Sqlite;

use super::{SqliteStore, sql};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId, Token};
use crate::pooled::PooledTx;
use crate::store::Status;
use crate::store::mark::Mark;
use crate::verdict::Verdict;

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
            (Some(_), None) => sql::events::SETTLE_DELETE,
            (Some(_), Some(_)) if self.is_waiting() => sql::events::SETTLE_WAITING,
            (Some(_), Some(_)) => sql::events::SETTLE_FINAL,
            (None, None) => sql::claims::SETTLE_ROWS_DELETE,
            (None, Some(_)) if self.is_waiting() => sql::claims::SETTLE_ROWS_WAITING,
            (None, Some(_)) => sql::claims::SETTLE_ROWS_FINAL,
        }
    }

    fn is_waiting(&self) -> bool {
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
            Some(_) => sql::events::SETTLE_FIND,
            None => sql::claims::SETTLE_ROWS_FIND,
        };
        let mut query = store
            .query_scalar(statement)
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
            .bind(if alike.is_waiting() { due(rows) } else { json(seqs(rows)) })
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
        let insert = store.query(sql::events::AUDIT_FAILURES).bind(json(failed));
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
