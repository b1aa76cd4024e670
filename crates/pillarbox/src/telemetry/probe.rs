//! The probe: keeps what happened, and waits for what has not happened yet.

use std::collections::VecDeque;
use std::pin::pin;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::Notify;

use super::{Observer, RelayEvent};

/// Happenings kept; older ones are forgotten.
const MOST_KEPT: usize = 10_000;

/// Keeps what happened, so that a test can wait for it instead of sleeping.
///
/// Clones share what they keep: give one to the relay. The last 10,000 relay_events are kept.
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
/// probe.wait(|relay_event| matches!(relay_event, RelayEvent::Dead { .. })).await; // nobody listens
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
    /// A probe that has seen nothing.
    pub fn new() -> Self {
        Self::default()
    }

    /// What happened, oldest first.
    pub fn seen(&self) -> Vec<RelayEvent<'static>> {
        self.kept().iter().cloned().collect()
    }

    /// How many of what happened fit.
    pub fn count(&self, fits: impl Fn(&RelayEvent<'static>) -> bool) -> usize {
        self.kept().iter().filter(|relay_event| fits(relay_event)).count()
    }

    /// Forgets what happened so far.
    pub fn clear(&self) {
        self.kept().clear();
    }

    /// The first relay_event that fits, also one that was seen before this call.
    ///
    /// # Cancel safety
    /// A dropped wait takes nothing away.
    pub async fn wait(&self, fits: impl Fn(&RelayEvent<'static>) -> bool) -> RelayEvent<'static> {
        self.wait_many(1, fits).await.swap_remove(0)
    }

    /// The relay_events that fit, once there are at least so many, also those seen before.
    ///
    /// # Cancel safety
    /// A dropped wait takes nothing away.
    pub async fn wait_many(
        &self,
        least: usize,
        fits: impl Fn(&RelayEvent<'static>) -> bool,
    ) -> Vec<RelayEvent<'static>> {
        loop {
            // Registered before the look: what happens in between is not missed.
            let mut more = pin!(self.more.notified());
            more.as_mut().enable();
            let fit: Vec<_> = self.kept().iter().filter(|seen| fits(seen)).cloned().collect();
            if fit.len() >= least {
                return fit;
            }
            more.await;
        }
    }

    fn kept(&self) -> MutexGuard<'_, VecDeque<RelayEvent<'static>>> {
        self.seen.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Observer for Probe {
    fn on_event(&self, relay_event: &RelayEvent<'_>) {
        let mut kept = self.kept();
        if kept.len() == MOST_KEPT {
            kept.pop_front();
        }
        kept.push_back(relay_event.clone().into_owned());
        drop(kept);
        self.more.notify_waiters();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_wait_ends_with_what_comes_later_and_with_what_came_before() {
        let probe = Probe::new();
        let is_read = |relay_event: &RelayEvent<'_>| matches!(relay_event, RelayEvent::Read { .. });

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
    fn only_so_much_is_kept() {
        let probe = Probe::new();

        (0..=MOST_KEPT).for_each(|rows| probe.on_event(&RelayEvent::Read { rows }));

        assert_eq!(probe.seen().len(), MOST_KEPT);
        assert_eq!(probe.seen().first(), Some(&RelayEvent::Read { rows: 1 }));
    }
}
