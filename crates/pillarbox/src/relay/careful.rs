//! Careful: what a relay that died may have been killed by is counted before it is begun again.
//!
//! Only rows that were due when its shards were taken over can have been in delivery, and these are
//! the first of each shard.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::clock::instant;
use crate::error::Result;
use crate::id::{Epoch, ShardId};
use crate::relay::SECOND;
use crate::relay::dispatch::crash_guard::{self, Action, Counted, CrashGuard, Suspect};
use crate::relay::dispatch::deliverer::Outcome;
use crate::relay::dispatch::dispatched::Dispatched;
use crate::relay::engine::Engine;
use crate::relay::fetch::shard_queues::RowKey;
use crate::relay::work::Progress;
use crate::store::{Pending, RowLease};
use crate::telemetry::{Component, RelayEvent};

/// Rows of each shard that are suspect, however many there are in others.
const AT_LEAST: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Careful {
    /// How many rows of a shard are suspect in any case.
    left: BTreeMap<ShardId, u32>,
    /// How many more are, of all these shards together.
    more: u32,
    pub(super) suspects: CrashGuard<First>,
}

/// One of the first rows of a shard whose last owner died.
#[derive(Debug)]
pub(super) struct First {
    row: Pending,
    epoch: Epoch,
}

impl Suspect for First {
    fn row(&self) -> RowLease {
        RowLease::from(&self.row)
    }
}

impl Careful {
    /// The owner of these shards has died, with at most so many events unsettled.
    pub(super) fn took_over(&mut self, shards: Vec<ShardId>, most_unsettled: u32) {
        if !shards.is_empty() {
            self.left.extend(shards.into_iter().map(|shard| (shard, AT_LEAST)));
            self.more = most_unsettled.saturating_mul(2);
        }
    }

    /// Whether the next row of a shard is suspect; it counts as one of those that are.
    fn takes(&mut self, shard: ShardId) -> bool {
        let Some(left) = self.left.get_mut(&shard) else { return false };
        if *left > 0 {
            *left -= 1;
        } else if self.more > 0 {
            self.more -= 1;
        } else {
            self.left.remove(&shard);
            return false;
        }
        true
    }
}

impl Engine {
    /// Starts the next row from the table, or has it counted first. Returns whether there was one.
    pub(super) fn start_from_table(&mut self) -> bool {
        if self.careful.suspects.is_counting() {
            return false;
        }
        let Some((row, epoch)) = self.queues.next_start(&self.routes) else { return false };
        if self.careful.takes(row.shard) {
            self.careful.suspects.push(First { row, epoch });
        } else {
            self.start(row, epoch);
        }
        true
    }

    /// Counts what is about to be begun.
    pub(super) fn start_count(&mut self) {
        let is_quiet = self.is_quiet();
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let tasks = &mut self.work.tasks;
        self.careful.suspects.count(is_quiet, |asked| {
            let count = async move { crash_guard::count(&*store, &asked, patience).await };
            tasks.spawn(async move { Progress::Counted(count.await) }).id()
        });
    }

    pub(super) fn counted(&mut self, counted: Result<Counted>) {
        if let Err(error) = &counted {
            self.observers.on_event(&RelayEvent::failed(Component::Read, error));
            self.work.read_pause = Some(instant() + self.settings.poll.min(SECOND));
        }
        let max_crashes = self.settings.max_crashes.get();
        for (first, fate) in self.careful.suspects.counted(counted, max_crashes) {
            let is_ours = self.queues.holds(first.row.shard, first.epoch);
            match fate {
                Action::Start if is_ours => {
                    let job = Dispatched::of(&first.row, first.epoch).suspect(true);
                    self.start_job(job, first.row);
                }
                Action::GiveUp(failure) if is_ours => {
                    let job = Dispatched::of(&first.row, first.epoch);
                    self.judge(job, Outcome::Judgeable(Err(failure.into())));
                }
                // It is locked, perhaps: to ask again at once would keep the others waiting.
                Action::PutBack if is_ours => {
                    *self.careful.left.entry(first.row.shard).or_default() += 1;
                    self.queues.put_off(&RowKey::from(&first.row), instant() + SECOND);
                }
                _ => self.queues.put_back(&RowKey::from(&first.row)),
            }
        }
    }

    /// Puts down what is not ours to start any more.
    pub(super) fn leave_careful(&mut self) {
        let Self { careful, queues, .. } = self;
        careful.suspects.retain(|first| {
            let stays = queues.holds(first.row.shard, first.epoch);
            if !stays {
                queues.put_back(&RowKey::from(&first.row));
            }
            stays
        });
        careful.left.retain(|shard, _| queues.works_on(*shard));
    }
}
