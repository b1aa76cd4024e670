//! Writes one batch of verdicts.
//!
//! A write that fails because the database is away is repeated; the fences make that harmless. Rows
//! that another transaction has locked are left out. A batch that is refused, or times out
//! repeatedly, is split.

use std::{sync::Arc, time::Duration};

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{OwnerId, Seq, ShardId};
use crate::relay::number_map::NumberSet;
use crate::relay::settle::{Decided, locked};
use crate::store::{RowLease, Settle, SettleRows, Settled, Store};
use crate::telemetry::{Component, Observers, RelayEvent};

/// Pauses between tries.
const SHORTEST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(2);

/// After so many tries that ran out of time, a batch is split.
const BUSY_TRIES: u32 = 3;

/// What became of a batch of verdicts.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// Written.
    pub(crate) applied: NumberSet<Seq>,
    /// Shards that are not held any more.
    pub(crate) refused: NumberSet<ShardId>,
    /// Not written, for another transaction has the row locked.
    pub(crate) locked: NumberSet<Seq>,
    /// Refused by the database for a reason that trying again does not change.
    pub(crate) failed: NumberSet<Seq>,
}

/// What keeps a verdict of an earlier owner from being written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fence {
    /// The leases of the shards.
    Shards,
    /// The leases of rows that were claimed.
    ClaimedRows,
    /// The leases that rows were inserted with.
    LocalRows,
}

/// Verdicts to write together.
#[derive(Debug)]
pub(crate) enum Batch {
    Shards(Settle),
    Rows(SettleRows),
    Local(SettleRows),
}

impl Fence {
    /// A batch of these verdicts.
    pub(super) fn batch<H>(self, owner: OwnerId, decided: &[Decided<H>]) -> Batch {
        if self == Self::Shards {
            let settlements = decided.iter().map(Decided::settlement).collect();
            return Batch::Shards(Settle { owner, settlements });
        }
        let verdicts = decided.iter().map(Decided::row_verdict).collect();
        let settle = SettleRows { owner, verdicts };
        if self == Self::ClaimedRows { Batch::Rows(settle) } else { Batch::Local(settle) }
    }
}

impl Batch {
    fn rows(&self) -> Vec<RowLease> {
        match self {
            Self::Shards(settle) => settle.settlements.iter().map(RowLease::from).collect(),
            Self::Rows(settle) | Self::Local(settle) => {
                settle.verdicts.iter().map(|it| it.row).collect()
            }
        }
    }

    fn len(&self) -> usize {
        match self {
            Self::Shards(settle) => settle.settlements.len(),
            Self::Rows(settle) | Self::Local(settle) => settle.verdicts.len(),
        }
    }

    /// Takes the later half out.
    fn split(&mut self) -> Self {
        let half = self.len() / 2;
        match self {
            Self::Shards(Settle { owner, settlements }) => {
                let settlements = settlements.split_off(half);
                Self::Shards(Settle { owner: owner.clone(), settlements })
            }
            Self::Rows(settle) => Self::Rows(second_half(settle, half)),
            Self::Local(settle) => Self::Local(second_half(settle, half)),
        }
    }

    fn remove(&mut self, seqs: &NumberSet<Seq>) {
        match self {
            Self::Shards(settle) => settle.settlements.retain(|it| !seqs.contains(&it.seq)),
            Self::Rows(settle) | Self::Local(settle) => {
                settle.verdicts.retain(|it| !seqs.contains(&it.row.seq));
            }
        }
    }

    async fn write(&self, store: &dyn Store) -> Result<Settled> {
        match self {
            Self::Shards(settle) => {
                crash_point!("settle.before"?);
                let settled = store.settle(settle).await?;
                crash_point!("settle.after"?);
                Ok(settled)
            }
            Self::Rows(settle) => {
                crash_point!("rows.settle.before"?);
                let applied = store.settle_rows(settle).await?;
                crash_point!("rows.settle.after"?);
                Ok(Settled { applied, refused: Vec::new() })
            }
            Self::Local(settle) => {
                crash_point!("hot.settle.before"?);
                let applied = store.settle_rows(settle).await?;
                crash_point!("hot.settle.after"?);
                Ok(Settled { applied, refused: Vec::new() })
            }
        }
    }
}

