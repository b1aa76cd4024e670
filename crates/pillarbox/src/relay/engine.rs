//! The engine: one task that reads, starts deliveries, and settles what they came to.

use std::{collections::HashMap, sync::Arc};

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};
use tracing::{debug, error, warn};

use super::board::{Board, Wanted};
use super::deliver::{Courier, Outcome};
use super::job::{Job, Judged};
use super::lease::Tenure;
use super::settle::{self, Answer};
use super::{SECOND, Settings};
use crate::clock::instant;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, jitter};
use crate::retry::{Delivered, Judge};
use crate::store::{Pending, Read, Settle, Store};
use crate::verdict::Failure;
use crate::wake::Wake;

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) store: Arc<dyn Store>,
    pub(super) courier: Arc<Courier>,
    pub(super) tenure: Arc<Tenure>,
    pub(super) judge: Judge,
    pub(super) settings: Settings,
    pub(super) wake: Wake,
    pub(super) board: Board,
    pub(super) work: Work,
}

/// What is under way.
#[derive(Debug)]
pub(super) struct Work {
    tasks: JoinSet<Progress>,
    deliveries: HashMap<Id, Job>,
    /// Judged, and not yet handed to a settle.
    judged: Vec<Judged>,
    /// In a settle that has not been answered.
    settling: Vec<Judged>,
    /// Verdicts that the database refuses to write, to be tried again now and then.
    refused: Vec<Judged>,
    /// The read under way, kept here so that a panic cannot take it along.
    reading: Option<(Id, Wanted)>,
    next_poll: Instant,
    next_sweep: Instant,
    /// After a failed read: do not read before.
    read_pause: Option<Instant>,
}

/// What a task has to tell.
#[derive(Debug)]
enum Progress {
    Delivered(Outcome),
    Read(Result<Vec<Pending>>),
    Settled(Answer),
}

impl Work {
    pub(super) fn new() -> Self {
        Self {
            tasks: JoinSet::new(),
            deliveries: HashMap::new(),
            judged: Vec::new(),
            settling: Vec::new(),
            refused: Vec::new(),
            reading: None,
            next_poll: instant(),
            next_sweep: instant(),
            read_pause: None,
        }
    }

    /// Events in delivery, or delivered and not yet settled.
    fn unsettled(&self) -> usize {
        self.deliveries.len() + self.judged.len() + self.settling.len() + self.refused.len()
    }
}

