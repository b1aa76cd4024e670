//! Verdicts on rows that another transaction has locked: kept until the rows are free.

use std::time::Duration;

use tokio::task::Id;
use tokio::time::Instant;

use crate::error::{ErrorKind, Result};
use crate::id::Seq;
use crate::relay::SECOND;
use crate::relay::fetch::shard_reader::no_answer;
use crate::relay::number_map::NumberSet;
use crate::store::{RowLease, Store};

/// How often it is asked whether the rows are free.
const PAUSE: Duration = SECOND;

/// A verdict with its row.
pub(crate) trait OnRow {
    fn row(&self) -> RowLease;
}

#[derive(Debug)]
pub(crate) struct Locked<T> {
    verdicts: Vec<T>,
    /// The question that was asked last, while it is not answered.
    asking: Option<Id>,
    ask_at: Option<Instant>,
}

impl<T> Default for Locked<T> {
    fn default() -> Self {
        Self { verdicts: Vec::new(), asking: None, ask_at: None }
    }
}

impl<T: OnRow> Locked<T> {
    pub(crate) fn push(&mut self, verdict: T, now: Instant) {
        self.ask_at.get_or_insert(now + PAUSE);
        self.verdicts.push(verdict);
    }

    pub(crate) fn len(&self) -> usize {
        self.verdicts.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.verdicts.iter()
    }

    /// When to ask next.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }

    /// Asks which rows are still locked, if it is time.
    pub(crate) fn ask(&mut self, now: Instant, spawn: impl FnOnce(Vec<RowLease>) -> Id) {
        if self.ask_at.is_some_and(|at| at <= now) {
            self.ask_at = None;
            self.asking = Some(spawn(self.verdicts.iter().map(T::row).collect()));
        }
    }

    /// Whether this task asks.
    pub(crate) fn is_asked_by(&self, id: Id) -> bool {
        self.asking == Some(id)
    }

    /// Takes the verdicts out whose rows are free; without an answer, none.
    pub(crate) fn answered(&mut self, still: Result<Vec<Seq>>, now: Instant) -> Vec<T> {
        self.asking = None;
        let mut free = Vec::new();
        if let Ok(still) = still {
            let still: NumberSet<Seq> = still.into_iter().collect();
            free.extend(self.verdicts.extract_if(.., |it| !still.contains(&it.row().seq)));
        }
        self.ask_at = (!self.verdicts.is_empty()).then(|| now + PAUSE);
        free
    }
}

/// Asks the store which rows are locked, as long as it is worth waiting for.
pub(crate) async fn ask(
    store: &dyn Store,
    rows: &[RowLease],
    patience: Duration,
) -> Result<Vec<Seq>> {
    let locked = tokio::time::timeout(patience, store.locked(rows)).await;
    locked.unwrap_or_else(|_| Err(no_answer()))
}

/// Gives rows back; if that is busy, once more, without the rows that are locked.
pub(crate) async fn without_locked<F: Future<Output = Result<u64>>>(
    store: &dyn Store,
    rows: Vec<RowLease>,
    give: impl Fn(Vec<RowLease>) -> F,
) -> Result<u64> {
    match give(rows.clone()).await {
        Err(error) if error.kind() == ErrorKind::Busy => {
            let locked: NumberSet<Seq> = store.locked(&rows).await?.into_iter().collect();
            give(rows.into_iter().filter(|row| !locked.contains(&row.seq)).collect()).await
        }
        given => given,
    }
}

/// Those of the rows that a write left out because another transaction has them locked.
pub(crate) async fn skipped(
    store: &dyn Store,
    rows: &[RowLease],
    is_written: impl Fn(Seq) -> bool,
) -> Result<NumberSet<Seq>> {
    let left = rows.iter().filter(|row| !is_written(row.seq));
    let left: Vec<RowLease> = left.copied().collect();
    let locked = if left.is_empty() { Vec::new() } else { store.locked(&left).await? };
    Ok(locked.into_iter().collect())
}
