//! A relay that delivers one event at a time, when it is told to.

use std::{collections::HashMap, fmt, sync::Arc, time::Duration};

use pillarbox::store::Pending;
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Relay, Store};

use super::TestOutbox;
use crate::fake::FaultyStore;

/// The limit of one delivery. No healthy delivery reaches it.
const LONGEST: Duration = Duration::from_secs(60);

/// More deliveries while the clock stands still are a circle: of one event, and of all.
const MOST_OF_ONE: usize = 100;
const MOST: usize = 10_000;

/// A relay that a test steps; made by [`TestOutbox::relay`].
///
/// Every step is the real relay: it is started, sees the one event that is due and was committed
/// first, delivers it through its layers, writes the verdict and stops. Order per key, retries,
/// dead letters and held keys are therefore those of production, and a test has them in an order
/// that never changes. What is not shown: deliveries beside each other, and those from memory.
///
/// It runs on the clock of the [`TestOutbox`]. Only what counts by the machine's clock takes its
/// time: `delivery_timeout`, and layers that keep time. As each step has a new relay, a layer that
/// is to remember something must be made outside `build` and shared.
///
/// # Examples
/// ```
/// use pillarbox::{Event, Listeners, Relay};
/// use pillarbox::telemetry::RelayEvent;
/// use pillarbox_testkit::{RecordingListener, Refusal, TestOutbox};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed", aggregate = "order")]
/// struct OrderPlaced { #[event(id)] order_id: i64 }
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let (app, mail) = (TestOutbox::new(), RecordingListener::new());
/// let listeners = mail.clone();
/// let relay = app.relay(move |store| {
///     Relay::new(store, Listeners::new().on::<OrderPlaced>(listeners.clone()))
/// });
/// mail.refuse(Refusal::retry("the mail server is away"));
///
/// let mut tx = app.outbox().begin(app.store()).await?;
/// tx.emit(&OrderPlaced { order_id: 7 }).await?;
/// tx.commit().await?;
///
/// assert!(matches!(relay.step().await, Some(RelayEvent::Retried { .. })));
/// assert!(relay.step().await.is_none(), "it is not due yet");
/// app.advance_to_next();
/// assert!(matches!(relay.step().await, Some(RelayEvent::Delivered(_))));
/// assert_eq!(mail.received::<OrderPlaced>().len(), 1);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct TestRelay {
    app: TestOutbox,
    build: Box<dyn Fn(Arc<dyn Store>) -> Relay + Send + Sync>,
}

impl TestRelay {
    pub(super) fn new(
        app: TestOutbox,
        build: impl Fn(Arc<dyn Store>) -> Relay + Send + Sync + 'static,
    ) -> Self {
        Self { app, build: Box::new(build) }
    }

    /// Delivers the event that is due and was committed first, and says how that went.
    ///
    /// `None` when nothing is due.
    ///
    /// # Panics
    /// When the relay refuses to start, or the event is not settled within a minute.
    pub async fn step(&self) -> Option<RelayEvent<'static>> {
        loop {
            let row = self.app.next_due()?;
            // Without one, somebody else has decided on the row meanwhile.
            if let Some(relay_event) = self.deliver(&row).await {
                return Some(relay_event);
            }
        }
    }

    /// Delivers everything that is due, also what listeners emit meanwhile, and says how each
    /// delivery went.
    ///
    /// What is to be retried, delayed or held stays: turn the clock, and run again.
    ///
    /// # Panics
    /// As [`step`](Self::step), and when there is no end to it: after 100 deliveries of one event,
    /// or 10,000 in all.
    pub async fn run_until_idle(&self) -> Vec<RelayEvent<'static>> {
        let (mut relay_events, mut times) = (Vec::new(), HashMap::new());
        while let Some(relay_event) = self.step().await {
            let event_id = relay_event.attempt().map(|attempt| attempt.event_id.clone());
            let count = times.entry(event_id).or_insert(0);
            *count += 1;
            relay_events.push(relay_event);
            assert!(
                *count < MOST_OF_ONE && relay_events.len() < MOST,
                "not idle after {} deliveries: does a listener defer without a delay, or emit what \
                 it listens to?",
                relay_events.len()
            );
        }
        relay_events
    }

    async fn deliver(&self, row: &Pending) -> Option<RelayEvent<'static>> {
        let probe = Probe::new();
        let inner = Arc::new(self.app.store().clone());
        let store = FaultyStore::new(inner).showing(row.seq, row.token);
        let relay =
            (self.build)(Arc::new(store)).clock(self.app.clock().clone()).observer(probe.clone());
        let run = relay.run_until(self.decided(row, &probe));
        let Ok(run) = tokio::time::timeout(LONGEST, run).await else {
            panic!(
                "an event was not settled within {LONGEST:?}: is the relay built on the store it \
                 is given, and no other relay running on it?"
            );
        };
        run.unwrap_or_else(|error| panic!("the relay did not start: {error}"));
        probe.seen().into_iter().find(|relay_event| relay_event.attempt().is_some())
    }

    /// Waits until a verdict on the row is written.
    async fn decided(&self, row: &Pending, probe: &Probe) {
        let Some(envelope) = row.event() else { return };
        let mut seen = 0;
        while self.app.stored(envelope).is_some_and(|event| event.token == row.token) {
            // A written verdict is followed by a relay_event, which is when to look again.
            seen = probe.wait_many(seen + 1, |_| true).await.len();
        }
    }
}

impl fmt::Debug for TestRelay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TestRelay").field("app", &self.app).finish_non_exhaustive()
    }
}
