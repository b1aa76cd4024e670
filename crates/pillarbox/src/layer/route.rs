//! What layers keep per route.

use std::{
    collections::HashMap,
    fmt,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::listener::Cx;

/// One state for each route; bounded, as there are no more routes than listeners.
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

/// Nobody is put off for longer at a time.
const LONGEST: Duration = Duration::from_secs(30);

/// When the events that were put off come again: one after the other.
///
/// Coming all at once, all but one would only be put off again, and each time is a write.
#[derive(Debug, Default)]
pub(super) struct Turns {
    last: Option<Instant>,
}

impl Turns {
    /// The wait of one more event: at least `wait`, and `spacing` behind the one before.
    pub(super) fn next(&mut self, now: Instant, wait: Duration, spacing: Duration) -> Duration {
        let earliest = now + wait.min(LONGEST);
        let turn = self.last.map_or(earliest, |last| (last + spacing).max(earliest));
        let turn = turn.min(now + LONGEST);
        self.last = Some(turn);
        turn - now
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    #[tokio::test(start_paused = true)]
    async fn turns_come_one_after_the_other_and_never_too_late() {
        let (mut turns, now) = (Turns::default(), instant());
        let second = Duration::from_secs(1);
        let mut next = |wait| turns.next(now, wait, second);

        assert_eq!(next(second), second);
        assert_eq!(next(second), 2 * second);
        assert_eq!(next(9 * second), 9 * second);
        let waits: Vec<_> = (0..40).map(|_| next(second)).collect();
        assert_eq!(waits.last(), Some(&LONGEST));
    }
}
