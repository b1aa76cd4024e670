//! Worker pool: tasks that call listeners, one event after another.
//!
//! A task for each delivery would cost more than a quick listener does. Here a task that takes from
//! the queue goes on with the next event for as long as listeners answer at once. When one makes it
//! wait, another task takes its turn at the queue. Turns are as many as the runtime has threads:
//! a listener that blocks its thread keeps no other from being called.
//!
//! There may be more in the queue than workers, so that a quick listener need not wait for the
//! loop. An event leaves the queue when its route has a worker for it.

#[cfg(test)]
mod tests;

use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::{any::Any, mem, time::Duration};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::instant;
use crate::relay::dispatch::deliverer::{Deliverer, LeaseKind, Outcome};
use crate::relay::dispatch::fair_share::{Capacity, FairShare, RouteId};
use crate::relay::dispatch::route_queue::{RouteQueue, Routed};
use crate::relay::number_map::NumberMap;
use crate::store::Content;
use crate::sync::{Mutex, MutexGuard};
use crate::verdict::Failure;

/// As many events in a row, or as long, before the loop hears of them.
const IN_A_ROW: u32 = 32;
const AT_A_STRETCH: Duration = Duration::from_micros(100);

/// A listener that needs longer does not answer at once, even if it never waits.
const AT_ONCE: Duration = Duration::from_millis(1);

/// Deliveries under way, each with what is kept of it meanwhile.
#[derive(Debug)]
pub(crate) struct WorkerPool<K> {
    shared: Arc<Shared>,
    kept: NumberMap<u64, K>,
    last: u64,
    taken_on: Vec<(u64, Assignment)>,
}

/// What is to be delivered.
#[derive(Debug)]
pub(crate) struct Assignment {
    pub(crate) route: RouteId,
    pub(crate) lease: LeaseKind,
    pub(crate) attempts: u32,
    pub(crate) content: Content,
}

/// A delivery that is over.
#[derive(Debug)]
pub(crate) struct Finished {
    pub(crate) outcome: Outcome,
    /// The listener was well, and made nobody wait.
    pub(crate) at_once: bool,
}

#[derive(Debug)]
struct Shared {
    deliverer: Arc<Deliverer>,
    state: Mutex<State>,
    finished: Notify,
}

/// What a task does next.
type Next = Option<(u64, Assignment)>;

#[derive(Debug)]
struct State {
    queue: RouteQueue<(u64, Assignment)>,
    routes: FairShare,
    finished: Vec<(u64, Finished)>,
    /// How many tasks have their turn at the queue, and how many may have.
    turns: usize,
    threads: usize,
    tasks: JoinSet<()>,
}

impl Routed for (u64, Assignment) {
    fn route(&self) -> RouteId {
        self.1.route
    }
}

impl<K> WorkerPool<K> {
    /// One whose routes share the workers so.
    pub(crate) fn new(deliverer: Arc<Deliverer>, routes: FairShare) -> Self {
        let state = Mutex::new(State::new(routes));
        let shared = Shared { deliverer, state, finished: Notify::new() };
        Self { shared: Arc::new(shared), kept: NumberMap::default(), last: 0, taken_on: Vec::new() }
    }

    /// How many deliveries are under way, or about to be.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// Whether deliveries wait for a worker.
    pub(crate) fn has_waiting(&self) -> bool {
        !self.taken_on.is_empty() || !self.shared.state().queue.is_empty()
    }

    /// What is kept of the deliveries under way.
    pub(crate) fn kept(&self) -> impl Iterator<Item = &K> {
        self.kept.values()
    }

    /// Takes a delivery on, to be begun by [`go`](Self::go).
    pub(crate) fn start(&mut self, kept: K, assignment: Assignment) {
        self.last += 1;
        self.kept.insert(self.last, kept);
        self.taken_on.push((self.last, assignment));
    }

    /// Begins what was taken on.
    pub(crate) fn go(&mut self) {
        if self.taken_on.is_empty() {
            return;
        }
        let mut state = self.shared.state();
        state.threads = Handle::current().metrics().num_workers();
        for assignment in self.taken_on.drain(..) {
            state.queue.push(assignment);
            if state.takes_turn() {
                state.hire(&self.shared);
            }
        }
    }

    /// What no worker has begun with, under leases that are meant, is over, as too late.
    pub(crate) fn recall(&mut self, is_meant: impl Fn(&LeaseKind) -> bool) {
        let is_meant = |(_, assignment): &(u64, Assignment)| is_meant(&assignment.lease);
        let mut state = self.shared.state();
        let taken_on = self.taken_on.extract_if(.., |it| is_meant(it));
        let waiting = state.queue.take_out(is_meant).into_iter().chain(taken_on);
        let too_late = |(id, _)| (id, Finished { outcome: Outcome::TooLate, at_once: false });
        let too_late: Vec<_> = waiting.map(too_late).collect();
        state.finished.extend(too_late);
    }

