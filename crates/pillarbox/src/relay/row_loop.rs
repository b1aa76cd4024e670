//! The relay that claims rows: any relay delivers any due row, under a lease on the row itself.
//!
//! A row that waits here for a worker could be another relay's, so few do, and not for long.

use std::sync::Arc;
use std::time::Duration;

use tokio::time::{Instant, sleep, sleep_until};

use super::dispatch::Dispatcher;
use super::dispatch::crash_guard::{Action, Counted, CrashGuard};
use super::dispatch::deliverer::Outcome;
use super::dispatch::dispatched::Dispatched;
use super::dispatch::fair_share::FairShare;
use super::fetch::due_rows::DueRows;
use super::fetch::local_events::LAST_WRITERS_POLL;
use super::fetch::ready_rows::{ReadyRows, RowHold, Waiting};
use super::fetch::row_claims::{Load, RowClaims};
use super::fetch::row_lease::{Renewals, Renewed, RowLeaseGuard};
use super::maintenance::Depths;
use super::ownership::Ownership;
use super::running::{Ended, Parts, StopDeadlines, Unfinished};
use super::settle::release::Releases;
use super::settle::{Decided, Fence, SettleAnswer, Settled, Settler};
use super::store_tasks::StoreTasks;
use super::{SECOND, Settings};
use crate::clock::{Deadline, instant};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::local_queue::{LocalQueue, LocalReceiver, Message, PendingWriters};
use crate::store::{Content, Due, Pending, RowLease};
use crate::telemetry::{Observers, RelayEvent};
use crate::verdict::Verdict;
use crate::wake::Wake;

/// A row that no worker has begun with for so long is left to another relay.
const LONGEST_WAIT: Duration = SECOND;

#[derive(Debug)]
pub(super) struct RowLoop {
    settings: Settings,
    ownership: Arc<Ownership>,
    /// How many shards there are.
    all_shards: usize,
    tasks: StoreTasks<Answer>,
    claims: RowClaims,
    ready: ReadyRows,
    queue: LocalQueue,
    receiver: LocalReceiver,
    due: DueRows,
    guard: CrashGuard<Waiting>,
    dispatch: Dispatcher<RowHold, FairShare>,
    settler: Settler<RowHold>,
    releases: Releases,
    renewals: Renewals,
    wake: Wake,
    observers: Observers,
    depths: Arc<Depths>,
    /// Nothing more is started.
    is_finishing: bool,
}

/// An answer of the store.
#[derive(Debug)]
enum Answer {
    Claimed(Deadline, Result<Vec<Pending>>),
    /// Which waiting rows are new now.
    Promoted(Result<Due>),
    Counted(Result<Counted>),
    Settled(SettleAnswer),
    Renewed(Result<Renewed>),
    Released(Result<u64>),
}

