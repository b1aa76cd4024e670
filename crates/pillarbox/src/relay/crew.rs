//! The crew: tasks that call listeners, one event after another.
//!
//! A task for each delivery would cost more than a quick listener does. Here a task that takes from
//! the queue goes on with the next event for as long as listeners answer at once. When one makes it
//! wait, another task takes its turn at the queue. Turns are as many as the runtime has threads:
//! a listener that blocks its thread keeps no other from being called.

#[cfg(test)]
mod tests;

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::pin;
use std::sync::{Arc, PoisonError};
use std::task::{Context, Poll};
use std::{any::Any, mem, time::Duration};

use tokio::runtime::Handle;
use tokio::sync::Notify;
use tokio::task::JoinSet;

use super::deliver::{Courier, Outcome, Under};
use super::number::NumberMap;
use crate::clock::instant;
use crate::envelope::{BadRow, Envelope};
use crate::sync::{Mutex, MutexGuard};
use crate::verdict::Failure;

/// As many events in a row, or as long, before the engine hears of them.
const IN_A_ROW: u32 = 32;
const AT_A_STRETCH: Duration = Duration::from_micros(100);

/// Deliveries under way, each with what is kept of it meanwhile.
#[derive(Debug)]
pub(super) struct Crew<K> {
    shared: Arc<Shared>,
    kept: NumberMap<u64, K>,
    last: u64,
    taken_on: Vec<(u64, Parcel)>,
}

/// What is to be delivered.
#[derive(Debug)]
pub(super) struct Parcel {
    pub(super) under: Under,
    pub(super) attempts: u32,
    pub(super) event: Result<Envelope, BadRow>,
}

#[derive(Debug)]
struct Shared {
    courier: Arc<Courier>,
    state: Mutex<State>,
    finished: Notify,
}

#[derive(Debug, Default)]
struct State {
    queue: VecDeque<(u64, Parcel)>,
    finished: Vec<(u64, Outcome)>,
    /// How many tasks have their turn at the queue.
    turns: usize,
    tasks: JoinSet<()>,
}

impl<K> Crew<K> {
    pub(super) fn new(courier: Arc<Courier>) -> Self {
        let shared = Shared { courier, state: Mutex::default(), finished: Notify::new() };
        Self { shared: Arc::new(shared), kept: NumberMap::default(), last: 0, taken_on: Vec::new() }
    }

    /// How many deliveries are under way.
    pub(super) fn len(&self) -> usize {
        self.kept.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.kept.is_empty()
    }

    /// What is kept of the deliveries under way.
    pub(super) fn kept(&self) -> impl Iterator<Item = &K> {
        self.kept.values()
    }

    /// Takes a delivery on, to be begun by [`go`](Self::go).
    pub(super) fn start(&mut self, kept: K, parcel: Parcel) {
        self.last += 1;
        self.kept.insert(self.last, kept);
        self.taken_on.push((self.last, parcel));
    }

    /// Begins what was taken on.
    pub(super) fn go(&mut self) {
        if self.taken_on.is_empty() {
            return;
        }
        let threads = Handle::current().metrics().num_workers();
        let mut state = self.shared.state();
        for parcel in self.taken_on.drain(..) {
            state.queue.push_back(parcel);
            if state.turns < threads {
                state.turns += 1;
                state.hire(&self.shared);
            }
        }
    }

    /// Waits until deliveries are over, or were since the last time.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(super) async fn finished(&self) {
        self.shared.finished.notified().await;
    }

    /// Those that are over.
    pub(super) fn take_finished(&mut self) -> Vec<(K, Outcome)> {
        let finished = mem::take(&mut self.shared.state().finished);
        let kept = |(id, outcome)| Some((self.kept.remove(&id)?, outcome));
        finished.into_iter().filter_map(kept).collect()
    }
}

impl<K> Drop for Crew<K> {
    fn drop(&mut self) {
        let mut state = self.shared.state();
        // A task in the middle of a call ends only after it, and must find nobody to pass its turn to.
        state.queue.clear();
        state.tasks.abort_all();
    }
}

impl State {
    /// One more task, whose turn it is.
    fn hire(&mut self, shared: &Arc<Shared>) {
        while self.tasks.try_join_next().is_some() {}
        self.tasks.spawn(work(Arc::clone(shared)));
    }

    /// A delivery is over. Returns the next one, if this is still the task's turn.
    fn finish(&mut self, id: u64, outcome: Outcome, keeps_turn: bool) -> Option<(u64, Parcel)> {
        self.finished.push((id, outcome));
        if keeps_turn { self.next() } else { None }
    }

    /// The next event, or the end of this turn.
    fn next(&mut self) -> Option<(u64, Parcel)> {
        let next = self.queue.pop_front();
        self.turns -= usize::from(next.is_none());
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
    async fn deliver(self: &Arc<Self>, parcel: Parcel) -> (Outcome, bool) {
        let Parcel { under, attempts, event } = parcel;
        let mut delivery = pin!(self.courier.deliver(under, attempts, event));
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
    let mut next = shared.state().next();
    while let Some((id, parcel)) = next {
        let (outcome, keeps_turn) = shared.deliver(parcel).await;
        next = shared.state().finish(id, outcome, keeps_turn);
        in_a_row += 1;
        let is_long = in_a_row >= IN_A_ROW || since.elapsed() >= AT_A_STRETCH;
        if is_long && next.is_some() {
            shared.finished.notify_one();
            tokio::task::yield_now().await;
            (in_a_row, since) = (0, instant());
        }
    }
    shared.finished.notify_one();
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
