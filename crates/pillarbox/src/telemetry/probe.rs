//! A probe for tests: keeps relay events and waits for them.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Observer, RelayEvent};

/// The number of events kept; older ones are dropped.
const CAPACITY: usize = 10_000;

/// Keeps relay events, so that a test can wait for one instead of sleeping.
///
/// Clones share the events: give one to the relay. The last 10,000 events are kept.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::{RelayEvent, Probe};
/// use pillarbox::{Envelope, Listeners, MemoryStore, Relay};
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// let (store, probe) = (MemoryStore::new(), Probe::new());
/// let relay = Relay::new(store.clone(), Listeners::new()).observer(probe.clone());
/// let outbox = relay.outbox();
/// let handle = relay.spawn().await?;
///
/// let mut tx = outbox.begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
/// tx.commit().await?;
///
/// probe.wait(|event| matches!(event, RelayEvent::Dead { .. })).await; // there is no listener
/// handle.stop().await?;
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Debug, Default)]
pub struct Probe {
    seen: Arc<Mutex<VecDeque<RelayEvent<'static>>>>,
    more: Arc<Notify>,
}

impl Probe {
    /// Creates a probe without events.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the events, oldest first.
    pub fn seen(&self) -> Vec<RelayEvent<'static>> {
        self.kept().iter().cloned().collect()
    }

    /// Returns the number of events that match.
    pub fn count(&self, matches: impl Fn(&RelayEvent<'static>) -> bool) -> usize {
        self.kept().iter().filter(|event| matches(event)).count()
    }

    /// Removes all events.
    pub fn clear(&self) {
        self.kept().clear();
    }

    /// Waits for the first event that matches, including events from before this call.
    ///
    /// # Cancel safety
    /// This method is cancel safe: events stay in the probe.
    pub async fn wait(
        &self,
        matches: impl Fn(&RelayEvent<'static>) -> bool,
    ) -> RelayEvent<'static> {
        self.wait_many(1, matches).await.swap_remove(0)
    }

    /// Waits until at least `least` events match, including events from before this call, and
    /// returns all that match.
    ///
    /// # Cancel safety
    /// This method is cancel safe: events stay in the probe.
    pub async fn wait_many(
        &self,
        least: usize,
        matches: impl Fn(&RelayEvent<'static>) -> bool,
    ) -> Vec<RelayEvent<'static>> {
        loop {
            // Registered before the check, so that no event is missed in between.
            let mut more = pin!(self.more.notified());
            more.as_mut().enable();
            let matching: Vec<_> =
                self.kept().iter().filter(|seen| matches(seen)).cloned().collect();
            if matching.len() >= least {
                return matching;
            }
            more.await;
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<RelayEvent<'static>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Probe {
    fn on_event(&self, event: &RelayEvent<'_>) {
        let mut kept = self.kept();
        if kept.len() == CAPACITY {
            kept.pop_front();
        }
        kept.push_back(event.clone().into_owned());
        drop(kept);
        self.more.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_with_a_later_or_an_earlier_event() {
        let probe = Probe::new();
        let is_read = |event: &RelayEvent<'_>| matches!(event, RelayEvent::Read { .. });

        let (waited, ()) = tokio::join!(probe.wait(is_read), async {
            probe.on_event(&RelayEvent::FromLocalQueue { events: 1 });
            tokio::task::yield_now().await;
            probe.on_event(&RelayEvent::Read { rows: 2 });
        });

        assert_eq!(waited, RelayEvent::Read { rows: 2 });
        assert_eq!(probe.wait(is_read).await, RelayEvent::Read { rows: 2 });
        assert_eq!(probe.count(is_read), 1);
    }

    #[test]
    fn only_the_last_events_are_kept() {
        let probe = Probe::new();

        (0..=CAPACITY).for_each(|rows| probe.on_event(&RelayEvent::Read { rows }));

        assert_eq!(probe.seen().len(), CAPACITY);
        assert_eq!(probe.seen().first(), Some(&RelayEvent::Read { rows: 1 }));
    }
}
