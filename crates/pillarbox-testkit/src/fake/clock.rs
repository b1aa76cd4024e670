//! A clock that stands still until it is turned.

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Clock, SystemClock, Timestamp};

/// A clock that a test sets. Clones show the same time.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::Clock;
/// use pillarbox_testkit::fake::ManualClock;
///
/// let clock = ManualClock::new();
/// let before = clock.now();
/// clock.advance(Duration::from_secs(60));
///
/// assert_eq!(clock.now().since(before), Duration::from_secs(60));
/// ```
#[derive(Clone, Debug)]
pub struct ManualClock(Arc<AtomicI64>);

impl ManualClock {
    /// A clock that shows the machine's time of this moment.
    pub fn new() -> Self {
        Self::at(SystemClock.now())
    }

    /// A clock that shows this moment.
    pub fn at(moment: Timestamp) -> Self {
        Self(Arc::new(AtomicI64::new(moment.unix_micros())))
    }

    /// Turns it forward.
    pub fn advance(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_add(micros, Ordering::SeqCst);
    }

    /// Turns it back.
    pub fn set_back(&self, by: Duration) {
        let micros = i64::try_from(by.as_micros()).unwrap_or(i64::MAX);
        self.0.fetch_sub(micros, Ordering::SeqCst);
    }
}

impl Default for ManualClock {
    fn default() -> Self {
        Self::new()
    }
}

impl Clock for ManualClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.0.load(Ordering::SeqCst))
    }
}
