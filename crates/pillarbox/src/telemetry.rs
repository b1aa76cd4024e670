//! Observe: what happens in a relay, told once, to whoever wants to see it.

mod event;
mod log;
#[cfg(feature = "metrics")]
mod metrics;
#[cfg(feature = "metrics")]
mod name;
mod probe;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, sync::Arc};

pub use self::event::{Attempt, Component, Gauges, RelayEvent};
pub use self::log::Log;
#[cfg(feature = "metrics")]
pub use self::metrics::Metrics;
pub use self::probe::Probe;

/// Sees what happens in a relay. Every `Fn(&RelayEvent<'_>)` is one.
///
/// It is called where the relay works, also once per event: it must be quick and must not block.
/// A panic in it is caught and logged, and harms no delivery.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::RelayEvent;
/// use pillarbox::{Listeners, MemoryStore, Relay};
///
/// let relay = Relay::new(MemoryStore::new(), Listeners::new()).observer(
///     |relay_event: &RelayEvent<'_>| {
///         if let RelayEvent::Dead { attempt, error } = relay_event {
///             eprintln!("{} was given up: {error}", attempt.event_id);
///         }
///     },
/// );
/// # let _ = relay;
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Sees one relay_event.
    fn on_event(&self, relay_event: &RelayEvent<'_>);
}

impl<F: Fn(&RelayEvent<'_>) + Send + Sync + 'static> Observer for F {
    fn on_event(&self, relay_event: &RelayEvent<'_>) {
        self(relay_event);
    }
}

/// Everyone who looks on. Clones share them.
#[derive(Clone)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    /// These and one more.
    pub(crate) fn and(self, observer: impl Observer) -> Self {
        let observer: Arc<dyn Observer> = Arc::new(observer);
        Self(self.0.iter().cloned().chain([observer]).collect())
    }

    /// Tells all of them. An observer is a stranger's code: its panic ends here.
    pub(crate) fn on_event(&self, relay_event: &RelayEvent<'_>) {
        for observer in self.0.iter() {
            if catch_unwind(AssertUnwindSafe(|| observer.on_event(relay_event))).is_err() {
                tracing::error!("an observer panicked, the relay is not affected");
            }
        }
    }

    /// Tells what was left unsettled when there was no more time for it, if anything was.
    pub(crate) fn abandoned(&self, unsettled: usize) {
        if unsettled > 0 {
            self.on_event(&RelayEvent::Abandoned { unsettled });
        }
    }
}

impl Default for Observers {
    /// The log alone.
    fn default() -> Self {
        let log: Arc<dyn Observer> = Arc::new(Log);
        Self(Arc::from([log]))
    }
}

impl fmt::Debug for Observers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Observers").field(&self.0.len()).finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_panic_in_one_observer_keeps_no_other_from_seeing() {
        fn broken(_: &RelayEvent<'_>) {
            panic!("an observer panics on demand");
        }
        let probe = Probe::new();
        let observers = Observers::default().and(broken).and(probe.clone());

        observers.on_event(&RelayEvent::Read { rows: 3 });

        assert_eq!(probe.seen(), [RelayEvent::Read { rows: 3 }]);
    }
}