impl Engine {
    /// Runs until `stop` is ready, then finishes what is under way.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) {
        tokio::pin!(stop);
        loop {
            self.start_settle();
            if self.courier.is_live() {
                self.start_deliveries();
                self.start_read();
            }
            let timer = self.next_timer();
            tokio::select! {
                () = &mut stop => break,
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                () = self.wake.wait() => self.board.wake(),
                () = self.tenure.changed() => self.board.hold(&self.tenure.shards()),
                () = sleep_until(timer) => self.tick(),
            }
        }
        self.drain().await;
    }

    /// Finishes deliveries under way and writes their verdicts, as long as `drain` allows.
    async fn drain(mut self) {
        let deadline = instant() + self.settings.drain;
        while self.work.unsettled() > 0 {
            self.start_settle();
            tokio::select! {
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                () = sleep_until(deadline) => {
                    let unsettled = self.work.unsettled();
                    warn!(unsettled, "stopped before everything was settled, it will come again");
                    return;
                }
            }
        }
    }

    fn tick(&mut self) {
        let now = instant();
        self.board.tick(now);
        if self.work.next_poll <= now {
            self.work.next_poll = now + self.settings.poll.mul_f64(jitter());
            self.board.wake();
        }
        if self.work.next_sweep <= now {
            self.work.next_sweep = now + self.settings.sweep;
            self.board.sweep();
            self.work.judged.append(&mut self.work.refused);
        }
        self.work.read_pause = self.work.read_pause.filter(|until| *until > now);
    }

    fn next_timer(&self) -> Instant {
        let timers = [self.board.next_due(), self.work.read_pause];
        let polls = self.work.next_poll.min(self.work.next_sweep);
        timers.into_iter().flatten().fold(polls, Instant::min)
    }

    fn start_read(&mut self) {
        if self.work.read_pause.is_some() {
            return;
        }
        let Some(wanted) = self.board.next_read() else { return };
        let (store, read) = (Arc::clone(&self.store), wanted.clone());
        let patience = self.settings.lease;
        let task = self.work.tasks.spawn(async move {
            let reading = async {
                match read {
                    Wanted::Key(read) => store.read_key(&read).await,
                    Wanted::Shards { shards, limit } => store.read(&Read { shards, limit }).await,
                }
            };
            let rows = tokio::time::timeout(patience, reading).await;
            Progress::Read(rows.unwrap_or_else(|_| Err(no_answer())))
        });
        self.work.reading = Some((task.id(), wanted));
    }

    fn start_deliveries(&mut self) {
        let (workers, most) = (self.settings.workers.get(), self.settings.max_unsettled.get());
        while self.work.deliveries.len() < workers as usize && self.work.unsettled() < most as usize
        {
            let Some((row, epoch)) = self.board.next_start() else { return };
            self.start(row, epoch);
        }
    }

    fn start(&mut self, row: Pending, epoch: Epoch) {
        let job = Job::of(&row, epoch);
        let courier = Arc::clone(&self.courier);
        let task = self.work.tasks.spawn(async move {
            Progress::Delivered(courier.deliver(row.shard, row.attempts, row.event).await)
        });
        self.work.deliveries.insert(task.id(), job);
    }

    /// Whatever gathered while the last settle was under way goes in one call.
    fn start_settle(&mut self) {
        if !self.work.settling.is_empty() || self.work.judged.is_empty() {
            return;
        }
        self.work.settling = std::mem::take(&mut self.work.judged);
        let settlements = self.work.settling.iter().map(Judged::settlement).collect();
        let settle = Settle { owner: self.tenure.owner.clone(), settlements };
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        self.work.tasks.spawn(async move {
            Progress::Settled(settle::settle_for_sure(&*store, settle, patience).await)
        });
    }

    fn take_in_all(&mut self, first: Result<(Id, Progress), JoinError>) {
        self.take_in(first);
        while let Some(done) = self.work.tasks.try_join_next_with_id() {
            self.take_in(done);
        }
    }

    fn take_in(&mut self, done: Result<(Id, Progress), JoinError>) {
        match done {
            Ok((id, Progress::Delivered(outcome))) => self.delivered(id, outcome),
            Ok((_, Progress::Read(rows))) => self.read(rows),
            Ok((_, Progress::Settled(answer))) => self.settled(&answer),
            Err(panic) => self.panicked(&panic),
        }
    }

    /// A listener that panics has failed; a store that panics is asked again.
    fn panicked(&mut self, panic: &JoinError) {
        if self.work.deliveries.contains_key(&panic.id()) {
            let failure = Failure::retry(format!("the listener panicked: {panic}"));
            return self.delivered(panic.id(), Outcome::Judgeable(Err(failure.into())));
        }
        error!(error = %panic, store = self.store.name(), "the store panicked, asking it again");
        if self.work.reading.as_ref().is_some_and(|(id, _)| *id == panic.id()) {
            let text = panic.to_string();
            return self.read(Err(Error::new(ErrorKind::Unavailable, text)));
        }
        // At the next sweep, for a driver that panics on these will do so again.
        self.work.refused.append(&mut self.work.settling);
    }

    fn read(&mut self, rows: Result<Vec<Pending>>) {
        let Some((_, wanted)) = self.work.reading.take() else { return };
        match (rows, wanted) {
            (Ok(rows), Wanted::Shards { shards, limit }) => {
                self.board.take_shards(&shards, limit, rows, instant());
            }
            (Ok(rows), Wanted::Key(read)) => self.board.take_key(&read, rows, instant()),
            (Err(error), wanted) => {
                warn!(error = %error, cause = error.source_text(), "read failed, trying again");
                self.work.read_pause = Some(instant() + self.settings.poll.min(SECOND));
                self.board.read_failed(wanted);
            }
        }
    }

    fn delivered(&mut self, id: Id, outcome: Outcome) {
        let Some(job) = self.work.deliveries.remove(&id) else { return };
        let Outcome::Judgeable(outcome) = outcome else {
            debug!(event_id = job.event_id, "lease too short to start, left to its next owner");
            self.board.put_back(&job.ticket);
            return;
        };
        let verdict = self.judge.judge(&Delivered {
            attempts: job.attempts,
            keyed: job.ticket.key.is_some(),
            outcome: outcome.as_ref().copied(),
            jitter: jitter(),
        });
        job.tell(&verdict);
        self.board.judged(&job.ticket, &verdict);
        self.work.judged.push(Judged { job, verdict });
    }

    fn settled(&mut self, answer: &Answer) {
        let now = instant();
        let held = self.tenure.shards();
        for judged in std::mem::take(&mut self.work.settling) {
            let Judged { job, verdict } = &judged;
            let (seq, shard) = (job.ticket.seq, job.ticket.shard);
            if answer.failed.contains(&seq) {
                self.work.refused.push(judged);
            } else if answer.applied.contains(&seq) && held.get(&shard) == Some(&job.epoch) {
                self.board.settled(&job.ticket, verdict, now);
            } else {
                self.overtaken(&judged, answer);
            }
        }
        self.board.hold(&self.tenure.shards());
    }

    fn overtaken(&mut self, Judged { job, verdict }: &Judged, answer: &Answer) {
        if answer.refused.contains(&job.ticket.shard) {
            self.tenure.drop_shard(job.ticket.shard, job.epoch);
        }
        if !answer.applied.contains(&job.ticket.seq) {
            warn!(event_id = job.event_id, "verdict fenced off, written before or no longer ours");
        }
        self.board.overtaken(&job.ticket, verdict);
    }
}

fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "the database does not answer")
}
