//! Limits the rate of deliveries per route.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::route::{DEFAULT_MAX_WAIT, DeferralSchedule, PerRoute};
use super::{Layer, Next, Outcome, checked};
use crate::clock::instant;
use crate::listener::Cx;
use crate::verdict::Failure;

/// Limits how many deliveries of a route start within a period, in this relay.
///
/// Each route has a token bucket, which is full at first. Every delivery takes a token, and tokens
/// are refilled at a constant rate. An event that would have to wait longer than
/// [`patience`](Self::patience) is deferred until a token is available, without counting an
/// attempt.
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use pillarbox::layer::RateLimit;
///
/// let hundred = NonZeroU32::new(100).expect("a hundred is not zero");
/// let limit = RateLimit::new(hundred, Duration::from_secs(1));
/// # drop(limit);
/// ```
#[derive(Debug)]
pub struct RateLimit {
    /// The time between two tokens.
    interval: Duration,
    /// How far a burst may be ahead of the constant rate.
    burst: Duration,
    max_wait: Duration,
    routes: PerRoute<Mutex<Bucket>>,
}

impl RateLimit {
    /// Creates a limit of `count` deliveries in every `per`, which may start in a burst.
    ///
    /// # Panics
    /// If `per` is zero or longer than a year.
    #[track_caller]
    pub fn new(count: NonZeroU32, per: Duration) -> Self {
        let interval = checked("the period of the rate limit", per) / count.get();
        let burst = interval * (count.get() - 1);
        Self { interval, burst, max_wait: DEFAULT_MAX_WAIT, routes: PerRoute::new() }
    }

    /// Sets the longest time that an event waits for a token; otherwise it is deferred.
    ///
    /// A waiting event occupies a worker; a deferral is a write. Keep it below `delivery_timeout`.
    /// Defaults to 250 ms.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.max_wait = patience;
        self
    }

    fn admit(&self, bucket: &mut Bucket, now: Instant) -> Admission {
        let next = bucket.next.map_or(now, |next| next.max(now));
        let wait = next.saturating_duration_since(now + self.burst);
        if wait > self.max_wait {
            return Admission::Deferred(bucket.deferrals.next(now, wait, self.interval));
        }
        bucket.next = Some(next + self.interval);
        Admission::After(wait)
    }
}

impl Layer for RateLimit {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let bucket = self.routes.of(&cx, Mutex::default);
        let admission = {
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            self.admit(&mut bucket, instant())
        };
        match admission {
            Admission::After(wait) if wait.is_zero() => {}
            Admission::After(wait) => tokio::time::sleep(wait).await,
            Admission::Deferred(wait) => {
                return Err(Failure::defer(wait, "the rate limit of its route is reached"));
            }
        }
        next.run().await
    }
}

/// The token bucket of one route.
#[derive(Default)]
struct Bucket {
    /// When the next delivery is due at the constant rate.
    next: Option<Instant>,
    deferrals: DeferralSchedule,
}

enum Admission {
    After(Duration),
    Deferred(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tests::{Around, SECOND, fine};
    use crate::verdict::Next as Action;

    fn rate(count: u32, max_wait: Duration) -> Around {
        let count = NonZeroU32::new(count).unwrap();
        Around::layer(RateLimit::new(count, SECOND).patience(max_wait))
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_starts_at_once_and_the_next_delivery_waits() {
        let rate = rate(4, SECOND);
        let start = instant();

        for _ in 0..4 {
            rate.deliver("a", fine).await.unwrap();
        }
        assert_eq!(instant() - start, Duration::ZERO);
        rate.deliver("a", fine).await.unwrap();

        assert_eq!(instant() - start, SECOND / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_would_wait_too_long_is_deferred() {
        let rate = rate(1, Duration::ZERO);
        rate.deliver("a", fine).await.unwrap();

        let second = rate.deliver("a", fine).await.unwrap_err();
        let third = rate.deliver("a", fine).await.unwrap_err();

        assert_eq!(second.next(), Action::Defer(SECOND));
        assert_eq!(third.next(), Action::Defer(2 * SECOND), "not all at once");
        assert!(rate.deliver("b", fine).await.is_ok(), "another route has its own");
        tokio::time::advance(SECOND).await;
        assert!(rate.deliver("a", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn an_idle_bucket_never_overflows() {
        let rate = rate(2, Duration::ZERO);
        tokio::time::advance(100 * SECOND).await;

        let mut passed = 0;
        while rate.deliver("a", fine).await.is_ok() {
            passed += 1;
        }

        assert_eq!(passed, 2);
    }

    #[test]
    #[should_panic(expected = "the period of the rate limit is zero")]
    fn a_period_of_zero_is_refused() {
        RateLimit::new(NonZeroU32::MIN, Duration::ZERO);
    }
}
