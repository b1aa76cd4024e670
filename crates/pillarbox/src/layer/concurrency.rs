//! Only so many deliveries of a route at a time.

use std::{
    num::NonZeroU32,
    sync::{Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::{Semaphore, SemaphorePermit};
use tokio::time::Instant;

use super::route::{PerRoute, Turns};
use super::{Layer, Next, Outcome};
use crate::clock::instant;
use crate::listener::Cx;
use crate::verdict::Failure;

/// Lets only so many deliveries of a route run at a time, in this relay.
///
/// An event that finds no place waits for one as long as `patience` says; then it is deferred,
/// and no attempt is counted. Deferred events come again one after the other, as quickly as
/// places became free of late.
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
    most: NonZeroU32,
    patience: Duration,
    routes: PerRoute<Places>,
}

impl ConcurrencyLimit {
    /// At most this many of each route.
    pub fn new(most: NonZeroU32) -> Self {
        Self { most, patience: PATIENCE, routes: PerRoute::new() }
    }

    /// How long an event waits for a place before it is deferred.
    ///
    /// It occupies one of its route's workers meanwhile, of which a relay leaves some to other routes;
    /// a deferral is a write. Keep it below `delivery_timeout`. Defaults to 250 ms.
    #[must_use]
    pub fn patience(mut self, patience: Duration) -> Self {
        self.patience = patience;
        self
    }
}

/// Longer than most listeners take, shorter than a delivery may.
pub(super) const PATIENCE: Duration = Duration::from_millis(250);

/// How long a place is held, as long as none was free again.
const HELD: Duration = Duration::from_millis(50);

impl Layer for ConcurrencyLimit {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let places = self.routes.of(&cx, || Places::new(self.most));
        let Some(_place) = places.enter(self.patience).await else {
            let (wait, most) = (places.put_off(instant()), self.most);
            return Err(Failure::defer(wait, format!("{most} of its route are under way")));
        };
        next.run().await
    }
}

/// The places of one route.
struct Places {
    most: u32,
    free: Semaphore,
    pace: Mutex<Pace>,
}

struct Pace {
    /// How long the last place was held.
    held: Duration,
    turns: Turns,
}

impl Places {
    fn new(most: NonZeroU32) -> Self {
        let most = most.get();
        let pace = Pace { held: HELD, turns: Turns::default() };
        let free = Semaphore::new(most as usize);
        Self { most, free, pace: Mutex::new(pace) }
    }

    async fn enter(&self, patience: Duration) -> Option<Place<'_>> {
        let permit = tokio::time::timeout(patience, self.free.acquire()).await.ok()?.ok()?;
        Some(Place { places: self, since: instant(), _permit: permit })
    }

    fn put_off(&self, now: Instant) -> Duration {
        let mut pace = self.pace();
        let spacing = pace.held / self.most;
        pace.turns.next(now, spacing, spacing)
    }

    fn pace(&self) -> MutexGuard<'_, Pace> {
        self.pace.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// One delivery under way; its place is free again when it ends, however it ends.
struct Place<'a> {
    places: &'a Places,
    since: Instant,
    _permit: SemaphorePermit<'a>,
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.places.pace().held = instant() - self.since;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tests::{Around, SECOND};
    use crate::verdict::Next as Asked;

    fn limit(most: u32, patience: Duration) -> Around {
        let most = NonZeroU32::new(most).unwrap();
        Around::layer(ConcurrencyLimit::new(most).patience(patience))
    }

    async fn slow(_: Cx) -> Outcome {
        tokio::time::sleep(SECOND).await;
        Ok(())
    }

    #[tokio::test(start_paused = true)]
    async fn the_next_one_waits_for_a_place_and_gets_it() {
        let limit = limit(1, 5 * SECOND);
        let began = instant();

        let (first, second) = tokio::join!(limit.deliver("a", slow), limit.deliver("a", slow));

        assert!(first.is_ok() && second.is_ok());
        assert_eq!(instant() - began, 2 * SECOND, "one after the other");
    }

    #[tokio::test(start_paused = true)]
    async fn who_waits_too_long_is_deferred() {
        let limit = limit(1, SECOND / 2);

        let (first, second, third) = tokio::join!(
            limit.deliver("a", slow),
            limit.deliver("a", slow),
            limit.deliver("a", slow)
        );

        assert!(first.is_ok());
        assert_eq!(second.unwrap_err().next(), Asked::Defer(HELD));
        assert_eq!(third.unwrap_err().next(), Asked::Defer(2 * HELD), "one after the other");
    }

    #[tokio::test(start_paused = true)]
    async fn another_route_has_places_of_its_own() {
        let limit = limit(1, SECOND / 2);
        let began = instant();

        let (first, second) = tokio::join!(limit.deliver("a", slow), limit.deliver("b", slow));

        assert!(first.is_ok() && second.is_ok());
        assert_eq!(instant() - began, SECOND);
    }

    #[tokio::test(start_paused = true)]
    async fn a_delivery_that_is_dropped_leaves_its_place() {
        let limit = limit(1, SECOND / 2);

        let cut = tokio::time::timeout(SECOND / 4, limit.deliver("a", slow)).await;

        assert!(cut.is_err());
        assert!(limit.deliver("a", slow).await.is_ok());
    }
}
