//! The engine: one task that reads, starts deliveries, and settles what they came to.

mod hold;
mod stop;

use std::{sync::Arc, time::Duration};

use tokio::task::{Id, JoinError};
use tokio::time::{Instant, sleep_until};

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, Seq, jitter};
use crate::relay::Settings;
use crate::relay::careful::Careful;
use crate::relay::depth::Depths;
use crate::relay::dispatch::deliverer::{Deliverer, LeaseKind, Outcome};
use crate::relay::dispatch::dispatched::{Decision, Dispatched};
use crate::relay::dispatch::prefetch::Prefetch;
use crate::relay::dispatch::worker_pool::{Assignment, Finished};
use crate::relay::fetch::due_rows::{self, DueRows};
use crate::relay::fetch::local_events::HotWork;
use crate::relay::fetch::shard_queues::ShardQueues;
use crate::relay::ownership::Ownership;
use crate::relay::settle::locked;
use crate::relay::settle::{Answer, Batch, Settler};
use crate::relay::stop::Ended;
use crate::relay::work::{Progress, Work};
use crate::retry::{Delivered, RetryRules};
use crate::store::{Due, Pending, Settle, Store};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::verdict::Verdict;
use crate::wake::Wake;

#[derive(Debug)]
pub(super) struct Engine {
    pub(super) store: Arc<dyn Store>,
    pub(super) deliverer: Arc<Deliverer>,
    pub(super) ownership: Arc<Ownership>,
    pub(super) judge: RetryRules,
    pub(super) settings: Settings,
    pub(super) wake: Wake,
    pub(super) queues: ShardQueues,
    pub(super) routes: Prefetch,
    pub(super) work: Work,
    pub(super) hot: HotWork,
    pub(super) careful: Careful,
    pub(super) due: DueRows,
    /// How many shards there are.
    pub(super) all_shards: usize,
    pub(super) observers: Observers,
    pub(super) depths: Arc<Depths>,
}

