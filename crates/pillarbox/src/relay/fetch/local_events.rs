//! Events of this process, from the local queue to a worker, in the relay that owns shards.
//!
//! An event without a key runs under the lease that its row was inserted with. One with a key was
//! registered before its commit, and waits in the queues of its shard.

use std::collections::BTreeMap;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::Seq;
use crate::local_queue::{LocalEvent, LocalQueue, LocalReceiver, Message, PendingWriters, Permit};
use crate::relay::SECOND;
use crate::relay::dispatch::deliverer::LeaseKind;
use crate::relay::dispatch::dispatched::Dispatched;
use crate::relay::dispatch::fair_share::{Capacity, RouteId};
use crate::relay::dispatch::route_queue::{RouteQueue, Routed};
use crate::relay::dispatch::worker_pool::Assignment;
use crate::relay::fetch::shard_queues::ShardQueues;
use crate::relay::number_map::NumberMap;
use crate::relay::store_tasks::StoreTasks;
use crate::store::{Content, Pending, RowLease, Store};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::tx::LocalLease;

use std::time::Duration;

/// So many local events start before it is the table's turn.
pub(crate) const IN_A_ROW: u32 = 2;

/// How soon a row is read again that could not be reclaimed.
const RECLAIM: Duration = SECOND;

/// How often a stop asks whether the last writers have committed.
pub(crate) const LAST_WRITERS_POLL: Duration = Duration::from_millis(5);

#[derive(Debug)]
pub(crate) struct LocalEvents {
    queue: LocalQueue,
    receiver: LocalReceiver,
    observers: Observers,
    /// Events without a key that wait for a worker.
    waiting: RouteQueue<LocalEvent>,
    /// The permits of those that were started and are not settled.
    permits: NumberMap<Seq, Permit>,
    /// Rows whose lease has run out, to be reclaimed.
    lapsed: BTreeMap<Seq, RowLease>,
    is_reclaiming: bool,
    in_a_row: u32,
    is_stopped: bool,
    /// Writers that had reserved a place when the queue was closed.
    last_writers: PendingWriters,
}

impl LocalEvents {
    pub(crate) fn new(queue: LocalQueue, receiver: LocalReceiver, observers: Observers) -> Self {
        Self {
            queue,
            receiver,
            observers,
            waiting: RouteQueue::default(),
            permits: NumberMap::default(),
            lapsed: BTreeMap::new(),
            is_reclaiming: false,
            in_a_row: 0,
            is_stopped: false,
            last_writers: PendingWriters::default(),
        }
    }

    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next_message(&mut self) -> Option<Message> {
        self.receiver.next().await
    }

    /// The next message, if it is here.
    pub(crate) fn try_next_message(&mut self) -> Option<Message> {
        self.receiver.try_next()
    }

    /// How many events without a key wait for a worker.
    pub(crate) fn len(&self) -> usize {
        self.waiting.len()
    }

    /// Takes an event without a key in.
    pub(crate) fn push(&mut self, event: LocalEvent) {
        self.waiting.push(event);
    }

    /// The next event from memory whose route has room, if it is its turn: one without a key, then
    /// one with.
    pub(crate) fn next(
        &mut self,
        queues: &mut ShardQueues,
        capacity: &impl Capacity,
        is_table_empty: bool,
    ) -> Option<(Dispatched, Assignment)> {
        if self.in_a_row >= IN_A_ROW && !is_table_empty {
            self.in_a_row = 0;
            return None;
        }
        let next = if self.in_a_row == 1 {
            registered(queues, capacity).or_else(|| self.leased(capacity))
        } else {
            self.leased(capacity).or_else(|| registered(queues, capacity))
        };
        self.in_a_row += u32::from(next.is_some());
        next
    }

