//! The relay that owns shards: reads their rows in order, delivers, and settles.

use std::sync::Arc;

use tokio::time::{Instant, sleep, sleep_until};

use super::Settings;
use super::dispatch::Dispatcher;
use super::dispatch::crash_guard::{Action, Counted, CrashGuard, TakenOver, Takeovers};
use super::dispatch::deliverer::{LeaseKind, Outcome};
use super::dispatch::dispatched::Dispatched;
use super::dispatch::prefetch::Prefetch;
use super::fetch::due_rows::DueRows;
use super::fetch::local_events::{LAST_WRITERS_POLL, LocalEvents, lease_of};
use super::fetch::shard_queues::{RowKey, ShardQueues};
use super::fetch::shard_reader::{ShardReader, TimedPage};
use super::maintenance::Depths;
use super::ownership::Ownership;
use super::running::{Ended, Parts, StopDeadlines, Unfinished};
use super::settle::release::Releases;
use super::settle::{Decided, Fence, SettleAnswer, Settled, Settler};
use super::store_tasks::StoreTasks;
use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::local_queue::{KeyedEvent, Message, Registration};
use crate::store::{Due, RowLease};
use crate::telemetry::{Observers, RelayEvent};
use crate::verdict::Verdict;
use crate::wake::Wake;

#[derive(Debug)]
pub(super) struct ShardLoop {
    settings: Settings,
    ownership: Arc<Ownership>,
    /// How many shards there are.
    all_shards: usize,
    tasks: StoreTasks<Answer>,
    queues: ShardQueues,
    reader: ShardReader,
    local: LocalEvents,
    due: DueRows,
    takeovers: Takeovers,
    guard: CrashGuard<TakenOver>,
    dispatch: Dispatcher<(), Prefetch>,
    settler: Settler<()>,
    /// Of events that run under the lease of their row.
    local_settler: Settler<()>,
    releases: Releases,
    wake: Wake,
    observers: Observers,
    depths: Arc<Depths>,
}

/// An answer of the store.
#[derive(Debug)]
enum Answer {
    Read(Result<TimedPage>),
    /// Which waiting rows are new now.
    Promoted(Result<Due>),
    Counted(Result<Counted>),
    Settled(SettleAnswer),
    LocalSettled(SettleAnswer),
    Released(Result<u64>),
    Reclaimed(Result<u64>),
}