impl Engine {
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
                Some(mail) = self.hot.next() => self.take_in_mail(mail),
                () = self.wake.wait() => self.wake(),
                () = self.ownership.changed() => self.hold(),
                () = sleep_until(timer) => self.tick(),
            }
        }
        self.stop().await
    }

    /// Starts everything that can start now.
    fn advance(&mut self) {
        self.take_in_deliveries();
        self.start_settle();
        self.start_hot_settle();
        self.start_reclaim();
        self.give_back();
        let is_live = self.deliverer.is_live();
        if is_live {
            self.start_deliveries();
        }
        self.queues.mind_slow_routes(instant());
        if is_live {
            self.start_count();
            self.start_read();
            self.start_look();
        }
        self.depths.tell(self.hot.depth() + self.queues.hot_depth(), self.queues.cold_depth());
        self.work.deliveries.go();
    }

    /// Something may have been committed.
    fn wake(&mut self) {
        self.queues.wake();
        self.due.hint();
    }

    /// Makes waiting rows new that are due, if it is time to look for them.
    fn start_look(&mut self) {
        if self.queues.has_many_keys_to_read() {
            return;
        }
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let Self { due, ownership, work, .. } = self;
        let shards = || ownership.shards().into_keys().collect();
        due.start(instant(), shards, |asked| {
            let look = due_rows::look(store, asked, patience);
            work.tasks.spawn(async move { Progress::Looked(look.await) }).id()
        });
    }

    fn looked(&mut self, due: Result<Due>) {
        self.due.ended(&due, instant());
        match due {
            Ok(due) => self.queues.promoted(due.rows),
            Err(error) => self.observers.on_event(&RelayEvent::failed(Component::Read, &error)),
        }
    }

    fn tick(&mut self) {
        let now = instant();
        self.queues.tick(now);
        if self.work.next_poll <= now {
            self.work.next_poll = now + self.settings.poll.mul_f64(jitter());
            self.queues.wake();
        }
        if self.work.next_sweep <= now {
            self.work.next_sweep = now + self.settings.sweep;
            self.queues.withdraw_overdue(now);
            self.queues.sweep();
            self.try_refused_again(now);
        }
        self.ask_for_locked(now);
        self.work.read_pause = self.work.read_pause.filter(|until| *until > now);
    }

    /// Tries verdicts again that were refused.
    fn try_refused_again(&mut self, now: Instant) {
        self.work.judged.extend(self.work.refused.drain(..), now);
        self.hot.try_refused_again();
    }

    fn next_timer(&self) -> Instant {
        let timers = [
            self.queues.next_due(),
            self.work.read_pause,
            self.work.locked.next_timer(),
            self.due.next_timer().filter(|_| !self.queues.has_many_keys_to_read()),
        ];
        let polls = self.work.next_poll.min(self.work.next_sweep);
        timers.into_iter().flatten().fold(polls, Instant::min)
    }

    fn start_deliveries(&mut self) {
        let (workers, most) = (self.settings.workers.get(), self.settings.max_unsettled.get());
        while self.routes.busy() + self.careful.suspects.to_begin() < workers as usize
            && self.unsettled() < most as usize
        {
            if self.careful.suspects.waits_alone(self.work.deliveries.is_empty()) {
                return;
            }
            let started = self.start_hot(false) || self.start_from_table() || self.start_hot(true);
            if !started {
                return;
            }
        }
    }

    /// Events in delivery or about to be, or delivered and not yet settled.
    fn unsettled(&self) -> usize {
        self.work.unsettled() + self.hot.unsettled() + self.careful.suspects.to_begin()
    }

    /// Whether nothing is in delivery, and every verdict is written that can be.
    pub(super) fn is_quiet(&self) -> bool {
        self.unsettled() == self.work.not_written() + self.hot.not_written()
    }

    pub(super) fn start(&mut self, row: Pending, epoch: Epoch) {
        let job = Dispatched::of(&row, epoch);
        self.start_job(job, row);
    }

    pub(super) fn start_job(&mut self, job: Dispatched, row: Pending) {
        let Pending { shard, attempts, content, .. } = row;
        let under = LeaseKind::Shard(shard, job.epoch);
        let assignment = Assignment { route: job.route_id, under, attempts, content };
        self.begin(job, assignment);
    }

    pub(super) fn begin(&mut self, job: Dispatched, assignment: Assignment) {
        self.routes.started(job.route_id);
        self.work.deliveries.start(job, assignment);
    }

    /// Whatever gathered while the last settle was under way goes in one call.
    fn start_settle(&mut self) {
        if !self.work.settling.is_empty() || self.work.judged.is_empty() {
            return;
        }
        self.work.settling = self.work.judged.take(instant());
        let settlements = self.work.settling.iter().map(Decision::settlement).collect();
        let settle = Settle { owner: self.ownership.owner.clone(), settlements };
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let observers = self.observers.clone();
        let task = self.work.tasks.spawn(async move {
            let settler = Settler { store: &*store, patience, observers: &observers };
            Progress::Settled(settler.settle(Batch::Shards(settle)).await)
        });
        self.work.settle = Some(task.id());
    }

    /// Asks which of the locked rows still are, if it is time.
    fn ask_for_locked(&mut self, now: Instant) {
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let tasks = &mut self.work.tasks;
        self.work.locked.ask(now, |rows| {
            let ask = async move { locked::ask(&*store, &rows, patience).await };
            tasks.spawn(async move { Progress::StillLocked(ask.await) }).id()
        });
    }

    /// Writes the verdicts whose rows are free.
    fn still_locked(&mut self, still: Result<Vec<Seq>>) {
        let now = instant();
        for judged in self.work.locked.answered(still, now) {
            if judged.job.is_hot {
                self.hot_judged(judged);
            } else {
                self.work.judged.extend([judged], now);
            }
        }
    }

    /// Keeps a verdict until its row is free.
    pub(super) fn set_aside(&mut self, judged: Decision) {
        let (seq, event_id) = (judged.job.ticket.seq, judged.job.event_id());
        self.observers.on_event(&RelayEvent::RowLocked { seq, event_id });
        self.work.locked.push(judged, instant());
    }

    fn take_in_all(&mut self, first: Result<(Id, Progress), JoinError>) {
        self.take_in(first);
        while let Some(done) = self.work.tasks.try_join_next_with_id() {
            self.take_in(done);
        }
    }

    fn take_in(&mut self, done: Result<(Id, Progress), JoinError>) {
        match done {
            Ok((_, Progress::Read(page, took))) => self.read(page, took),
            Ok((_, Progress::Looked(due))) => self.looked(due),
            Ok((_, Progress::Settled(answer))) => self.settled(&answer),
            Ok((_, Progress::HotSettled(answer))) => self.hot_settled(&answer),
            Ok((_, Progress::StillLocked(still))) => self.still_locked(still),
            Ok((id, Progress::Reclaimed(rows))) => {
                self.hot.reclaim_ended(id);
                self.queues.reclaimed(rows);
            }
            Ok((_, Progress::Counted(counted))) => self.counted(counted),
            Err(panic) => self.panicked(&panic),
        }
    }

    /// A store that panics is asked again.
    fn panicked(&mut self, panic: &JoinError) {
        if self.hot_settle_panicked(panic.id()) {
            return;
        }
        let text = format!("the store panicked, asking it again: {panic}");
        if self.work.reading.as_ref().is_some_and(|(id, _)| *id == panic.id()) {
            return self.read(Err(Error::new(ErrorKind::Unavailable, text)), Duration::ZERO);
        }
        if self.due.is_looked_by(panic.id()) {
            return self.looked(Err(Error::new(ErrorKind::Unavailable, text)));
        }
        if self.careful.suspects.is_counted_by(panic.id()) {
            return self.counted(Err(Error::new(ErrorKind::Unavailable, text)));
        }
        if self.work.locked.is_asked_by(panic.id()) {
            return self.still_locked(Err(Error::new(ErrorKind::Unavailable, text)));
        }
        self.observers.on_event(&RelayEvent::failed_with(Component::Settle, text));
        if self.hot.reclaim_ended(panic.id()) {
            return;
        }
        if self.work.settle == Some(panic.id()) {
            // At the next sweep, for a driver that panics on these will do so again.
            self.work.refused.append(&mut self.work.settling);
        }
    }

    fn take_in_deliveries(&mut self) {
        for (job, Finished { outcome, at_once }) in self.work.deliveries.take_finished() {
            self.routes.ended(job.route_id, at_once);
            self.judge(job, outcome);
        }
    }

    pub(super) fn judge(&mut self, job: Dispatched, outcome: Outcome) {
        crash_point!("judge");
        if matches!(outcome, Outcome::TooLate) {
            self.observers.on_event(&RelayEvent::NotStarted { event_id: job.event_id() });
        }
        let Outcome::Judgeable(outcome) = job.judged(outcome) else {
            if job.is_hot {
                return self.hot_too_late(&job);
            }
            self.queues.put_back(&job.ticket);
            return;
        };
        let verdict = self.judge.judge(&Delivered {
            attempts: job.attempts,
            keyed: job.ticket.key.is_some(),
            outcome: outcome.as_ref().copied(),
            jitter: jitter(),
        });
        self.observers.on_event(&job.relay_event(&verdict, &*self.deliverer.clock));
        if job.is_hot {
            return self.hot_judged(Decision { job, verdict });
        }
        self.queues.judged(&job.ticket, &verdict);
        self.work.judged.extend([Decision { job, verdict }], instant());
    }

    fn settled(&mut self, answer: &Answer) {
        crash_point!("settle.taken");
        let held = self.ownership.shards();
        for judged in std::mem::take(&mut self.work.settling) {
            let Decision { job, verdict } = &judged;
            let (seq, shard) = (job.ticket.seq, job.ticket.shard);
            if answer.failed.contains(&seq) {
                self.work.refused.push(judged);
            } else if answer.locked.contains(&seq) {
                self.set_aside(judged);
            } else if answer.applied.contains(&seq) && held.get(&shard) == Some(&job.epoch) {
                self.queues.settled(&job.ticket, verdict);
                self.note_wait(verdict);
            } else {
                self.overtaken(&judged, answer);
            }
        }
        self.hold();
    }

    /// What was put off is due at a time that is known here.
    pub(super) fn note_wait(&mut self, verdict: &Verdict) {
        if let Verdict::Retry { delay, .. } | Verdict::Defer { delay, .. } = verdict {
            self.due.at(instant() + *delay);
        }
    }

    fn overtaken(&mut self, Decision { job, verdict }: &Decision, answer: &Answer) {
        if answer.refused.contains(&job.ticket.shard) {
            self.ownership.drop_shard(job.ticket.shard, job.epoch);
        }
        if !answer.applied.contains(&job.ticket.seq) {
            self.observers.on_event(&RelayEvent::Fenced { event_id: job.event_id() });
        }
        self.queues.overtaken(&job.ticket, verdict);
    }
}
