//! Hot events: from the lane to a worker, each under the lease that its row was born with.

use std::{collections::BTreeMap, sync::Arc, time::Duration};

use tokio::task::Id;
use tokio::time::error::Elapsed;

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId};
use crate::local_queue::{
    LocalEvent, LocalQueue, LocalReceiver, Message, PendingWriters, Permit, Registration,
};
use crate::relay::SECOND;
use crate::relay::dispatch::deliverer::LeaseKind;
use crate::relay::dispatch::dispatched::{Decision, Dispatched};
use crate::relay::dispatch::fair_share::RouteId;
use crate::relay::dispatch::route_queue::{RouteQueue, Routed};
use crate::relay::dispatch::worker_pool::Assignment;
use crate::relay::engine::Engine;
use crate::relay::fetch::shard_reader::no_answer;
use crate::relay::number_map::NumberMap;
use crate::relay::settle::locked::{OnRow, without_locked};
use crate::relay::settle::{Answer, Batch, Settler};
use crate::relay::work::Progress;
use crate::store::{Content, Pending, RowLease, RowVerdict, SettleRows, Store};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::tx::LocalLease;

/// As many hot events are started before it is the table's turn.
pub(crate) const IN_A_ROW: u32 = 2;

/// How soon rows are looked at again that could not be reclaimed.
const RECLAIM: Duration = SECOND;

/// How often it is looked whether the last writers have committed, before a relay ends.
pub(crate) const LOOK: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct HotWork {
    lane: LocalQueue,
    events: LocalReceiver,
    waiting: RouteQueue<LocalEvent>,
    /// The places in the lane of events that were started.
    rooms: NumberMap<Seq, Permit>,
    /// Decision, and not yet handed to a settle.
    judged: Vec<Decision>,
    /// In the settle under way.
    settling: Vec<Decision>,
    settle: Option<Id>,
    /// Not started before their lease was too short, and to be given back.
    late: Vec<RowLease>,
    /// The shards of rows that the settle under way gives back.
    giving: Vec<ShardId>,
    /// Rows whose lease has run out, to be reclaimed, and the task that reclaims others now.
    lapsed: BTreeMap<Seq, RowLease>,
    reclaim: Option<Id>,
    /// Verdicts that the database refuses to write, to be tried again now and then.
    refused: Vec<Decision>,
    in_a_row: u32,
    is_stopped: bool,
    /// After the stop.
    last_writers: PendingWriters,
}

impl HotWork {
    pub(crate) fn new(lane: LocalQueue, events: LocalReceiver) -> Self {
        Self {
            lane,
            events,
            waiting: RouteQueue::default(),
            rooms: NumberMap::default(),
            judged: Vec::new(),
            settling: Vec::new(),
            settle: None,
            late: Vec::new(),
            giving: Vec::new(),
            lapsed: BTreeMap::new(),
            reclaim: None,
            refused: Vec::new(),
            in_a_row: 0,
            is_stopped: false,
            last_writers: PendingWriters::default(),
        }
    }

    /// Events judged and not yet settled.
    pub(crate) fn unsettled(&self) -> usize {
        self.judged.len() + self.settling.len() + self.refused.len()
    }

    /// Verdicts that cannot be written now.
    pub(crate) fn not_written(&self) -> usize {
        self.refused.len()
    }

    /// Tries verdicts again that were refused.
    pub(crate) fn try_refused_again(&mut self) {
        self.judged.append(&mut self.refused);
    }

    /// How many events wait for a worker.
    pub(crate) fn depth(&self) -> usize {
        self.waiting.len()
    }

    /// Whether rows wait to be given back.
    pub(crate) fn is_giving_back(&self) -> bool {
        !self.late.is_empty() || self.settle.is_some()
    }

    /// Whether rows that were leased will be free in a moment, for a read to find.
    pub(crate) fn frees_rows(&self) -> bool {
        let gives = !self.late.is_empty() || !self.giving.is_empty();
        gives || !self.lapsed.is_empty() || self.reclaim.is_some()
    }

    /// Whether it was this task that reclaimed rows, and ended.
    pub(crate) fn reclaim_ended(&mut self, id: Id) -> bool {
        let has_ended = self.reclaim == Some(id);
        if has_ended {
            self.reclaim = None;
        }
        has_ended
    }

    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.events.next().await
    }

    /// Whether it is the lane's turn.
    fn is_next(&mut self, table_is_empty: bool) -> bool {
        let is_next = self.in_a_row < IN_A_ROW || table_is_empty;
        if !is_next {
            self.in_a_row = 0;
        }
        is_next
    }

    /// Refuses new events, except those of writers that have reserved a place already.
    pub(crate) fn close(&mut self) {
        self.last_writers = self.lane.close();
    }

    /// Whether events wait here to be started, or may still come.
    pub(crate) fn has_events(&self) -> bool {
        !self.waiting.is_empty() || self.is_awaited()
    }

    /// Nothing more is started; what waits is given back. What has a key is an ordinary row.
    pub(crate) fn stop(&mut self) {
        self.is_stopped = true;
        let waiting = self.waiting.take_out(|_| true);
        self.late.extend(waiting.iter().map(lease_of));
    }

    /// Whether there is, or will be, mail of writers who began before the stop.
    pub(crate) fn is_awaited(&self) -> bool {
        self.last_writers.are_awaited(&self.events)
    }
}

