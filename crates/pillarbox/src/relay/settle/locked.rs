//! Verdicts on rows that another transaction has locked: kept until the rows are free.

use std::time::Duration;

use tokio::time::Instant;

use crate::error::{ErrorKind, Result};
use crate::id::Seq;
use crate::relay::SECOND;
use crate::relay::number_map::NumberSet;
use crate::relay::settle::Decided;
use crate::relay::store_tasks::within;
use crate::store::{RowLease, Store};

/// How often it is asked whether the rows are free.
const PAUSE: Duration = SECOND;

#[derive(Debug)]
pub(crate) struct Locked<T> {
    verdicts: Vec<T>,
    ask_at: Option<Instant>,
}

impl<T> Default for Locked<T> {
    fn default() -> Self {
        Self { verdicts: Vec::new(), ask_at: None }
    }
}

impl<H> Locked<Decided<H>> {
    pub(crate) fn push(&mut self, verdict: Decided<H>, now: Instant) {
        self.ask_at.get_or_insert(now + PAUSE);
        self.verdicts.push(verdict);
    }

    pub(crate) fn len(&self) -> usize {
        self.verdicts.len()
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &Decided<H>> {
        self.verdicts.iter()
    }

    /// When to ask next.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.ask_at
    }

    /// The rows to ask about, if it is time.
    pub(crate) fn ask(&mut self, now: Instant) -> Option<Vec<RowLease>> {
        self.ask_at.take_if(|at| *at <= now)?;
        Some(self.verdicts.iter().map(|it| it.dispatched.row_lease()).collect())
    }

    /// Takes the verdicts out whose rows are free; without an answer, none.
    pub(crate) fn answered(&mut self, still: Result<Vec<Seq>>, now: Instant) -> Vec<Decided<H>> {
        let mut free = Vec::new();
        if let Ok(still) = still {
            let still: NumberSet<Seq> = still.into_iter().collect();
            free.extend(self.verdicts.extract_if(.., |it| !still.contains(&it.dispatched.row.seq)));
        }
        self.ask_at = (!self.verdicts.is_empty()).then(|| now + PAUSE);
        free
    }
}

/// Asks the store which rows are locked, as long as it is worth waiting for.
pub(crate) async fn ask(
    store: &dyn Store,
    rows: &[RowLease],
    timeout: Duration,
) -> Result<Vec<Seq>> {
    within(timeout, store.locked(rows)).await
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
