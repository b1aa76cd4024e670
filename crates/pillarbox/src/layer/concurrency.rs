//! Limits the number of concurrent deliveries per route.

use std::{
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::route::{DEFAULT_MAX_WAIT, DeferralSchedule, PerRoute};
use super::{Layer, Next, Outcome};
use crate::clock::instant;
use crate::listener::Cx;
use crate::verdict::Failure;

/// Limits how many deliveries of a route run concurrently in this relay.
///
/// An event waits up to [`patience`](Self::patience) for a permit. Then it is deferred, without
/// counting an attempt. Deferred events are delivered again one after the other, at the rate at
/// which permits were released recently.
///
/// # Examples
/// ```
/// use std::num::NonZeroU32;
/// use pillarbox::layer::ConcurrencyLimit;
///
/// let two = NonZeroU32::new(2).expect("two is not zero");
/// let limit = ConcurrencyLimit::new(two);
/// # drop(limit);
/// ```
#[derive(Debug)]
pub struct ConcurrencyLimit {
    limit: NonZeroU32,
    max_wait: Duration,
    routes: PerRoute<RouteLimit>,
}

impl ConcurrencyLimit {
    /// Creates a limit of this many concurrent deliveries per route.
    pub fn new(limit: NonZeroU32) -> Self {
        Self { limit, max_wait: DEFAULT_MAX_WAIT, routes: PerRoute::new() }
    }

    /// Sets how long an event waits for a permit before it is deferred.
    ///
    /// A waiting event occupies a worker; a deferral is a write. Keep it below `delivery_timeout`.
    /// Defaults to 250 ms.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.max_wait = patience;
        self
    }
}

/// The assumed duration of a delivery before the first one has ended.
const INITIAL_DURATION: Duration = Duration::from_millis(50);

impl Layer for ConcurrencyLimit {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let route = self.routes.of(&cx, || RouteLimit::new(self.limit));
        let Some(_permit) = route.acquire(self.max_wait).await else {
            let (wait, limit) = (route.defer(instant()), self.limit);
            let cause = format!("the concurrency limit of its route is reached (limit={limit})");
            return Err(Failure::defer(wait, cause));
        };
        next.run().await
    }
}

/// The limit of one route.
struct RouteLimit {
    limit: u32,
    permits: Semaphore,
    deferrals: Mutex<Deferrals>,
}

struct Deferrals {
    /// How long the last delivery took.
    last_duration: Duration,
    schedule: DeferralSchedule,
}

impl RouteLimit {
    fn new(limit: NonZeroU32) -> Self {
        let limit = limit.get();
        let deferrals = Mutex::new(Deferrals {
            last_duration: INITIAL_DURATION,
            schedule: DeferralSchedule::default(),
        });
        Self { limit, permits: Semaphore::new(limit as usize), deferrals }
    }

    async fn acquire(&self, max_wait: Duration) -> Option<Permit<'_>> {
        let permit = tokio::time::timeout(max_wait, self.permits.acquire()).await.ok()?.ok()?;
        Some(Permit { route: self, since: instant(), _permit: permit })
    }

    fn defer(&self, now: Instant) -> Duration {
        let mut deferrals = self.deferrals();
        let spacing = deferrals.last_duration / self.limit;
        deferrals.schedule.next(now, spacing, spacing)
    }

    fn deferrals(&self) -> MutexGuard<'_, Deferrals> {
        self.deferrals.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// The permit of a running delivery, released when it is dropped.
struct Permit<'a> {
    route: &'a RouteLimit,
    since: Instant,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Permit<'_> {
    fn drop(&mut self) {
        self.route.deferrals().last_duration = instant() - self.since;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tests::{Around, SECOND};
    use crate::verdict::Next as Action;

    fn limit(limit: u32, max_wait: Duration) -> Around {
        let limit = NonZeroU32::new(limit).unwrap();
        Around::layer(ConcurrencyLimit::new(limit).patience(max_wait))
    }

    async fn slow(_: Cx) -> Outcome {
        tokio::time::sleep(SECOND).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_over_the_limit_waits_for_a_permit() {
        let limit = limit(1, 5 * SECOND);
        let start = instant();

        let (first, second) = tokio::join!(limit.deliver("a", slow), limit.deliver("a", slow));

        assert!(first.is_ok() && second.is_ok());
        assert_eq!(instant() - start, 2 * SECOND, "one after the other");
    }

    #[tokio::test(start_paused = true)]
    async fn an_event_that_waits_too_long_is_deferred() {
        let limit = limit(1, SECOND / 2);

        let (first, second, third) = tokio::join!(
            limit.deliver("a", slow),
            limit.deliver("a", slow),
            limit.deliver("a", slow)
        );

        assert!(first.is_ok());
        assert_eq!(second.unwrap_err().next(), Action::Defer(INITIAL_DURATION));
        assert_eq!(
            third.unwrap_err().next(),
            Action::Defer(2 * INITIAL_DURATION),
            "one after the other"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn each_route_has_its_own_permits() {
        let limit = limit(1, SECOND / 2);
        let start = instant();

        let (first, second) = tokio::join!(limit.deliver("a", slow), limit.deliver("b", slow));

        assert!(first.is_ok() && second.is_ok());
        assert_eq!(instant() - start, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_dropped_delivery_releases_its_permit() {
        let limit = limit(1, SECOND / 2);

        let cut = tokio::time::timeout(SECOND / 4, limit.deliver("a", slow)).await;

        assert!(cut.is_err());
        assert!(limit.deliver("a", slow).await.is_ok());
    }
}
