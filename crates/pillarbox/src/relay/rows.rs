//! The engine of row claims: one task that claims due rows, delivers them, and settles.
//!
//! Any relay takes any due row, under a lease on the row itself. What waits here for a worker could
//! be another relay's, so little does, and not for long.

mod appetite;
mod careful;
mod claim;
mod line;
mod look;
mod stop;
mod tenure;
mod write;

use std::{sync::Arc, time::Duration};

use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::{Instant, sleep_until};

use self::appetite::Appetite;
use self::line::{Line, UnderWay, Waiting};
use self::look::Look;
pub(super) use self::tenure::RowTenure;
use self::write::{Decided, Renewed, Writes};
use super::crew::{Crew, Over, Parcel};
use super::deliver::{Courier, Outcome, Under};
use super::depth::Depths;
use super::due::{self, DueRows};
use super::job::Judged;
use super::lease::Tenure;
use super::memory::{Memory, Pace};
use super::routes::Routes;
use super::settle::Answer;
use super::stop::Ended;
use super::suspects::{Counted, Counting};
use super::{SECOND, Settings};
use crate::clock::{Deadline, instant};
use crate::error::{Error, ErrorKind, Result};
use crate::hot::{HotEvents, HotLane, Mail};
use crate::id::{Seq, ShardId, jitter};
use crate::observe::{Happening, Observers, Part};
use crate::point::point;
use crate::retry::{Delivered, Judge};
use crate::store::{Budget, Claim, Due, Layout, Order, Pending, RowLease, Store};
use crate::wake::Wake;

/// A row that no worker has begun with for so long is left to another relay.
const PATIENCE: Duration = SECOND;

#[derive(Debug)]
pub(super) struct RowEngine {
    pub(super) store: Arc<dyn Store>,
    pub(super) courier: Arc<Courier>,
    pub(super) tenure: Arc<Tenure>,
    pub(super) judge: Judge,
    pub(super) settings: Settings,
    pub(super) wake: Wake,
    pub(super) lane: HotLane,
    pub(super) events: HotEvents,
    pub(super) work: RowWork,
    pub(super) observers: Observers,
    pub(super) depths: Arc<Depths>,
}

/// What is under way.
#[derive(Debug)]
pub(super) struct RowWork {
    tasks: JoinSet<Progress>,
    line: Line,
    /// Rows that a relay may have died of.
    suspects: Counting<Waiting>,
    deliveries: Crew<UnderWay>,
    writes: Writes,
    /// Where the next claim begins.
    claim: Claim,
    claiming: Option<Id>,
    /// Rows that are no events, which the claim under way may still bring.
    settled_during_claim: Vec<RowLease>,
    look: Look,
    due: DueRows,
    /// Payloads and headers of claimed rows.
    memory: Memory,
    pace: Pace,
    appetite: Appetite,
    all_shards: usize,
    /// Nothing more is started.
    is_stopping: bool,
}

/// What a task has to tell.
#[derive(Debug)]
enum Progress {
    Claimed(Deadline, Result<Vec<Pending>>),
    /// Which waiting rows are new now.
    Looked(Result<Due>),
    Counted(Result<Counted>),
    Settled(Answer),
    /// Which of the locked rows still are.
    StillLocked(Result<Vec<Seq>>),
    Renewed(Deadline, Result<Renewed>),
    Released,
}

impl RowWork {
    pub(super) fn new(
        courier: Arc<Courier>,
        tenure: &Tenure,
        layout: Layout,
        settings: &Settings,
    ) -> Self {
        let now = instant();
        let (workers, batch) = (settings.workers.get(), settings.batch.get());
        let count = layout.shards.get();
        let shards = (0..i16::try_from(count).unwrap_or(i16::MAX)).map(ShardId);
        let mut shards: Vec<ShardId> = shards.collect();
        // Relays that begin in different shards are not in each other's way.
        let first = by_chance(count).min(shards.len());
        shards.rotate_left(first);
        let claim = Claim {
            owner: tenure.owner.clone(),
            length: settings.lease,
            shards,
            after: None,
            limit: workers,
            budget: Budget::new(0),
            order: layout.mode.order,
        };
        Self {
            tasks: JoinSet::new(),
            line: Line::default(),
            suspects: Counting::default(),
            deliveries: Crew::new(courier, Routes::new(workers as usize, false)),
            writes: Writes::new(now + settings.lease / 3),
            claim,
            claiming: None,
            settled_during_claim: Vec::new(),
            look: Look::new(settings.poll, now),
            due: DueRows::new(settings.poll, now),
            memory: Memory::default(),
            pace: Pace::new(batch),
            appetite: Appetite::new(workers, batch.min(settings.max_unsettled.get()), now),
            all_shards: usize::from(count),
            is_stopping: false,
        }
    }

