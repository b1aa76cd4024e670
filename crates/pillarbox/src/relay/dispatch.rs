//! Dispatch: hands events to their listeners, and decides what becomes of them.

pub(super) mod crash_guard;
pub(super) mod deliverer;
pub(super) mod dispatched;
pub(super) mod fair_share;
pub(super) mod pause;
pub(super) mod prefetch;
pub(super) mod route_queue;
pub(super) mod worker_pool;

use std::sync::Arc;

use self::deliverer::{Deliverer, LeaseKind, Outcome};
use self::dispatched::Dispatched;
use self::fair_share::{Capacity, FairShare};
use self::worker_pool::{Assignment, Finished, WorkerPool};
use crate::crash_point::crash_point;
use crate::id::jitter;
use crate::retry::{Delivered, RetryRules};
use crate::store::Order;
use crate::telemetry::{Observers, RelayEvent};
use crate::verdict::Verdict;

/// Deliveries from their start to their verdict. `C` says which routes have room for more.
#[derive(Debug)]
pub(super) struct Dispatcher<H, C> {
    pool: WorkerPool<(Dispatched, H)>,
    capacity: C,
    deliverer: Arc<Deliverer>,
    rules: RetryRules,
    /// Without an order, no event holds its key.
    order: Order,
    observers: Observers,
}

impl<H, C: Capacity> Dispatcher<H, C> {
    pub(super) fn new(
        deliverer: Arc<Deliverer>,
        workers: FairShare,
        capacity: C,
        rules: RetryRules,
        order: Order,
        observers: Observers,
    ) -> Self {
        let pool = WorkerPool::new(Arc::clone(&deliverer), workers);
        Self { pool, capacity, deliverer, rules, order, observers }
    }

    /// Whether one more may start, beside those that are about to.
    pub(super) fn has_room(&self, about_to_start: usize) -> bool {
        !self.capacity.is_full(about_to_start)
    }

    /// Which routes have room for more.
    pub(super) fn capacity(&self) -> &C {
        &self.capacity
    }

    /// Whether the lease allows deliveries.
    pub(super) fn is_live(&self) -> bool {
        self.deliverer.is_live()
    }

    /// How many deliveries are under way.
    pub(super) fn len(&self) -> usize {
        self.pool.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.pool.is_empty()
    }

    /// Whether deliveries wait for a worker.
    pub(super) fn has_waiting(&self) -> bool {
        self.pool.has_waiting()
    }

    /// What is kept of the deliveries under way.
    pub(super) fn holds(&self) -> impl Iterator<Item = &H> {
        self.pool.kept().map(|(_, hold)| hold)
    }

    /// Takes a delivery on, to be started by [`go`](Self::go).
    pub(super) fn start(&mut self, dispatched: Dispatched, hold: H, assignment: Assignment) {
        self.capacity.started(dispatched.route_id);
        self.pool.start((dispatched, hold), assignment);
    }

    /// Starts what was taken on.
    pub(super) fn go(&mut self) {
        self.pool.go();
    }

    /// Takes back what no worker has started, under these leases: it ends as too late.
    pub(super) fn recall(&mut self, is_meant: impl Fn(&LeaseKind) -> bool) {
        self.pool.recall(is_meant);
    }

    /// Waits until a delivery has ended.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn finished(&self) {
        self.pool.finished().await;
    }

    /// The deliveries that have ended.
    pub(super) fn take_finished(&mut self) -> Vec<((Dispatched, H), Finished)> {
        let finished = self.pool.take_finished();
        for ((dispatched, _), Finished { at_once, .. }) in &finished {
            self.capacity.ended(dispatched.route_id, *at_once);
        }
        finished
    }

    /// Decides what becomes of an event; `None` if it was not delivered and is to be put back.
    pub(super) fn verdict(&self, dispatched: &Dispatched, outcome: Outcome) -> Option<Verdict> {
        crash_point!("judge");
        if matches!(outcome, Outcome::TooLate) {
            self.observers.on_event(&RelayEvent::NotStarted { event_id: dispatched.event_id() });
        }
        let Outcome::Judgeable(outcome) = dispatched.outcome(outcome) else { return None };
        let verdict = self.rules_of(dispatched).verdict(&Delivered {
            attempts: dispatched.attempts,
            keyed: dispatched.row.key.is_some() && self.order == Order::Key,
            outcome: outcome.as_ref().copied(),
            jitter: jitter(),
        });
        let event = dispatched.relay_event(&verdict, &*self.deliverer.clock);
        self.observers.on_event(&event);
        Some(verdict)
    }

    /// The rules of an event's route, which are the relay's.
    fn rules_of(&self, _: &Dispatched) -> &RetryRules {
        &self.rules
    }
}
