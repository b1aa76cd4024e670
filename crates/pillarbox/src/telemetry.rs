//! Telemetry: observers receive every event of a relay, for logs, metrics and tests.

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

/// Receives the events of a relay. Implemented by every `Fn(&RelayEvent<'_>)`.
///
/// It is called inline by the relay, at least once per delivery: it must return quickly and must
/// not block. A panic in it is caught and logged, and does not affect the relay.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::RelayEvent;
/// use pillarbox::{Listeners, MemoryStore, Relay};
///
/// let relay = Relay::new(MemoryStore::new(), Listeners::new()).observer(
///     |event: &RelayEvent<'_>| {
///         if let RelayEvent::Dead { attempt, error } = event {
///             eprintln!("{} is a dead letter: {error}", attempt.event_id);
///         }
///     },
/// );
/// # let _ = relay;
/// ```
pub trait Observer: Send + Sync + 'static {
    /// Receives one event of the relay.
    fn on_event(&self, event: &RelayEvent<'_>);
}

impl<F: Fn(&RelayEvent<'_>) + Send + Sync + 'static> Observer for F {
    fn on_event(&self, event: &RelayEvent<'_>) {
        self(event);
    }
}

/// The observers of a relay. Clones share them.
#[derive(Clone)]
pub(crate) struct Observers(Arc<[Arc<dyn Observer>]>);

impl Observers {
    /// Adds an observer.
    pub(crate) fn with(self, observer: impl Observer) -> Self {
        let observer: Arc<dyn Observer> = Arc::new(observer);
        Self(self.0.iter().cloned().chain([observer]).collect())
    }

    /// Calls all observers. User code may panic, so each call is isolated.
    pub(crate) fn on_event(&self, event: &RelayEvent<'_>) {
        for observer in self.0.iter() {
            if catch_unwind(AssertUnwindSafe(|| observer.on_event(event))).is_err() {
                tracing::error!("an observer panicked, the relay is not affected");
            }
        }
    }

    /// Reports the deliveries that were abandoned at a stop, if there are any.
    pub(crate) fn abandoned(&self, unsettled: usize) {
        if unsettled > 0 {
            self.on_event(&RelayEvent::Abandoned { unsettled });
        }
    }
}

impl Default for Observers {
    /// Only the log.
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
    fn a_panic_in_one_observer_does_not_affect_the_others() {
        fn broken(_: &RelayEvent<'_>) {
            panic!("on purpose");
        }
        let probe = Probe::new();
        let observers = Observers::default().with(broken).with(probe.clone());

        observers.on_event(&RelayEvent::Read { rows: 3 });

        assert_eq!(probe.seen(), [RelayEvent::Read { rows: 3 }]);
    }
}