impl RowLoop {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { settings, ownership, observers, deliverer, config, .. } = parts;
        let (owner, clock, fence) = (&ownership.owner, &deliverer.clock, Fence::ClaimedRows);
        Self {
            tasks: StoreTasks::new(parts.store, settings.lease),
            all_shards: usize::from(config.shards.get()),
            claims: RowClaims::new(
                owner.clone(),
                config,
                &settings,
                Arc::clone(clock),
                observers.clone(),
            ),
            ready: ReadyRows::default(),
            queue: parts.local.0,
            receiver: parts.local.1,
            due: DueRows::new(settings.poll, instant(), observers.clone()),
            guard: CrashGuard::new(settings.max_crashes.get(), observers.clone()),
            settler: Settler::new(fence, owner.clone(), settings.sweep, observers.clone()),
            releases: Releases::new(fence, owner.clone(), observers.clone()),
            renewals: Renewals::new(
                owner.clone(),
                settings.lease,
                Arc::clone(clock),
                observers.clone(),
            ),
            dispatch: Dispatcher::new(
                deliverer,
                parts.workers.clone(),
                parts.workers,
                parts.rules,
                config.mode.order,
                observers.clone(),
            ),
            wake: parts.wake,
            depths: parts.depths,
            settings,
            ownership,
            observers,
            is_finishing: false,
        }
    }

    /// Runs until `stop` is ready, then delivers what is due and finishes what has started.
    pub(super) async fn run(mut self, stop: impl Future<Output = ()>) -> Ended {
        tokio::pin!(stop);
        loop {
            self.advance();
            let timer = self.next_timer();
            tokio::select! {
                () = &mut stop => break,
                () = self.dispatch.finished() => {}
                Some(answer) = self.tasks.next() => self.take_answers(answer),
                Some(message) = self.receiver.next() => self.take_messages(message),
                () = self.wake.wait() => self.look(),
                () = self.ownership.changed() => self.sync_shards(),
                () = sleep_until(timer) => self.tick(),
            }
        }
        let deadlines = StopDeadlines::new(&self.settings, instant());
        let writers = self.queue.close();
        let unfinished = self.deliver_due(&writers, deadlines.start).await;
        let abandoned = self.finish(&writers, deadlines.finish).await;
        Ended { abandoned, unfinished }
    }

    /// Starts everything that can start now.
    fn advance(&mut self) {
        self.take_finished();
        self.start_writes();
        if self.dispatch.is_live() {
            self.start_deliveries();
            self.guard.start(self.is_quiet(), &mut self.tasks, Answer::Counted);
            let shards = || self.claims.shards().to_vec();
            self.due.start(instant(), shards, &mut self.tasks, Answer::Promoted);
            self.start_claim();
        }
        self.depths.tell(self.ready.local(), self.ready.claimed());
        self.dispatch.go();
    }

    fn tick(&mut self) {
        let now = instant();
        self.claims.timer.tick(now);
        if let Some(before) = now.checked_sub(LONGEST_WAIT) {
            let late = self.ready.take_since(before);
            if !late.is_empty() {
                self.claims.size.too_much();
                self.releases.push(late);
            }
        }
    }

    fn next_timer(&self) -> Instant {
        let late = self.ready.oldest().map(|since| since + LONGEST_WAIT);
        let timers = [late, self.write_timer(), self.claims.timer.next(), self.due.next_timer()];
        timers.into_iter().flatten().min().unwrap_or_else(|| instant() + LONGEST_WAIT)
    }

    fn write_timer(&self) -> Option<Instant> {
        [self.settler.next_timer(), self.renewals.next_timer()].into_iter().flatten().min()
    }

    /// Something may have been committed.
    fn look(&mut self) {
        self.claims.timer.now();
        self.due.hint();
    }

    /// Shards mean nothing for a delivery here. They say who leads the maintenance, and the highest
    /// are given away first, so that the lead stays where it is.
    fn sync_shards(&mut self) {
        let owned = self.ownership.shards();
        let mut given = Vec::new();
        self.ownership.drain(|count| {
            given.extend(owned.keys().rev().take(count).copied());
            given.clone()
        });
        if !given.is_empty() {
            self.ownership.drained(&given);
        }
        self.wake.alone(self.ownership.shards().len() == self.all_shards);
    }

    fn take_messages(&mut self, first: Message) {
        let (now, mut next) = (instant(), Some(first));
        while let Some(message) = next {
            crash_point!("hot.taken");
            // An event with a key is never registered where rows are claimed.
            if let Message::Leased(event) = message {
                self.wait(Waiting::local(event, now));
            }
            next = self.receiver.try_next();
        }
    }

    fn wait(&mut self, waiting: Waiting) {
        if self.is_finishing {
            return self.releases.push([waiting.guard.row]);
        }
        self.ready.push(waiting);
    }

    fn start_claim(&mut self) {
        if self.guard.waits_alone(self.dispatch.is_empty()) {
            return;
        }
        let workers = self.settings.workers.get() as usize;
        let load = Load {
            free_workers: workers.saturating_sub(self.under_way()),
            waiting: self.ready.claimed(),
            unsettled: self.unsettled(),
        };
        let skip = self.settler.blocked_rows();
        self.claims.start(load, skip, &mut self.tasks, Answer::Claimed);
    }

    fn start_deliveries(&mut self) {
        let most = self.settings.max_unsettled.get() as usize;
        while self.dispatch.has_room(self.guard.to_begin()) && self.unsettled() < most {
            if self.guard.waits_alone(self.dispatch.is_empty()) {
                return;
            }
            match self.ready.next() {
                Some(waiting) if waiting.is_suspect() => self.guard.push(waiting),
                Some(waiting) => self.start(waiting),
                None => return,
            }
        }
    }

    fn start(&mut self, waiting: Waiting) {
        if waiting.is_local() {
            self.observers.on_event(&RelayEvent::FromLocalQueue { events: 1 });
        }
        let (dispatched, hold, assignment) = waiting.start();
        self.dispatch.start(dispatched, hold, assignment);
    }

    /// Events in delivery or about to be.
    fn under_way(&self) -> usize {
        self.dispatch.len() + self.guard.to_begin()
    }

    /// Those, and what is delivered and not yet settled.
    fn unsettled(&self) -> usize {
        self.under_way() + self.settler.len()
    }

    /// Whether nothing is in delivery, and every verdict is written that can be.
    fn is_quiet(&self) -> bool {
        self.dispatch.is_empty() && self.settler.is_quiet()
    }

    fn take_finished(&mut self) {
        for ((dispatched, hold), finished) in self.dispatch.take_finished() {
            self.claims.size.delivered();
            self.decide(dispatched, hold, finished.outcome);
        }
    }

    fn decide(&mut self, dispatched: Dispatched, mut hold: RowHold, outcome: Outcome) {
        match self.dispatch.verdict(&dispatched, outcome) {
            Some(verdict) => {
                hold.unload();
                self.settler.push(Decided { dispatched, verdict, hold });
            }
            None => self.releases.push([hold.guard.row]),
        }
    }

    fn start_writes(&mut self) {
        let now = instant();
        self.settler.start(now, &mut self.tasks, Answer::Settled);
        self.releases.start(&mut self.tasks, Answer::Released);
        if self.renewals.is_due(now) {
            let guards = self.in_flight().filter(|guard| !guard.is_lost());
            let guards = guards.map(Arc::clone).collect();
            self.renewals.start(guards, &mut self.tasks, Answer::Renewed);
        }
    }

    /// The leases of all rows that wait, are delivered, or are to be settled.
    fn in_flight(&self) -> impl Iterator<Item = &Arc<RowLeaseGuard>> {
        let waiting = self.ready.guards().chain(self.guard.iter().map(|waiting| &waiting.guard));
        let started = self.dispatch.holds().chain(self.settler.holds()).map(|hold| &hold.guard);
        waiting.chain(started)
    }

    fn take_answers(&mut self, first: Answer) {
        let mut next = Some(first);
        while let Some(answer) = next {
            self.take_answer(answer);
            next = self.tasks.try_next();
        }
    }

    fn take_answer(&mut self, answer: Answer) {
        match answer {
            Answer::Claimed(until, rows) => self.claimed(until, rows),
            Answer::Promoted(due) => {
                if !self.due.answered(due, instant()).is_empty() {
                    self.claims.timer.now();
                }
            }
            Answer::Counted(counted) => self.counted(counted),
            Answer::Settled(answer) => {
                for settled in self.settler.answered(answer) {
                    self.settled(&settled);
                }
            }
            Answer::Renewed(renewed) => {
                self.renewals.answered(renewed);
                self.ready.drop_lost();
                self.guard.retain(|waiting| !waiting.guard.is_lost());
            }
            Answer::Released(released) => {
                self.releases.answered(released);
                self.claims.timer.now();
            }
        }
    }

    fn claimed(&mut self, until: Deadline, rows: Result<Vec<Pending>>) {
        let rows = rows.map(|rows| self.without_known(rows));
        let due = &mut self.due;
        let claimed = self.claims.answered(until, rows, instant(), |rows| due.note_early(rows));
        claimed.rows.into_iter().for_each(|waiting| self.wait(waiting));
        self.releases.push(claimed.too_many);
    }

    /// Leaves out rows that are no events and are in flight or settled already. A claim may return
    /// them without a lease, and then again until their verdicts are written.
    fn without_known(&self, mut rows: Vec<Pending>) -> Vec<Pending> {
        if rows.iter().any(|row| matches!(row.content, Content::Invalid(_))) {
            let mut known = self.claims.settled_meanwhile().to_vec();
            known.extend(self.in_flight().map(|guard| guard.row));
            rows.retain(|row| !known.contains(&RowLease::from(row)));
        }
        rows
    }

    fn settled(&mut self, Settled { dispatched, verdict, .. }: &Settled) {
        let is_no_event = dispatched.route.is_none();
        if is_no_event {
            self.claims.note_settled(dispatched.row_lease());
        }
        match verdict {
            Verdict::Retry { delay, .. } | Verdict::Defer { delay, .. } => {
                self.due.at(instant() + *delay);
            }
            // The next of its key can be claimed now, or the next row that is larger than any event.
            _ if dispatched.row.key.is_some() || is_no_event => self.claims.timer.now(),
            _ => {}
        }
    }

    /// A row that is not to start here is given back. Its count, if it has one, stays with it.
    fn counted(&mut self, counted: Result<Counted>) {
        if counted.is_err() {
            self.claims.timer.failed(instant());
        }
        let goes_on = !self.is_finishing;
        for (waiting, action) in self.guard.counted(counted) {
            match action {
                Action::Start if goes_on => self.start(waiting),
                Action::GiveUp(failure) if goes_on => {
                    let (dispatched, hold, _) = waiting.start();
                    self.decide(dispatched, hold, Outcome::Judgeable(Err(failure.into())));
                }
                _ => self.releases.push([waiting.guard.row]),
            }
        }
        if self.is_finishing {
            // Those that were counted before would wait to be alone.
            self.leave_suspects();
        }
    }

    /// Gives back suspects that are not to be counted here any more.
    fn leave_suspects(&mut self) {
        let Self { guard, releases, .. } = self;
        guard.retain(|waiting| {
            releases.push([waiting.guard.row]);
            false
        });
    }

    /// Delivers what the local queue has accepted, and claims until nothing is due. Returns the
    /// shards that may have more of it.
    async fn deliver_due(&mut self, writers: &PendingWriters, until: Instant) -> Unfinished {
        self.ownership.stop_taking();
        self.claims.timer.stop_polling();
        self.due.look_last(instant());
        loop {
            self.advance();
            // Without a lease nothing may start, and another relay delivers it.
            if !self.dispatch.is_live() {
                return None;
            }
            if !self.has_due_events(writers) {
                return Some(Vec::new());
            }
            if instant() >= until {
                return Some(self.claims.shards().to_vec());
            }
            let timer = self.next_timer().min(until);
            let is_awaited = writers.are_awaited(&self.receiver);
            tokio::select! {
                () = self.dispatch.finished() => {}
                Some(answer) = self.tasks.next() => self.take_answers(answer),
                Some(message) = self.receiver.next() => self.take_messages(message),
                () = self.ownership.changed() => self.sync_shards(),
                () = sleep(LAST_WRITERS_POLL), if is_awaited => {}
                () = sleep_until(timer) => self.tick(),
            }
        }
    }

    /// Whether there are, or may be, events to start.
    fn has_due_events(&self, writers: &PendingWriters) -> bool {
        // The next event of a key can be claimed when the one before it is settled.
        self.unsettled() > 0
            || self.claims.is_due()
            || self.due.is_looking()
            || self.ready.guards().next().is_some()
            || self.guard.iter().next().is_some()
            || writers.are_awaited(&self.receiver)
    }

    /// Gives back what no worker has begun with, finishes deliveries that have started and writes
    /// their verdicts. Returns how many deliveries were abandoned.
    async fn finish(mut self, writers: &PendingWriters, until: Instant) -> usize {
        self.is_finishing = true;
        self.releases.push(self.ready.take_all());
        self.leave_suspects();
        self.settler.retry_refused();
        self.ownership.leave();
        self.sync_shards();
        crash_point!("drain");
        loop {
            self.take_finished();
            self.start_writes();
            let is_awaited = writers.are_awaited(&self.receiver);
            if self.is_done() && !is_awaited {
                return 0;
            }
            let timer = self.write_timer().unwrap_or(until);
            tokio::select! {
                () = self.dispatch.finished() => {}
                Some(answer) = self.tasks.next() => self.take_answers(answer),
                Some(message) = self.receiver.next() => self.take_messages(message),
                () = sleep(LAST_WRITERS_POLL), if is_awaited => {}
                () = sleep_until(until) => break,
                () = sleep_until(timer) => {}
            }
        }
        let abandoned = self.unsettled();
        self.observers.abandoned(abandoned);
        abandoned
    }

    /// Whether everything is settled or given back.
    fn is_done(&self) -> bool {
        self.unsettled() == 0 && !self.claims.is_under_way() && self.releases.is_empty()
    }
}