    fn leased(&mut self, capacity: &impl Capacity) -> Option<(Dispatched, Assignment)> {
        let LocalEvent { envelope, inserted, deadline, room } = self.waiting.next(capacity)?;
        self.permits.insert(inserted.seq, room);
        let dispatched = Dispatched::of_local(&envelope, inserted);
        let assignment = dispatched.assignment(LeaseKind::Row(deadline), Content::Event(envelope));
        Some((dispatched, assignment))
    }

    /// An event without a key was settled, or is not delivered here.
    pub(crate) fn forget(&mut self, seq: Seq) {
        self.permits.remove(&seq);
    }

    /// Rows whose lease has run out wait until they are reclaimed: the verdict of their writer, if
    /// one comes, comes too late then. Rows that are under way here are left to their verdict.
    pub(crate) fn note_lapsed(&mut self, rows: &mut [Pending]) {
        for row in rows.iter_mut().filter(|row| row.lapsed) {
            row.due_in = RECLAIM;
            if !self.permits.contains_key(&row.seq) {
                self.lapsed.insert(row.seq, RowLease::from(&*row));
            }
        }
    }

    /// One write at a time: rows that another transaction has locked are read and tried again.
    pub(crate) fn start_reclaim<A: Send + 'static>(
        &mut self,
        tasks: &mut StoreTasks<A>,
        answer: fn(Result<u64>) -> A,
    ) {
        if self.is_reclaiming || self.lapsed.is_empty() {
            return;
        }
        self.is_reclaiming = true;
        let rows: Vec<RowLease> = std::mem::take(&mut self.lapsed).into_values().collect();
        let store = tasks.store();
        tasks.call(async move { reclaim(&*store, &rows).await }, answer);
    }

    /// Takes in an answer. Returns how many rows are free now.
    pub(crate) fn reclaimed(&mut self, reclaimed: Result<u64>) -> u64 {
        self.is_reclaiming = false;
        reclaimed.unwrap_or_else(|error| {
            self.observers.on_event(&RelayEvent::failed(Component::Settle, &error));
            0
        })
    }

    /// Whether rows will be free in a moment, for a read to find.
    pub(crate) fn reclaims(&self) -> bool {
        self.is_reclaiming || !self.lapsed.is_empty()
    }

    /// Refuses new events, except those of writers that have reserved a place already.
    pub(crate) fn close(&mut self) {
        self.last_writers = self.queue.close();
    }

    /// Whether events wait here to be started, or may still come.
    pub(crate) fn has_events(&self) -> bool {
        !self.waiting.is_empty() || self.is_awaited()
    }

    /// Whether writers that began before the stop may send more.
    pub(crate) fn is_awaited(&self) -> bool {
        self.last_writers.are_awaited(&self.receiver)
    }

    /// Starts nothing more. Returns the rows that wait, to be given back.
    pub(crate) fn stop(&mut self) -> Vec<RowLease> {
        self.is_stopped = true;
        self.waiting.take_out(|_| true).iter().map(lease_of).collect()
    }

    pub(crate) fn is_stopped(&self) -> bool {
        self.is_stopped
    }
}

/// The next event with a key that was registered before its commit.
fn registered(
    queues: &mut ShardQueues,
    capacity: &impl Capacity,
) -> Option<(Dispatched, Assignment)> {
    let (row, epoch) = queues.next_local(capacity)?;
    Some(Dispatched::from_table(row, epoch))
}

async fn reclaim(store: &dyn Store, rows: &[RowLease]) -> Result<u64> {
    crash_point!("hot.reclaim.before"?);
    let reclaimed = store.reclaim(rows).await?;
    crash_point!("hot.reclaim.after"?);
    Ok(reclaimed)
}

impl Routed for LocalEvent {
    fn route(&self) -> RouteId {
        RouteId::of(&self.envelope)
    }
}

pub(crate) fn lease_of(event: &LocalEvent) -> RowLease {
    RowLease { shard: event.inserted.shard, seq: event.inserted.seq, token: LocalLease::TOKEN }
}