    /// Events in delivery or about to be.
    fn under_way(&self) -> usize {
        self.deliveries.len() + self.suspects.to_begin()
    }

    /// Those, and what is delivered and not yet settled.
    fn unsettled(&self) -> usize {
        self.under_way() + self.writes.unsettled()
    }
}

impl RowEngine {
    /// Runs until `stop` is ready, then delivers what is due and finishes what has started.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) -> Ended {
        tokio::pin!(stop);
        loop {
            self.advance();
            let timer = self.next_timer();
            tokio::select! {
                () = &mut stop => break,
                () = self.work.deliveries.finished() => {}
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                Some(mail) = self.events.next() => self.take_hot(mail),
                () = self.wake.wait() => self.wake(),
                () = self.tenure.changed() => self.share(),
                () = sleep_until(timer) => self.tick(),
            }
        }
        self.stop().await
    }

    /// Starts everything that can start now.
    fn advance(&mut self) {
        self.take_in_deliveries();
        self.start_writes();
        if self.courier.is_live() {
            self.start_deliveries();
            self.start_count();
            self.start_look();
            self.start_claim();
        }
        self.depths.tell(self.work.line.hot(), self.work.line.claimed());
        self.work.deliveries.go();
    }

    /// Something may have been committed.
    fn wake(&mut self) {
        self.work.look.now();
        self.work.due.hint();
    }

    /// Makes waiting rows new that are due, if it is time to look for them.
    fn start_look(&mut self) {
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let RowWork { due, claim, tasks, .. } = &mut self.work;
        due.start(
            instant(),
            || claim.shards.clone(),
            |asked| {
                let look = due::look(store, asked, patience);
                tasks.spawn(async move { Progress::Looked(look.await) }).id()
            },
        );
    }

    fn looked(&mut self, due: Result<Due>) {
        self.work.due.ended(&due, instant());
        match due {
            Ok(due) if due.rows.is_empty() => {}
            Ok(_) => self.work.look.now(),
            Err(error) => self.observers.see(&Happening::trouble(Part::Read, &error)),
        }
    }

    /// Shards mean nothing for a delivery here. They say who leads the upkeep, and the highest are
    /// given away first, so that the lead stays where it is.
    fn share(&mut self) {
        let held = self.tenure.shards();
        let mut given = Vec::new();
        self.tenure.drain(|count| {
            given.extend(held.keys().rev().take(count).copied());
            given.clone()
        });
        if !given.is_empty() {
            self.tenure.drained(&given);
        }
        self.wake.alone(self.tenure.shards().len() == self.work.all_shards);
    }

    fn tick(&mut self) {
        let now = instant();
        self.work.look.tick(now);
        if let Some(before) = now.checked_sub(PATIENCE) {
            let late = self.work.line.take_since(before);
            if !late.is_empty() {
                self.work.appetite.too_much();
                self.work.writes.give_back(late);
            }
        }
        self.work.writes.tick(now);
    }

    fn next_timer(&self) -> Instant {
        let late = self.work.line.oldest().map(|since| since + PATIENCE);
        let due = self.work.due.next_timer();
        let timers = [late, self.work.writes.next_timer(), self.work.look.next(), due];
        timers.into_iter().flatten().min().unwrap_or_else(|| instant() + PATIENCE)
    }

    fn take_hot(&mut self, first: Mail) {
        let (now, mut next) = (instant(), Some(first));
        while let Some(mail) = next {
            point!("hot.taken");
            // What has a key is never registered where rows are claimed.
            if let Mail::Leased(event) = mail {
                self.wait(Waiting::hot(event, now));
            }
            next = self.events.try_next();
        }
    }

    fn wait(&mut self, waiting: Waiting) {
        if self.work.is_stopping {
            return self.work.writes.give_back([waiting.tenure.row]);
        }
        self.work.line.push(waiting);
    }

    fn start_deliveries(&mut self) {
        let (workers, most) = (self.settings.workers.get(), self.settings.max_unsettled.get());
        while self.work.under_way() < workers as usize && self.work.unsettled() < most as usize {
            if self.waits_alone() {
                return;
            }
            match self.work.line.next() {
                Some(waiting) if waiting.is_suspect() => self.work.suspects.push(waiting),
                Some(waiting) => self.start(waiting),
                None => return,
            }
        }
    }

    fn start(&mut self, waiting: Waiting) {
        if waiting.is_hot() {
            self.observers.see(&Happening::Hot { events: 1 });
        }
        let (under_way, content) = waiting.start();
        let (under, attempts) =
            (Under::Claim(Arc::clone(&under_way.tenure)), under_way.job.attempts);
        let route = under_way.job.route_id;
        self.work.deliveries.start(under_way, Parcel { route, under, attempts, content });
    }

    fn take_in_all(&mut self, first: Result<(Id, Progress), JoinError>) {
        self.take_in(first);
        while let Some(done) = self.work.tasks.try_join_next_with_id() {
            self.take_in(done);
        }
    }

    fn take_in(&mut self, done: Result<(Id, Progress), JoinError>) {
        match done {
            Ok((_, Progress::Claimed(until, rows))) => self.claimed(until, rows),
            Ok((_, Progress::Looked(due))) => self.looked(due),
            Ok((_, Progress::Counted(counted))) => self.counted(counted),
            Ok((_, Progress::Settled(answer))) => self.settled(&answer),
            Ok((_, Progress::StillLocked(still))) => self.work.writes.still_locked(still),
            Ok((_, Progress::Renewed(until, kept))) => self.renewed(until, kept),
            Ok((_, Progress::Released)) => self.released(),
            Err(panic) => self.panicked(&panic),
        }
    }

    /// A store that panics is asked again.
    fn panicked(&mut self, panic: &JoinError) {
        let text = format!("the store panicked, asking it again: {panic}");
        let error = Error::new(ErrorKind::Unavailable, text);
        if self.work.claiming == Some(panic.id()) {
            let until = Deadline::after(&*self.courier.clock, Duration::ZERO);
            return self.claimed(until, Err(error));
        }
        if self.work.due.is_looked_by(panic.id()) {
            return self.looked(Err(error));
        }
        if self.work.suspects.is_counted_by(panic.id()) {
            return self.counted(Err(error));
        }
        self.observers.see(&Happening::trouble(Part::Settle, &error));
        self.write_panicked(panic.id());
    }

    fn take_in_deliveries(&mut self) {
        for (under_way, Over { outcome, .. }) in self.work.deliveries.take_finished() {
            self.work.appetite.delivered();
            self.judge(under_way, outcome);
        }
    }

    fn judge(&mut self, UnderWay { job, tenure, room, .. }: UnderWay, outcome: Outcome) {
        point!("judge");
        if matches!(outcome, Outcome::TooLate) {
            self.observers.see(&Happening::NotStarted { event_id: job.event_id() });
        }
        let Outcome::Judgeable(outcome) = job.judged(outcome) else {
            return self.work.writes.give_back([tenure.row]);
        };
        let verdict = self.judge.judge(&Delivered {
            attempts: job.attempts,
            // Where keys have no order, none can be held.
            keyed: job.ticket.key.is_some() && self.work.claim.order == Order::Key,
            outcome: outcome.as_ref().copied(),
            jitter: jitter(),
        });
        self.observers.see(&job.happening(&verdict, &*self.courier.clock));
        self.work.writes.decided(Decided { judged: Judged { job, verdict }, tenure, _room: room });
    }
}

/// One of so many.
#[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "a part of it")]
fn by_chance(count: u16) -> usize {
    ((jitter() - 0.5) * f64::from(count)) as usize
}
