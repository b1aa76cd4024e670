//! What the engine has under way.

use std::{sync::Arc, time::Duration};

use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use crate::clock::instant;
use crate::error::Result;
use crate::id::Seq;
use crate::relay::dispatch::crash_guard::Counted;
use crate::relay::dispatch::deliverer::Deliverer;
use crate::relay::dispatch::dispatched::{Decision, Dispatched};
use crate::relay::dispatch::fair_share::FairShare;
use crate::relay::dispatch::worker_pool::WorkerPool;
use crate::relay::fetch::shard_queues::Wanted;
use crate::relay::fetch::shard_reader::Page;
use crate::relay::settle::Answer;
use crate::relay::settle::locked::Locked;
use crate::relay::verdicts::Verdicts;
use crate::store::Due;

/// What is under way.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) tasks: JoinSet<Progress>,
    pub(super) deliveries: WorkerPool<Dispatched>,
    /// Decision, and not yet handed to a settle.
    pub(super) judged: Verdicts,
    /// In a settle that has not been answered.
    pub(super) settling: Vec<Decision>,
    pub(super) settle: Option<Id>,
    /// Verdicts that the database refuses to write, to be tried again now and then.
    pub(super) refused: Vec<Decision>,
    /// Verdicts on rows that other transactions have locked.
    pub(super) locked: Locked<Decision>,
    /// The read under way, kept here so that a panic cannot take it along.
    pub(super) reading: Option<(Id, Wanted)>,
    pub(super) next_poll: Instant,
    pub(super) next_sweep: Instant,
    /// After a failed read: do not read before.
    pub(super) read_pause: Option<Instant>,
}

/// What a task has to tell.
#[derive(Debug)]
pub(super) enum Progress {
    /// What was read, and how long it took.
    Read(Result<Page>, Duration),
    /// Which waiting rows are new now.
    Looked(Result<Due>),
    Settled(Answer),
    HotSettled(Answer),
    /// Which of the locked rows still are.
    StillLocked(Result<Vec<Seq>>),
    /// How many rows whose lease had run out are free now.
    Reclaimed(u64),
    Counted(Result<Counted>),
}

impl Work {
    pub(super) fn new(deliverer: Arc<Deliverer>, routes: FairShare) -> Self {
        Self {
            tasks: JoinSet::new(),
            deliveries: WorkerPool::new(deliverer, routes),
            judged: Verdicts::default(),
            settling: Vec::new(),
            settle: None,
            refused: Vec::new(),
            locked: Locked::default(),
            reading: None,
            next_poll: instant(),
            next_sweep: instant(),
            read_pause: None,
        }
    }

    /// Events in delivery, or delivered and not yet settled.
    pub(super) fn unsettled(&self) -> usize {
        self.deliveries.len() + self.judged.len() + self.settling.len() + self.not_written()
    }

    /// Verdicts that cannot be written now.
    pub(super) fn not_written(&self) -> usize {
        self.refused.len() + self.locked.len()
    }
}
