//! What the engine has under way.

use std::{sync::Arc, time::Duration};

use tokio::task::{Id, JoinSet};
use tokio::time::Instant;

use super::board::Wanted;
use super::crew::Crew;
use super::deliver::Courier;
use super::job::{Job, Judged};
use super::locked::Locked;
use super::read::Page;
use super::routes::Routes;
use super::settle::Answer;
use super::suspects::Counted;
use super::verdicts::Verdicts;
use crate::clock::instant;
use crate::error::Result;
use crate::id::Seq;
use crate::store::Due;

/// What is under way.
#[derive(Debug)]
pub(super) struct Work {
    pub(super) tasks: JoinSet<Progress>,
    pub(super) deliveries: Crew<Job>,
    /// Judged, and not yet handed to a settle.
    pub(super) judged: Verdicts,
    /// In a settle that has not been answered.
    pub(super) settling: Vec<Judged>,
    pub(super) settle: Option<Id>,
    /// Verdicts that the database refuses to write, to be tried again now and then.
    pub(super) refused: Vec<Judged>,
    /// Verdicts on rows that other transactions have locked.
    pub(super) locked: Locked<Judged>,
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
    pub(super) fn new(courier: Arc<Courier>, routes: Routes) -> Self {
        Self {
            tasks: JoinSet::new(),
            deliveries: Crew::new(courier, routes),
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
