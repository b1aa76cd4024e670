//! Careful: what a relay that died may have been killed by is counted before it is begun again.
//!
//! Only rows that were due when its shards were taken over can have been in delivery, and these are
//! the first of each shard. They are counted right before they start and never while they wait, for
//! what waits behind the cause would be blamed with it. One that was counted before is begun alone:
//! nothing beside it can be the cause, and it is blamed for nothing beside it. After too many counts
//! it is given up.

use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::Arc;

use tokio::task::Id;

use super::SECOND;
use super::board::Ticket;
use super::deliver::Outcome;
use super::engine::Engine;
use super::job::Job;
use super::read::no_answer;
use super::work::Progress;
use crate::clock::instant;
use crate::error::Result;
use crate::id::{Epoch, Seq, ShardId};
use crate::observe::{Happening, Part};
use crate::store::{Pending, RowLease, Suspects};
use crate::verdict::Failure;

/// Rows of each shard that are suspect, however many there are in others.
const AT_LEAST: u32 = 64;

#[derive(Debug, Default)]
pub(super) struct Careful {
    /// How many rows of a shard are suspect in any case.
    left: BTreeMap<ShardId, u32>,
    /// How many more are, of all these shards together.
    more: u32,
    /// To be counted and begun together.
    waiting: Vec<Suspect>,
    /// To be counted and begun alone.
    alone: VecDeque<Suspect>,
    count: Option<Count>,
    /// One that is to be alone is under way.
    is_alone: bool,
}

/// A write under way that counts.
#[derive(Debug)]
struct Count {
    id: Id,
    suspects: Vec<Suspect>,
    are_alone: bool,
}

/// A row that may be what its last owner died of.
#[derive(Debug)]
struct Suspect {
    row: Pending,
    epoch: Epoch,
}

impl Careful {
    /// The owner of these shards has died, with at most so many events unsettled.
    pub(super) fn took_over(&mut self, shards: Vec<ShardId>, most_unsettled: u32) {
        if !shards.is_empty() {
            self.left.extend(shards.into_iter().map(|shard| (shard, AT_LEAST)));
            self.more = most_unsettled.saturating_mul(2);
        }
    }

    /// How many are begun as soon as they are counted.
    pub(super) fn to_begin(&self) -> usize {
        self.waiting.len() + self.count.as_ref().map_or(0, |count| count.suspects.len())
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
    /// Whether nothing may start now, because one event is alone or is to be.
    pub(super) fn waits_alone(&mut self) -> bool {
        self.careful.is_alone = self.careful.is_alone && !self.work.deliveries.is_empty();
        let counts_one = self.careful.count.as_ref().is_some_and(|count| count.are_alone);
        self.careful.is_alone || counts_one || !self.careful.alone.is_empty()
    }

    /// Starts the next row from the table, or has it counted first. Returns whether there was one.
    pub(super) fn start_from_table(&mut self) -> bool {
        if self.careful.count.is_some() {
            return false;
        }
        let Some((row, epoch)) = self.board.next_start(&self.routes) else { return false };
        if self.careful.takes(row.shard) {
            self.careful.waiting.push(Suspect { row, epoch });
        } else {
            self.start(row, epoch);
        }
        true
    }

    /// Counts what is about to be begun.
    pub(super) fn start_count(&mut self) {
        if self.careful.count.is_some() {
            return;
        }
        if !self.careful.waiting.is_empty() {
            let suspects = std::mem::take(&mut self.careful.waiting);
            return self.spawn_count(suspects, false);
        }
        // What was delivered and not settled would die with it, and be blamed.
        if self.is_quiet()
            && let Some(suspect) = self.careful.alone.pop_front()
        {
            self.spawn_count(vec![suspect], true);
        }
    }

    fn spawn_count(&mut self, suspects: Vec<Suspect>, are_alone: bool) {
        let rows = suspects.iter().map(|suspect| RowLease::from(&suspect.row)).collect();
        let below = if are_alone { u32::MAX } else { 1 };
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let task = self.work.tasks.spawn(async move {
            let asked = Suspects { rows, below };
            let counted = tokio::time::timeout(patience, store.suspect(&asked)).await;
            Progress::Counted(counted.unwrap_or_else(|_| Err(no_answer())))
        });
        self.careful.count = Some(Count { id: task.id(), suspects, are_alone });
    }

    pub(super) fn is_counting(&self, id: Id) -> bool {
        self.careful.count.as_ref().is_some_and(|count| count.id == id)
    }

    pub(super) fn counted(&mut self, counted: Result<Vec<(Seq, u32)>>) {
        let Some(Count { suspects, are_alone, .. }) = self.careful.count.take() else { return };
        let counted: HashMap<Seq, u32> = match counted {
            Ok(counted) => counted.into_iter().collect(),
            Err(error) => {
                self.observers.see(&Happening::trouble(Part::Read, &error));
                self.work.read_pause = Some(instant() + self.settings.poll.min(SECOND));
                return suspects.into_iter().for_each(|suspect| self.put_suspect_back(&suspect));
            }
        };
        for suspect in suspects {
            let times = counted.get(&suspect.row.seq).copied();
            if !self.board.holds(suspect.row.shard, suspect.epoch) {
                self.put_suspect_back(&suspect);
            } else if are_alone {
                self.begin_alone(suspect, times);
            } else if times.is_some() {
                self.start(suspect.row, suspect.epoch);
            } else {
                self.careful.alone.push_back(suspect);
            }
        }
    }

    fn begin_alone(&mut self, suspect: Suspect, times: Option<u32>) {
        match times {
            // Somebody has decided on it since it was read.
            None => self.put_suspect_back(&suspect),
            Some(times) if times >= self.settings.max_crashes.get() => {
                let failure = Failure::dead(format!(
                    "crash_loop: {} relays in a row died in its delivery, the last ones with \
                     nothing else under way",
                    times - 1
                ));
                let job = Job::of(&suspect.row, suspect.epoch);
                self.judge(job, Outcome::Judgeable(Err(failure.into())));
            }
            Some(_) => {
                self.careful.is_alone = true;
                self.start(suspect.row, suspect.epoch);
            }
        }
    }

    fn put_suspect_back(&mut self, suspect: &Suspect) {
        *self.careful.left.entry(suspect.row.shard).or_default() += 1;
        self.board.put_back(&Ticket::from(&suspect.row));
    }

    /// Puts down what is not ours to start any more.
    pub(super) fn leave_careful(&mut self) {
        let Self { careful, board, .. } = self;
        let mut stays = |suspect: &Suspect| {
            let stays = board.holds(suspect.row.shard, suspect.epoch);
            if !stays {
                board.put_back(&Ticket::from(&suspect.row));
            }
            stays
        };
        careful.waiting.retain(&mut stays);
        careful.alone.retain(&mut stays);
        careful.left.retain(|shard, _| board.works_on(*shard));
    }
}