fn second_half(settle: &mut SettleRows, half: usize) -> SettleRows {
    SettleRows { owner: settle.owner.clone(), verdicts: settle.verdicts.split_off(half) }
}

/// Writes a batch, for as long as it takes.
pub(super) struct BatchWriter {
    pub(super) store: Arc<dyn Store>,
    /// How long to wait for one answer.
    pub(super) timeout: Duration,
    pub(super) observers: Observers,
}

/// Why a batch was not written.
enum Stuck {
    /// Other transactions have these rows locked.
    Locked(NumberSet<Seq>),
    /// The database refuses it, or runs out of time with it again and again.
    Refused(Error),
}

impl BatchWriter {
    /// Writes all verdicts that can be written, and says what became of each.
    pub(super) async fn write_all(&self, batch: Batch) -> Written {
        let (mut answer, mut batches) = (Written::default(), vec![batch]);
        while let Some(mut batch) = batches.pop() {
            if batch.len() == 0 {
                continue;
            }
            match self.write(&batch).await {
                Ok(settled) => {
                    answer.applied.extend(settled.applied);
                    answer.refused.extend(settled.refused);
                }
                Err(Stuck::Locked(locked)) => {
                    batch.remove(&locked);
                    answer.locked.extend(locked);
                    batches.push(batch);
                }
                Err(Stuck::Refused(error)) if batch.len() == 1 => {
                    answer.failed.extend(self.give_up(&batch, &error));
                }
                Err(Stuck::Refused(_)) => {
                    batches.push(batch.split());
                    batches.push(batch);
                }
            }
        }
        answer
    }

    /// Repeats a write while the database is away, and a few times while it is busy.
    async fn write(&self, batch: &Batch) -> Result<Settled, Stuck> {
        let (mut pause, mut busy) = (SHORTEST_PAUSE, 0);
        loop {
            let error = match self.write_once(batch).await {
                Ok(settled) => return Ok(settled),
                Err(error) if !error.is_transient() => return Err(Stuck::Refused(error)),
                Err(error) => error,
            };
            self.observers.on_event(&RelayEvent::failed(Component::Settle, &error));
            if error.kind() == ErrorKind::Busy {
                let locked = self.locked(batch).await;
                if !locked.is_empty() {
                    return Err(Stuck::Locked(locked));
                }
                busy += 1;
                if busy == BUSY_TRIES {
                    return Err(Stuck::Refused(error));
                }
            }
            tokio::time::sleep(pause).await;
            pause = (pause * 2).min(LONGEST_PAUSE);
        }
    }

    /// Writes a batch, and tells how long the database took.
    async fn write_once(&self, batch: &Batch) -> Result<Settled> {
        let began = instant();
        let settled = tokio::time::timeout(self.timeout, batch.write(&*self.store)).await;
        let late = |_| Err(Error::new(ErrorKind::Busy, "the database did not answer in time"));
        let settled = settled.unwrap_or_else(late)?;
        let (rows, took) = (settled.applied.len(), instant() - began);
        self.observers.on_event(&RelayEvent::Settled { rows, took });
        Ok(settled)
    }

    /// Rows that another transaction has locked; none if the database does not say.
    async fn locked(&self, batch: &Batch) -> NumberSet<Seq> {
        let locked = locked::ask(&*self.store, &batch.rows(), self.timeout).await;
        locked.unwrap_or_default().into_iter().collect()
    }

    /// Tells of a verdict that cannot be written, which stands alone.
    fn give_up(&self, batch: &Batch, error: &Error) -> Vec<Seq> {
        let seqs: Vec<Seq> = batch.rows().into_iter().map(|row| row.seq).collect();
        for seq in &seqs {
            let error = format!("{error}: {}", error.source_text());
            self.observers.on_event(&RelayEvent::VerdictRefused { seq: *seq, error: error.into() });
        }
        seqs
    }
}
