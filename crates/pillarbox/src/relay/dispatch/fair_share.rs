//! FairShare: how many workers one may take.
//!
//! A route whose listener is slow would take every worker that it gets. So a part is left to the
//! others: of what they leave, a route takes three quarters.

use std::hash::{DefaultHasher, Hash, Hasher};

use crate::envelope::Envelope;
use crate::relay::number_map::NumberMap;
use crate::store::Content;

/// A route as a number. Two that have the same by chance share their workers, too.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(crate) struct RouteId(u64);

impl RouteId {
    pub(crate) fn of(event: &Envelope) -> Self {
        let mut hasher = DefaultHasher::new();
        event.aggregate_type().as_str().hash(&mut hasher);
        event.event_type().as_str().hash(&mut hasher);
        Self(hasher.finish())
    }

    #[cfg(any(test, shuttle))]
    pub(crate) const fn numbered(number: u64) -> Self {
        Self(number)
    }

    /// What cannot be read goes to nobody, and takes no time.
    pub(crate) fn of_row(content: &Content) -> Self {
        content.event().map(Self::of).unwrap_or_default()
    }
}

/// How many more deliveries may start.
pub(crate) trait Capacity {
    /// Whether one more of the route may start.
    fn has_room(&self, route: RouteId) -> bool;

    /// Whether no route has room, beside so many that are about to start.
    fn is_full(&self, about_to_start: usize) -> bool;

    fn started(&mut self, route: RouteId);

    /// A delivery has ended, and made nobody wait or did.
    fn ended(&mut self, route: RouteId, at_once: bool);
}

/// Who has which workers.
#[derive(Clone, Debug)]
pub(crate) struct FairShare {
    workers: usize,
    pub(super) busy: usize,
    under_way: NumberMap<RouteId, usize>,
    /// Whether they have to share; the only one there can be takes all workers.
    are_many: bool,
}

impl FairShare {
    pub(crate) fn new(workers: usize, are_many: bool) -> Self {
        Self { workers, busy: 0, under_way: NumberMap::default(), are_many }
    }

    /// Whether all of them have something to do.
    pub(crate) const fn are_busy(&self) -> bool {
        self.busy >= self.workers
    }

    /// How many workers one route may take of those that the others leave.
    fn share(&self, left: usize) -> usize {
        if !self.are_many || left < 2 {
            return left;
        }
        left - (left / 4).max(1)
    }
}

impl Capacity for FairShare {
    fn has_room(&self, route: RouteId) -> bool {
        let own = self.under_way.get(&route).copied().unwrap_or(0);
        own < self.share((self.workers + own).saturating_sub(self.busy))
    }

    fn is_full(&self, about_to_start: usize) -> bool {
        self.busy + about_to_start >= self.workers
    }

    fn started(&mut self, route: RouteId) {
        self.busy += 1;
        *self.under_way.entry(route).or_default() += 1;
    }

    fn ended(&mut self, route: RouteId, _: bool) {
        self.busy = self.busy.saturating_sub(1);
        if let Some(count) = self.under_way.get_mut(&route) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                self.under_way.remove(&route);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RouteId = RouteId(1);
    const B: RouteId = RouteId(2);
    const C: RouteId = RouteId(3);
    const D: RouteId = RouteId(4);

    /// Starts as many as it may. Returns how many that were.
    fn fill(routes: &mut FairShare, route: RouteId) -> usize {
        (0..)
            .take_while(|_| routes.has_room(route).then(|| routes.started(route)).is_some())
            .count()
    }

    #[test]
    fn the_only_one_takes_all() {
        assert_eq!(fill(&mut FairShare::new(16, false), A), 16);
    }

    #[test]
    fn one_of_many_leaves_a_quarter_to_the_others() {
        let mut routes = FairShare::new(16, true);
        assert_eq!([A, B, C, D].map(|route| fill(&mut routes, route)), [12, 3, 1, 0]);
        routes.ended(A, true);
        assert!(routes.has_room(D));
    }

    #[test]
    fn a_single_worker_is_anybodys() {
        assert_eq!(fill(&mut FairShare::new(1, true), A), 1);
        assert_eq!(fill(&mut FairShare::new(2, true), A), 1);
    }

    #[test]
    fn what_ended_is_forgotten() {
        let mut routes = FairShare::new(4, true);
        fill(&mut routes, A);
        (0..3).for_each(|_| routes.ended(A, true));
        assert!(routes.under_way.is_empty() && routes.busy == 0);
    }
}