impl Engine {
    /// Takes in what writers have told; never more than the lane has room for.
    pub(crate) fn take_in_mail(&mut self, first: Message) {
        self.read_mail(first);
        self.take_in_all_mail();
    }

    pub(crate) fn take_in_all_mail(&mut self) {
        while let Some(mail) = self.hot.events.try_next() {
            self.read_mail(mail);
        }
    }

    fn read_mail(&mut self, mail: Message) {
        if self.hot.is_stopped {
            return self.turn_away(mail);
        }
        crash_point!("hot.taken");
        match mail {
            Message::Leased(event) => self.hot.waiting.push(*event),
            Message::Registered(rows) => self.register(&rows),
            Message::Committed(events) => {
                for event in events {
                    let shard = event.registration.shard;
                    if !self.queues.commit(event) {
                        self.queues.look_at_shard_again(shard);
                        // Somebody else may hold the shard now.
                        self.wake.now();
                    }
                }
            }
            Message::Withdrawn(rows) => rows.into_iter().for_each(|row| self.queues.withdraw(row)),
        }
    }

    /// Message that comes after the stop: what was written for this relay is given back, and who holds the
    /// shards now is to look.
    pub(crate) fn turn_away(&mut self, mail: Message) {
        match mail {
            Message::Leased(event) => self.hot.late.push(lease_of(&event)),
            Message::Committed(_) => self.wake.now(),
            Message::Registered(_) | Message::Withdrawn(_) => {}
        }
    }

    /// A writer may know of a shard before the queues does.
    fn register(&mut self, rows: &[Registration]) {
        if !rows.iter().all(|row| self.queues.holds(row.shard, row.epoch)) {
            self.hold();
        }
        let now = instant();
        rows.iter().for_each(|row| self.queues.register(row, now));
    }

    /// Starts an event from memory, if it is its turn: one without a key, then one with.
    pub(crate) fn start_hot(&mut self, table_is_empty: bool) -> bool {
        if !self.hot.is_next(table_is_empty) {
            return false;
        }
        let mut starts: [fn(&mut Self) -> bool; 2] = [Self::start_leased, Self::start_registered];
        starts.rotate_left(usize::from(self.hot.in_a_row == 1));
        let started = starts.iter().any(|start| start(self));
        self.hot.in_a_row += u32::from(started);
        started
    }

    fn start_registered(&mut self) -> bool {
        let Some((row, epoch)) = self.queues.next_hot(&self.routes) else { return false };
        self.observers.on_event(&RelayEvent::FromLocalQueue { events: 1 });
        self.start(row, epoch);
        true
    }

    fn start_leased(&mut self) -> bool {
        let Some(event) = self.hot.waiting.next(&self.routes) else { return false };
        let LocalEvent { envelope, place, deadline, room } = event;
        let job = Dispatched::of_hot(&envelope, place);
        self.hot.rooms.insert(place.seq, room);
        self.observers.on_event(&RelayEvent::FromLocalQueue { events: 1 });
        let under = LeaseKind::Row(deadline);
        let assignment = Assignment {
            route: job.route_id,
            under,
            attempts: 0,
            content: Content::Event(envelope),
        };
        self.begin(job, assignment);
        true
    }

    /// Its lease was too short: whoever reads the row delivers it.
    pub(crate) fn hot_too_late(&mut self, job: &Dispatched) {
        self.hot.rooms.remove(&job.ticket.seq);
        self.hot.late.push(job.row_lease());
    }

    pub(crate) fn hot_judged(&mut self, judged: Decision) {
        self.hot.judged.push(judged);
    }

    /// Whatever gathered while the last settle was under way goes in one call.
    pub(crate) fn start_hot_settle(&mut self) {
        let is_idle = self.hot.judged.is_empty() && self.hot.late.is_empty();
        if self.hot.settle.is_some() || is_idle {
            return;
        }
        self.hot.settling = std::mem::take(&mut self.hot.judged);
        let verdicts = self.hot.settling.iter().map(Decision::row_verdict).collect();
        let settle = SettleRows { owner: self.ownership.owner.clone(), verdicts };
        let late = std::mem::take(&mut self.hot.late);
        self.hot.giving = late.iter().map(|row| row.shard).collect();
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let observers = self.observers.clone();
        let task = self.work.tasks.spawn(async move {
            let asks = Asks { store: &*store, patience, observers: &observers };
            asks.give_back(&settle.owner, late).await;
            let settler = Settler { store: &*store, patience, observers: &observers };
            Progress::HotSettled(settler.settle(Batch::Hot(settle)).await)
        });
        self.hot.settle = Some(task.id());
    }