impl ShardLoop {
    pub(super) fn new(parts: Parts) -> Self {
        let Parts { settings, ownership, observers, .. } = parts;
        let (owner, sweep) = (&ownership.owner, settings.sweep);
        let settler = |fence| Settler::new(fence, owner.clone(), sweep, observers.clone());
        Self {
            tasks: StoreTasks::new(parts.store, settings.lease),
            all_shards: usize::from(parts.config.shards.get()),
            queues: ShardQueues::new(settings.batch.get()),
            reader: ShardReader::new(&settings, observers.clone()),
            local: LocalEvents::new(parts.local.0, parts.local.1, observers.clone()),
            due: DueRows::new(settings.poll, instant(), observers.clone()),
            takeovers: Takeovers::default(),
            guard: CrashGuard::new(settings.max_crashes.get(), observers.clone()),
            dispatch: Dispatcher::new(
                parts.deliverer,
                parts.workers.clone(),
                Prefetch::new(parts.workers),
                parts.rules,
                parts.config.mode.order,
                observers.clone(),
            ),
            settler: settler(Fence::Shards),
            local_settler: settler(Fence::LocalRows),
            releases: Releases::new(Fence::LocalRows, owner.clone(), observers.clone()),
            wake: parts.wake,
            depths: parts.depths,
            settings,
            ownership,
            observers,
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
                Some(message) = self.local.next_message() => self.take_messages(message),
                () = self.wake.wait() => self.look(),
                () = self.ownership.changed() => self.sync_shards(),
                () = sleep_until(timer) => self.reader.tick(&mut self.queues, instant()),
            }
        }
        let deadlines = StopDeadlines::new(&self.settings, instant());
        let unfinished = self.deliver_due(deadlines.start).await;
        let abandoned = self.finish(deadlines.finish).await;
        Ended { abandoned, unfinished }
    }

    /// Starts everything that can start now.
    fn advance(&mut self) {
        self.take_finished();
        self.start_writes();
        self.local.start_reclaim(&mut self.tasks, Answer::Reclaimed);
        self.give_back_shards();
        let is_live = self.dispatch.is_live();
        if is_live {
            self.start_deliveries();
        }
        self.queues.mind_slow_routes(instant());
        if is_live {
            self.guard.start(self.is_quiet(), &mut self.tasks, Answer::Counted);
            self.reader.start(&mut self.queues, &mut self.tasks, Answer::Read);
            self.start_promotion();
        }
        self.depths.tell(self.local.len() + self.queues.local_depth(), self.queues.table_depth());
        self.dispatch.go();
    }

    fn next_timer(&self) -> Instant {
        let due = self.due.next_timer().filter(|_| !self.queues.has_many_keys_to_read());
        let settle = [self.settler.next_timer(), self.local_settler.next_timer()];
        let timers = settle.into_iter().chain([self.queues.next_due(), due]);
        timers.flatten().fold(self.reader.next_timer(), Instant::min)
    }

    /// Something may have been committed.
    fn look(&mut self) {
        self.queues.wake();
        self.due.hint();
    }

    /// Makes waiting rows new that are due.
    fn start_promotion(&mut self) {
        if !self.queues.has_many_keys_to_read() {
            let shards = || self.ownership.shards().into_keys().collect();
            self.due.start(instant(), shards, &mut self.tasks, Answer::Promoted);
        }
    }

    fn start_writes(&mut self) {
        let now = instant();
        self.settler.start(now, &mut self.tasks, Answer::Settled);
        self.local_settler.start(now, &mut self.tasks, Answer::LocalSettled);
        self.releases.start(&mut self.tasks, Answer::Released);
    }

    fn start_deliveries(&mut self) {
        let most = self.settings.max_unsettled.get() as usize;
        while self.dispatch.has_room(self.guard.to_begin()) && self.unsettled() < most {
            if self.guard.waits_alone(self.dispatch.is_empty()) {
                return;
            }
            let is_started =
                self.start_local(false) || self.start_from_table() || self.start_local(true);
            if !is_started {
                return;
            }
        }
    }

    /// Starts an event from memory, if it is the turn of one.
    fn start_local(&mut self, is_table_empty: bool) -> bool {
        let capacity = self.dispatch.capacity();
        let Some((dispatched, assignment)) =
            self.local.next(&mut self.queues, capacity, is_table_empty)
        else {
            return false;
        };
        self.observers.on_event(&RelayEvent::FromLocalQueue { events: 1 });
        self.dispatch.start(dispatched, (), assignment);
        true
    }

    /// Starts the next row from the table, or has it counted first.
    fn start_from_table(&mut self) -> bool {
        if self.guard.is_counting() {
            return false;
        }
        let Some((row, epoch)) = self.queues.next_start(self.dispatch.capacity()) else {
            return false;
        };
        if self.takeovers.takes(row.shard) {
            self.guard.push(TakenOver { row, epoch });
        } else {
            let (dispatched, assignment) = Dispatched::from_table(row, epoch);
            self.dispatch.start(dispatched, (), assignment);
        }
        true
    }

    /// Events in delivery or about to be, or delivered and not yet settled.
    fn unsettled(&self) -> usize {
        let started = self.dispatch.len() + self.guard.to_begin();
        started + self.settler.len() + self.local_settler.len()
    }

    /// Whether nothing is in delivery, and every verdict is written that can be.
    fn is_quiet(&self) -> bool {
        let started = self.dispatch.len() + self.guard.to_begin();
        started == 0 && self.settler.is_quiet() && self.local_settler.is_quiet()
    }

    fn take_finished(&mut self) {
        for ((dispatched, ()), finished) in self.dispatch.take_finished() {
            self.decide(dispatched, finished.outcome);
        }
    }

    fn decide(&mut self, dispatched: Dispatched, outcome: Outcome) {
        let Some(verdict) = self.dispatch.verdict(&dispatched, outcome) else {
            return self.put_back(&dispatched);
        };
        let settler = if dispatched.is_local {
            &mut self.local_settler
        } else {
            self.queues.decided(&dispatched.row, &verdict);
            &mut self.settler
        };
        settler.push(Decided { dispatched, verdict, hold: () });
    }

    /// Its lease was too short: whoever reads the row delivers it.
    fn put_back(&mut self, dispatched: &Dispatched) {
        if dispatched.is_local {
            self.local.forget(dispatched.row.seq);
            self.releases.push([dispatched.row_lease()]);
        } else {
            self.queues.put_back(&dispatched.row);
        }
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
            Answer::Read(page) => self.take_page(page),
            Answer::Promoted(due) => {
                let promoted = self.due.answered(due, instant());
                self.queues.promoted(promoted);
            }
            Answer::Counted(counted) => self.counted(counted),
            Answer::Settled(answer) => self.settled(answer),
            Answer::LocalSettled(answer) => {
                for settled in self.local_settler.answered(answer) {
                    self.local.forget(settled.dispatched.row.seq);
                    self.note_wait(&settled);
                }
            }
            Answer::Released(released) => {
                for RowLease { shard, .. } in self.releases.answered(released) {
                    self.queues.look_at_shard_again(shard);
                }
            }
            Answer::Reclaimed(reclaimed) => {
                let rows = self.local.reclaimed(reclaimed);
                self.queues.reclaimed(rows);
            }
        }
    }

    fn take_page(&mut self, page: Result<TimedPage>) {
        // What is registered was so before its commit: messages first, then what was read.
        while let Some(message) = self.local.try_next_message() {
            self.take_message(message);
        }
        let page = page.map(|(mut page, took)| {
            self.local.note_lapsed(&mut page.rows);
            self.due.note_early(&page.rows);
            (page, took)
        });
        self.reader.answered(page, &mut self.queues);
    }

    fn settled(&mut self, answer: SettleAnswer) {
        let owned = self.ownership.shards();
        for settled in self.settler.answered(answer) {
            let Settled { dispatched, verdict, is_applied, is_shard_lost } = &settled;
            let RowKey { shard, .. } = dispatched.row;
            if *is_applied && owned.get(&shard) == Some(&dispatched.epoch) {
                self.queues.settled(&dispatched.row, verdict);
                self.note_wait(&settled);
                continue;
            }
            if *is_shard_lost {
                self.ownership.drop_shard(shard, dispatched.epoch);
            }
            self.queues.overtaken(&dispatched.row, verdict);
        }
        self.sync_shards();
    }

    /// A row that was put off is due at a time that is known here.
    fn note_wait(&mut self, Settled { verdict, is_applied, .. }: &Settled) {
        if let Verdict::Retry { delay, .. } | Verdict::Defer { delay, .. } = verdict
            && *is_applied
        {
            self.due.at(instant() + *delay);
        }
    }

    fn counted(&mut self, counted: Result<Counted>) {
        if counted.is_err() {
            self.reader.pause();
        }
        for (TakenOver { row, epoch }, action) in self.guard.counted(counted) {
            let is_ours = self.queues.holds(row.shard, epoch);
            match action {
                Action::Start if is_ours => {
                    let (dispatched, assignment) = Dispatched::from_table(row, epoch);
                    self.dispatch.start(dispatched.suspect(true), (), assignment);
                }
                Action::GiveUp(failure) if is_ours => {
                    let dispatched = Dispatched::of(&row, epoch);
                    self.decide(dispatched, Outcome::Judgeable(Err(failure.into())));
                }
                // It is locked, perhaps: to ask again at once would keep the others waiting.
                Action::PutBack if is_ours => {
                    self.takeovers.put_back(row.shard);
                    self.queues.put_off(&RowKey::from(&row), instant() + super::SECOND);
                }
                _ => self.queues.put_back(&RowKey::from(&row)),
            }
        }
    }

    /// Takes in what writers have told; never more than the queue has room for.
    fn take_messages(&mut self, first: Message) {
        let mut next = Some(first);
        while let Some(message) = next {
            self.take_message(message);
            next = self.local.try_next_message();
        }
    }

    fn take_message(&mut self, message: Message) {
        if self.local.is_stopped() {
            return self.turn_away(message);
        }
        crash_point!("hot.taken");
        match message {
            Message::Leased(event) => self.local.push(*event),
            Message::Registered(rows) => self.register(&rows),
            Message::Committed(events) => events.into_iter().for_each(|it| self.commit(it)),
            Message::Withdrawn(rows) => rows.into_iter().for_each(|row| self.queues.withdraw(row)),
        }
    }

    /// After the stop, the row of an event is given back, and other relays are to look.
    fn turn_away(&mut self, message: Message) {
        match message {
            Message::Leased(event) => self.releases.push([lease_of(&event)]),
            Message::Committed(_) => self.wake.now(),
            Message::Registered(_) | Message::Withdrawn(_) => {}
        }
    }

    /// A writer may know of a shard before the queues do.
    fn register(&mut self, rows: &[Registration]) {
        if !rows.iter().all(|row| self.queues.holds(row.shard, row.epoch)) {
            self.sync_shards();
        }
        let now = instant();
        rows.iter().for_each(|row| self.queues.register(row, now));
    }

    fn commit(&mut self, event: KeyedEvent) {
        let shard = event.registration.shard;
        if !self.queues.commit(event) {
            self.queues.look_at_shard_again(shard);
            // Another relay may own the shard now.
            self.wake.now();
        }
    }

    /// Works on the shards that are owned now, and drains those that are to be given back.
    fn sync_shards(&mut self) {
        let owned = self.ownership.shards();
        self.queues.hold(&owned);
        self.wake.alone(owned.len() == self.all_shards);
        let mut drained = Vec::new();
        self.ownership.drain(|count| {
            drained = self.queues.drain(count);
            drained.clone()
        });
        if !drained.is_empty() {
            self.recall(|lease| matches!(lease, LeaseKind::Shard(it, _) if drained.contains(it)));
        }
        let unsettled = self.settings.max_unsettled.get();
        self.takeovers.add(self.ownership.take_lapsed(), unsettled);
        self.leave_suspects();
    }

    /// Puts back suspects that are not ours to start any more.
    fn leave_suspects(&mut self) {
        let Self { guard, takeovers, queues, .. } = self;
        guard.retain(|suspect| {
            let stays = queues.holds(suspect.row.shard, suspect.epoch);
            if !stays {
                queues.put_back(&RowKey::from(&suspect.row));
            }
            stays
        });
        takeovers.retain(|shard| queues.works_on(shard));
    }

    /// What no worker has begun with need not be waited for.
    fn recall(&mut self, is_meant: impl Fn(&LeaseKind) -> bool) {
        self.dispatch.recall(is_meant);
        self.take_finished();
    }

    /// A drained shard is given back as soon as nothing of it is under way.
    fn give_back_shards(&mut self) {
        let drained = self.queues.drained();
        if !drained.is_empty() {
            self.ownership.drained(&drained);
            self.sync_shards();
        }
    }

    /// Delivers what the local queue has accepted, and what a last read of the shards finds due.
    /// Returns the shards that may have more of it.
    async fn deliver_due(&mut self, until: Instant) -> Unfinished {
        self.local.close();
        self.ownership.stop_taking();
        self.sync_shards();
        self.due.look_last(instant());
        self.queues.begin_last_pass();
        loop {
            self.advance();
            // Without a lease nothing may start, and who has the shards next delivers it.
            if !self.dispatch.is_live() {
                return None;
            }
            if !self.has_due_events() {
                return Some(Vec::new());
            }
            if instant() >= until {
                return Some(self.ownership.shards().into_keys().collect());
            }
            let timer = self.next_timer().min(until);
            tokio::select! {
                () = self.dispatch.finished() => {}
                Some(answer) = self.tasks.next() => self.take_answers(answer),
                Some(message) = self.local.next_message() => self.take_messages(message),
                () = self.ownership.changed() => self.sync_shards(),
                () = sleep(LAST_WRITERS_POLL), if self.local.is_awaited() => {}
                () = sleep_until(timer) => self.reader.tick(&mut self.queues, instant()),
            }
        }
    }

    /// Whether there are, or may be, events to start.
    fn has_due_events(&self) -> bool {
        self.local.has_events()
            || self.local.reclaims()
            || !self.releases.is_empty()
            || self.dispatch.has_waiting()
            || self.guard.iter().next().is_some()
            || self.due.is_looking()
            || self.queues.has_due_rows()
    }

    /// Finishes deliveries that have started, writes their verdicts and gives the shards back.
    /// Returns how many deliveries were abandoned.
    async fn finish(mut self, until: Instant) -> usize {
        self.releases.push(self.local.stop());
        self.ownership.leave();
        self.sync_shards();
        self.wake.alone(false);
        self.recall(|_| true);
        self.settler.retry_refused();
        self.local_settler.retry_refused();
        crash_point!("drain");
        while self.unsettled() > 0 || !self.releases.is_empty() || self.local.is_awaited() {
            self.start_writes();
            self.give_back_shards();
            self.dispatch.go();
            let timers = [self.settler.next_timer(), self.local_settler.next_timer()];
            let timer = timers.into_iter().flatten().fold(until, Instant::min);
            tokio::select! {
                () = self.dispatch.finished() => self.take_finished(),
                Some(answer) = self.tasks.next() => self.take_answers(answer),
                Some(message) = self.local.next_message() => self.take_message(message),
                () = sleep(LAST_WRITERS_POLL), if self.local.is_awaited() => {}
                () = sleep_until(timer), if timer < until => {}
                () = sleep_until(until) => {
                    let abandoned = self.unsettled();
                    self.observers.abandoned(abandoned);
                    return abandoned;
                }
            }
        }
        0
    }
}
