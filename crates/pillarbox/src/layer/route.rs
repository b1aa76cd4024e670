//! State that layers keep per route.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::listener::Cx;

/// One state per route. It is bounded, because there are no more routes than listeners.
pub(super) struct PerRoute<S>(Mutex<HashMap<Arc<str>, Arc<S>>>);

impl<S> PerRoute<S> {
    pub(super) fn new() -> Self {
        Self(Mutex::default())
    }

    pub(super) fn of(&self, cx: &Cx, make: impl FnOnce() -> S) -> Arc<S> {
        let mut routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(state) = routes.get(cx.route()) {
            return Arc::clone(state);
        }
        let state = Arc::new(make());
        routes.insert(Arc::clone(cx.route_name()), Arc::clone(&state));
        state
    }
}

impl<S> fmt::Debug for PerRoute<S> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let routes = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        f.debug_set().entries(routes.keys()).finish()
    }
}

/// The default of how long an event may wait in a limit: longer than most listeners take, shorter
/// than the default delivery timeout.
pub(super) const DEFAULT_MAX_WAIT: Duration = Duration::from_millis(250);

/// The longest deferral.
const MAX_DEFERRAL: Duration = Duration::from_secs(30);

/// Spaces out the events that a limit defers.
///
/// If all of them were due at the same time, all but one would be deferred again, and each deferral
/// is a write.
#[derive(Debug, Default)]
pub(super) struct DeferralSchedule {
    last: Option<Instant>,
}

impl DeferralSchedule {
    /// Returns the delay of the next event: at least `wait`, and `spacing` after the previous
    /// event.
    pub(super) fn next(&mut self, now: Instant, wait: Duration, spacing: Duration) -> Duration {
        let earliest = now + wait.min(MAX_DEFERRAL);
        let due = self.last.map_or(earliest, |last| (last + spacing).max(earliest));
        let due = due.min(now + MAX_DEFERRAL);
        self.last = Some(due);
        due - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    #[tokio::test(start_paused = true)]
    async fn deferrals_are_spaced_and_bounded() {
        let (mut schedule, now) = (DeferralSchedule::default(), instant());
        let second = Duration::from_secs(1);
        let mut next = |wait| schedule.next(now, wait, second);

        assert_eq!(next(second), second);
        assert_eq!(next(second), 2 * second);
        assert_eq!(next(9 * second), 9 * second);
        let waits: Vec<_> = (0..40).map(|_| next(second)).collect();
        assert_eq!(waits.last(), Some(&MAX_DEFERRAL));
    }
}