    /// Waits until deliveries are over, or were since the last time.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn finished(&self) {
        self.shared.finished.notified().await;
    }

    /// Those that are over.
    pub(crate) fn take_finished(&mut self) -> Vec<(K, Finished)> {
        let finished = mem::take(&mut self.shared.state().finished);
        let kept = |(id, over)| Some((self.kept.remove(&id)?, over));
        finished.into_iter().filter_map(kept).collect()
    }
}

impl<K> Drop for WorkerPool<K> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        // A task in the middle of a call ends only after it, and must find nobody to pass its turn to.
        state.queue.take_out(|_| true);
        state.tasks.abort_all();
    }
}

impl State {
    fn new(routes: FairShare) -> Self {
        let (queue, tasks) = (RouteQueue::default(), JoinSet::new());
        Self { queue, routes, finished: Vec::new(), turns: 0, threads: 1, tasks }
    }

    /// Whether there is one more turn to take.
    fn takes_turn(&mut self) -> bool {
        let is_free = self.turns < self.threads;
        self.turns += usize::from(is_free);
        is_free
    }

    /// One more task, whose turn it is.
    fn hire(&mut self, shared: &Arc<Shared>) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(work(Arc::clone(shared)));
    }

    /// A delivery is over. Returns the next one, if it is the task's turn still, or again.
    fn finish(&mut self, id: u64, route: RouteId, over: Finished, keeps_turn: bool) -> Next {
        self.finished.push((id, over));
        self.routes.ended(route, true);
        let has_turn = keeps_turn || !self.queue.is_empty() && self.takes_turn();
        if has_turn { self.next() } else { None }
    }

    /// The next event whose route has a worker for it, or the end of this turn.
    fn next(&mut self) -> Next {
        let next = if self.routes.are_busy() { None } else { self.queue.next(&self.routes) };
        match &next {
            Some((_, assignment)) => self.routes.started(assignment.route),
            None => self.turns -= 1,
        }
        next
    }
}

impl Shared {
    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// Another takes the turn of one that has to wait.
    fn pass(self: &Arc<Self>) {
        let mut state = self.state();
        if state.queue.is_empty() {
            state.turns -= 1;
        } else {
            state.hire(self);
        }
        drop(state);
        self.finished.notify_one();
    }

    /// Delivers one event. Returns its outcome, and whether it is still this task's turn.
    async fn deliver(self: &Arc<Self>, assignment: Assignment) -> (Outcome, bool) {
        let Assignment { lease, attempts, content, .. } = assignment;
        let mut delivery = pin!(self.deliverer.deliver(lease, attempts, content));
        let mut keeps_turn = true;
        let outcome = poll_fn(|cx| {
            let poll = or_panic(|cx| delivery.as_mut().poll(cx), cx);
            if poll.is_pending() && mem::take(&mut keeps_turn) {
                self.pass();
            }
            poll
        });
        (outcome.await, keeps_turn)
    }
}

/// Delivers what waits, until nothing does or somebody else goes on with it.
async fn work(shared: Arc<Shared>) {
    let (mut in_a_row, mut since) = (0, instant());
    let (mut next, mut began) = (shared.state().next(), since);
    while let Some((id, assignment)) = next {
        let route = assignment.route;
        let (outcome, keeps_turn) = shared.deliver(assignment).await;
        let now = instant();
        let at_once = keeps_turn && now - began < AT_ONCE && outcome.is_well();
        next = shared.state().finish(id, route, Finished { outcome, at_once }, keeps_turn);
        began = now;
        in_a_row += 1;
        let is_long = in_a_row >= IN_A_ROW || now - since >= AT_A_STRETCH;
        if is_long && next.is_some() {
            shared.finished.notify_one();
            let_others().await;
            (in_a_row, since) = (0, instant());
            began = since;
        }
    }
    shared.finished.notify_one();
}

/// Goes to the end of the line. What the runtime calls to yield does that only when its thread has
/// seen to everything else, and a listener that blocks the thread may be among that.
async fn let_others() {
    let mut is_over = false;
    poll_fn(|cx| {
        if mem::replace(&mut is_over, true) {
            return Poll::Ready(());
        }
        cx.waker().wake_by_ref();
        Poll::Pending
    })
    .await;
}

/// A listener that panics has failed.
fn or_panic(
    mut poll: impl FnMut(&mut Context<'_>) -> Poll<Outcome>,
    cx: &mut Context<'_>,
) -> Poll<Outcome> {
    catch_unwind(AssertUnwindSafe(|| poll(cx))).unwrap_or_else(|panic| {
        let failure = Failure::retry(format!("the listener panicked: {}", message(&*panic)));
        Poll::Ready(Outcome::Judgeable(Err(failure.into())))
    })
}

fn message(panic: &(dyn Any + Send)) -> &str {
    let text = panic.downcast_ref::<String>().map(String::as_str);
    text.or_else(|| panic.downcast_ref::<&str>().copied()).unwrap_or("without a message")
}
