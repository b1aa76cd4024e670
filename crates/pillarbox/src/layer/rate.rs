//! Only so many deliveries of a route in a while.

use std::{
    num::NonZeroU32,
    sync::{Mutex, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use super::concurrency::PATIENCE;
use super::route::{PerRoute, Turns};
use super::{Layer, Next, Outcome, checked};
use crate::clock::instant;
use crate::listener::Cx;
use crate::verdict::Failure;

/// Lets only so many deliveries of a route start in a while, in this relay.
///
/// A bucket for each route: it is full at first, every delivery takes one, and it is filled
/// again evenly. An event that would wait longer than `patience` is deferred until it is its
/// turn, and no attempt is counted.
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
    interval: Duration,
    /// How far ahead of an even pace a burst may be.
    burst: Duration,
    patience: Duration,
    routes: PerRoute<Mutex<Bucket>>,
}

impl RateLimit {
    /// This many at once, and as many again in every `per`.
    ///
    /// # Panics
    /// When `per` is zero or longer than a year.
    #[track_caller]
    pub fn new(count: NonZeroU32, per: Duration) -> Self {
        let interval = checked("the time of a rate", per) / count.get();
        let burst = interval * (count.get() - 1);
        Self { interval, burst, patience: PATIENCE, routes: PerRoute::new() }
    }

    /// How long an event waits for its turn before it is deferred.
    ///
    /// It occupies one of its route's workers meanwhile, of which a relay leaves some to other routes;
    /// a deferral is a write. Keep it below `delivery_timeout`. Defaults to 250 ms.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }

    fn ask(&self, bucket: &mut Bucket, now: Instant) -> Turn {
        let even = bucket.next.map_or(now, |next| next.max(now));
        let wait = even.saturating_duration_since(now + self.burst);
        if wait > self.patience {
            return Turn::Later(bucket.turns.next(now, wait, self.interval));
        }
        bucket.next = Some(even + self.interval);
        Turn::In(wait)
    }
}

impl Layer for RateLimit {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let bucket = self.routes.of(&cx, Mutex::default);
        let turn = {
            let mut bucket = bucket.lock().unwrap_or_else(PoisonError::into_inner);
            self.ask(&mut bucket, instant())
        };
        match turn {
            Turn::In(wait) if wait.is_zero() => {}
            Turn::In(wait) => tokio::time::sleep(wait).await,
            Turn::Later(wait) => {
                return Err(Failure::defer(wait, "its route has reached its rate"));
            }
        }
        next.run().await
    }
}

/// The state of one route.
#[derive(Default)]
struct Bucket {
    /// When the next one starts at an even pace.
    next: Option<Instant>,
    turns: Turns,
}

enum Turn {
    In(Duration),
    Later(Duration),
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tests::{Around, SECOND, fine};
    use crate::verdict::Next as Asked;

    fn rate(count: u32, patience: Duration) -> Around {
        let count = NonZeroU32::new(count).unwrap();
        Around::layer(RateLimit::new(count, SECOND).patience(patience))
    }

    #[tokio::test(start_paused = true)]
    async fn a_burst_passes_and_the_next_one_waits_its_turn() {
        let rate = rate(4, SECOND);
        let began = instant();

        for _ in 0..4 {
            rate.deliver("a", fine).await.unwrap();
        }
        assert_eq!(instant() - began, Duration::ZERO);
        rate.deliver("a", fine).await.unwrap();

        assert_eq!(instant() - began, SECOND / 4);
    }

    #[tokio::test(start_paused = true)]
    async fn who_would_wait_too_long_is_deferred_until_its_turn() {
        let rate = rate(1, Duration::ZERO);
        rate.deliver("a", fine).await.unwrap();

        let second = rate.deliver("a", fine).await.unwrap_err();
        let third = rate.deliver("a", fine).await.unwrap_err();

        assert_eq!(second.next(), Asked::Defer(SECOND));
        assert_eq!(third.next(), Asked::Defer(2 * SECOND), "not all at once");
        assert!(rate.deliver("b", fine).await.is_ok(), "another route has its own");
        tokio::time::advance(SECOND).await;
        assert!(rate.deliver("a", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_rest_fills_the_bucket_and_no_more() {
        let rate = rate(2, Duration::ZERO);
        tokio::time::advance(100 * SECOND).await;

        let mut passed = 0;
        while rate.deliver("a", fine).await.is_ok() {
            passed += 1;
        }

        assert_eq!(passed, 2);
    }

    #[test]
    #[should_panic(expected = "the time of a rate is zero")]
    fn a_rate_in_no_time_is_refused() {
        RateLimit::new(NonZeroU32::MIN, Duration::ZERO);
    }
}