    /// A store that panics has written nothing that we know of: the leases will run out.
    pub(crate) fn hot_settle_panicked(&mut self, id: Id) -> bool {
        let is_ours = self.hot.settle == Some(id);
        if is_ours {
            self.hot_settled(&Answer::default());
        }
        is_ours
    }

    /// Rows whose lease has run out wait until they are taken by a write: their writer's verdict,
    /// if one comes, comes too late then. Those whose verdict we have are left to it.
    pub(crate) fn note_lapsed(&mut self, rows: &mut [Pending]) {
        for row in rows.iter_mut().filter(|row| row.lapsed) {
            row.due_in = RECLAIM;
            if !self.hot.rooms.contains_key(&row.seq) {
                self.hot.lapsed.insert(row.seq, RowLease::from(&*row));
            }
        }
    }

    /// One write at a time: rows that another transaction has locked are read and tried again.
    pub(crate) fn start_reclaim(&mut self) {
        if self.hot.reclaim.is_some() || self.hot.lapsed.is_empty() {
            return;
        }
        let lapsed = std::mem::take(&mut self.hot.lapsed).into_values().collect();
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let observers = self.observers.clone();
        let task = self.work.tasks.spawn(async move {
            let asks = Asks { store: &*store, patience, observers: &observers };
            Progress::Reclaimed(asks.reclaim(lapsed).await)
        });
        self.hot.reclaim = Some(task.id());
    }

    /// What the database refuses to write is tried again, as long as the lease of its row stands.
    pub(crate) fn hot_settled(&mut self, answer: &Answer) {
        self.hot.settle = None;
        for shard in std::mem::take(&mut self.hot.giving) {
            self.queues.look_at_shard_again(shard);
        }
        for judged in std::mem::take(&mut self.hot.settling) {
            if answer.locked.contains(&judged.job.ticket.seq) {
                self.set_aside(judged);
                continue;
            }
            if answer.failed.contains(&judged.job.ticket.seq) {
                self.hot.refused.push(judged);
                continue;
            }
            let Decision { job, verdict } = judged;
            self.hot.rooms.remove(&job.ticket.seq);
            let is_written = answer.applied.contains(&job.ticket.seq);
            if is_written {
                // What failed is an ordinary row now, and perhaps one of ours.
                self.note_wait(&verdict);
            } else {
                self.observers.on_event(&RelayEvent::Fenced { event_id: job.event_id() });
            }
        }
    }
}

impl Decision {
    pub(crate) fn row_verdict(&self) -> RowVerdict {
        RowVerdict {
            row: self.job.row_lease(),
            verdict: self.verdict.clone(),
            settled_by: self.settled_by(),
        }
    }
}

impl OnRow for Decision {
    fn row(&self) -> RowLease {
        self.job.row_lease()
    }
}

impl Dispatched {
    fn row_lease(&self) -> RowLease {
        RowLease { shard: self.ticket.shard, seq: self.ticket.seq, token: self.token }
    }
}

impl Routed for LocalEvent {
    fn route(&self) -> RouteId {
        RouteId::of(&self.envelope)
    }
}

pub(crate) fn lease_of(event: &LocalEvent) -> RowLease {
    RowLease { shard: event.place.shard, seq: event.place.seq, token: LocalLease::TOKEN }
}

/// Asks the store, outside of the engine.
struct Asks<'a> {
    store: &'a dyn Store,
    patience: Duration,
    observers: &'a Observers,
}

impl Asks<'_> {
    /// Rows that are not given back are free when their lease ends.
    async fn give_back(&self, owner: &OwnerId, rows: Vec<RowLease>) {
        if rows.is_empty() {
            return;
        }
        let release = async |rows: Vec<RowLease>| {
            crash_point!("hot.release.before"?);
            let released = self.store.release_rows(owner, &rows).await?;
            crash_point!("hot.release.after"?);
            Ok(released)
        };
        let released = without_locked(self.store, rows, release);
        self.tell(tokio::time::timeout(self.patience, released).await);
    }

    /// Rows that are not reclaimed are read and reclaimed again. Returns how many are free now.
    async fn reclaim(&self, rows: Vec<RowLease>) -> u64 {
        let reclaim = async {
            crash_point!("hot.reclaim.before"?);
            let reclaimed = self.store.reclaim(&rows).await?;
            crash_point!("hot.reclaim.after"?);
            Ok(reclaimed)
        };
        self.tell(tokio::time::timeout(self.patience, reclaim).await)
    }

    /// Returns how many rows were written; none if the write failed.
    fn tell(&self, answer: Result<Result<u64>, Elapsed>) -> u64 {
        let trouble = match answer {
            Ok(Ok(rows)) => return rows,
            Ok(Err(error)) => error,
            Err(_) => no_answer(),
        };
        self.observers.on_event(&RelayEvent::failed(Component::Settle, &trouble));
        0
    }
}
