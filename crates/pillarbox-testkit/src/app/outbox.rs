//! An outbox without a database, which knows what was committed through it.

use std::{
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use futures_util::FutureExt as _;
use pillarbox::store::{Events as _, Operations as _, Pending, RowLease, Schema as _, StoredEvent};
use pillarbox::{Envelope, Event, Hook, MemoryStore, Outbox, Relay, Seq, Store};

use super::{TestRelay, decode, queue};
use crate::fake::ManualClock;

/// An outbox in memory, for tests that need no database.
///
/// It has the store and the clock that belong to it. Give [`outbox`](Self::outbox) to the
/// application, which opens its transactions on [`store`](Self::store), and ask afterwards what
/// was committed. Clones share everything.
///
/// # Examples
/// ```
/// use pillarbox::Event;
/// use pillarbox_testkit::{TestOutbox, assert_emitted};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed", aggregate = "order")]
/// struct OrderPlaced { #[event(id)] order_id: i64, total_cents: i64 }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let app = TestOutbox::new();
///
/// let mut tx = app.outbox().begin(app.store()).await?;
/// tx.emit(&OrderPlaced { order_id: 7, total_cents: 1250 }).await?;
/// assert!(app.envelopes().is_empty(), "nothing is committed yet");
/// tx.commit().await?;
///
/// assert_emitted!(app, OrderPlaced { order_id: 7, .. });
/// assert_eq!(app.emitted::<OrderPlaced>().len(), 1);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct TestOutbox {
    store: MemoryStore,
    clock: ManualClock,
    written: Written,
}

impl TestOutbox {
    /// An empty one, whose clock shows the time of this moment and stands still.
    pub fn new() -> Self {
        Self::at(ManualClock::new())
    }

    /// An empty one on this clock.
    pub fn at(clock: ManualClock) -> Self {
        let store = MemoryStore::with_clock(clock.clone());
        Self { store, clock, written: Written::default() }
    }

    /// The outbox to give to the application.
    ///
    /// Only what is emitted through it, or a clone of it, is known here as emitted.
    pub fn outbox(&self) -> Outbox {
        Outbox::new().hook(self.written.clone())
    }

    /// The store to begin transactions on: `outbox.begin(app.store())`.
    pub fn store(&self) -> &MemoryStore {
        &self.store
    }

    /// The clock of the store and of its relays.
    pub fn clock(&self) -> &ManualClock {
        &self.clock
    }

    /// Turns the clock forward: retries and delayed events become due without waiting.
    pub fn advance(&self, by: Duration) {
        self.clock.advance(by);
    }

    /// Turns the clock to when the next waiting event is due, and says how far that was.
    ///
    /// `None`, and the clock stays, when one is due already or none will be by itself. A retry
    /// is due after its backoff with jitter, so this is how to come to it without guessing.
    pub fn advance_to_next(&self) -> Option<Duration> {
        let mut turned = Duration::ZERO;
        loop {
            let (rows, next) = self.promoted();
            if queue::next_due(&rows).is_some() {
                return Some(turned).filter(|turned| !turned.is_zero());
            }
            let Some(wait) = queue::next_wait(&rows, next) else { break };
            // What is due then may be behind another row of its key, and wait for that one.
            self.clock.advance(wait);
            turned += wait;
        }
        self.clock.set_back(turned);
        self.promoted();
        None
    }

    /// The committed events, in order.
    pub fn envelopes(&self) -> Vec<Envelope> {
        self.written.committed(&self.store)
    }

    /// The committed events of this type, in order.
    ///
    /// # Panics
    /// When one does not decode.
    #[track_caller]
    pub fn emitted<E: Event>(&self) -> Vec<E> {
        let mut events = Vec::new();
        for envelope in self.envelopes() {
            events.extend(decode(&envelope));
        }
        events
    }

    /// A relay on this store that delivers when it is told to.
    ///
    /// `build` assembles it on the store it is given: call here what your program calls. It is
    /// asked for a new one for each delivery; see [`TestRelay`].
    pub fn relay(
        &self,
        build: impl Fn(Arc<dyn Store>) -> Relay + Send + Sync + 'static,
    ) -> TestRelay {
        TestRelay::new(self.clone(), build)
    }

    /// The event that is due and was committed first.
    pub(super) fn next_due(&self) -> Option<Pending> {
        // Noted while the rows are there: a delivery may delete them.
        self.written.committed(&self.store);
        queue::next_due(&self.promoted().0).cloned()
    }

    /// The event as the store has it.
    pub(super) fn stored(&self, envelope: &Envelope) -> Option<StoredEvent> {
        stored(&self.store, envelope)
    }

    /// The new rows, once what is due was promoted, and how long until the next one is. Rows that
    /// are new before their time, since the clock was set back, wait for it again.
    fn promoted(&self) -> (Vec<Pending>, Option<Duration>) {
        let layout = at_once(self.store.config());
        let everything = queue::everything(layout.shards);
        let rows = at_once(self.store.read(&everything));
        let early: Vec<_> = rows.iter().filter(|row| row.is_early).map(RowLease::from).collect();
        at_once(self.store.postpone(&early));
        let due = at_once(self.store.promote(&queue::every_due(layout.shards)));
        (at_once(self.store.read(&everything)), due.next)
    }
}

impl Default for TestOutbox {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for TestOutbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestOutbox").field("clock", &self.clock).finish_non_exhaustive()
    }
}

/// The events written through the outbox, committed or not.
#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<Entry>>>);

/// An event, and its `seq` once it is known to be committed.
struct Entry {
    envelope: Envelope,
    seq: Option<Seq>,
}

impl Hook for Written {
    fn after_write(&self, envelopes: &[Envelope]) {
        let entries = envelopes.iter().cloned().map(|envelope| Entry { envelope, seq: None });
        self.0.lock().unwrap().extend(entries);
    }
}

impl Written {
    /// What the store has, which is the only one to know of a transaction that it did not begin.
    fn committed(&self, store: &MemoryStore) -> Vec<Envelope> {
        let mut written = self.0.lock().unwrap();
        for entry in written.iter_mut().filter(|entry| entry.seq.is_none()) {
            entry.seq = stored(store, &entry.envelope).map(|event| event.seq);
        }
        let mut committed: Vec<&Entry> = written.iter().filter(|it| it.seq.is_some()).collect();
        committed.sort_by_key(|entry| entry.seq);
        committed.into_iter().map(|entry| entry.envelope.clone()).collect()
    }
}

fn stored(store: &MemoryStore, envelope: &Envelope) -> Option<StoredEvent> {
    at_once(store.event(envelope.event_id()))
}

/// The answer of the memory store, which never waits and never fails.
fn at_once<T>(asked: impl Future<Output = pillarbox::Result<T>>) -> T {
    asked.now_or_never().expect("memory never waits").unwrap()
}
