//! How many events to hand to the worker pool: of a route that answers at once, more than it has workers.
//!
//! A round of the loop costs as much as many calls of a quick listener. Where others keep most workers
//! busy, the few that are left would be given a few events in each round, and wait for the next.

use crate::relay::dispatch::fair_share::{Capacity, FairShare, RouteId};
use crate::relay::number_map::NumberMap;

/// As many answers at once, one after the other, and a route is quick.
const QUICK: u32 = 16;
/// As many events of a quick route are in the hands of the pool.
const AHEAD: u32 = 64;
/// FairShare that are remembered when nothing of them is under way.
const MOST: usize = 1024;

#[derive(Debug)]
pub(crate) struct Prefetch {
    /// The workers of routes that are not quick.
    routes: FairShare,
    speeds: NumberMap<RouteId, RouteSpeed>,
}

#[derive(Debug, Default)]
struct RouteSpeed {
    /// How many were answered at once, one after the other.
    at_once: u32,
    /// How many are in the hands of the pool, and how many of these count as a worker's.
    handed: u32,
    counted: u32,
}

impl RouteSpeed {
    const fn is_quick(&self) -> bool {
        self.at_once >= QUICK
    }
}

impl Prefetch {
    /// With workers that routes share so.
    pub(crate) fn new(routes: FairShare) -> Self {
        Self { routes, speeds: NumberMap::default() }
    }
}

impl Capacity for Prefetch {
    fn has_room(&self, route: RouteId) -> bool {
        let quick = self.speeds.get(&route).filter(|speed| speed.is_quick());
        quick.map_or_else(|| self.routes.has_room(route), |speed| speed.handed < AHEAD)
    }

    fn is_full(&self, about_to_start: usize) -> bool {
        self.routes.is_full(about_to_start)
    }

    fn started(&mut self, route: RouteId) {
        let speed = self.speeds.entry(route).or_default();
        speed.handed += 1;
        if !speed.is_quick() {
            speed.counted += 1;
            self.routes.started(route);
        }
    }

    fn ended(&mut self, route: RouteId, at_once: bool) {
        let Some(speed) = self.speeds.get_mut(&route) else { return };
        speed.handed = speed.handed.saturating_sub(1);
        speed.at_once = if at_once { speed.at_once.saturating_add(1) } else { 0 };
        let most = if speed.is_quick() { 0 } else { speed.handed };
        while speed.counted > most {
            speed.counted -= 1;
            self.routes.ended(route, true);
        }
        // It was quick until now: what the pool has of it takes its time.
        while speed.counted < most && self.routes.has_room(route) {
            speed.counted += 1;
            self.routes.started(route);
        }
        if speed.handed == 0 && self.speeds.len() > MOST {
            self.speeds.remove(&route);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const A: RouteId = RouteId::numbered(1);
    const B: RouteId = RouteId::numbered(2);
    const C: RouteId = RouteId::numbered(3);

    fn ahead() -> Prefetch {
        Prefetch::new(FairShare::new(16, true))
    }

    /// Starts as many as it may. Returns how many that were.
    fn fill(ahead: &mut Prefetch, route: RouteId) -> usize {
        (0..).take_while(|_| ahead.has_room(route).then(|| ahead.started(route)).is_some()).count()
    }

    fn quick(ahead: &mut Prefetch, route: RouteId) {
        for _ in 0..QUICK {
            ahead.started(route);
            ahead.ended(route, true);
        }
    }

    #[test]
    fn one_that_answers_at_once_is_ahead_and_takes_no_workers() {
        let mut ahead = ahead();
        quick(&mut ahead, A);
        assert_eq!(fill(&mut ahead, B), 12);
        assert_eq!(fill(&mut ahead, A), AHEAD as usize);
        assert_eq!((ahead.routes.busy, fill(&mut ahead, C)), (12, 3));
    }

    #[test]
    fn one_that_makes_others_wait_has_its_share_again() {
        let mut ahead = ahead();
        quick(&mut ahead, A);
        fill(&mut ahead, A);

        ahead.ended(A, false);

        assert_eq!(ahead.routes.busy, 12);
        assert_eq!([A, B, C].map(|route| fill(&mut ahead, route)), [0, 3, 1]);
        for _ in 1..AHEAD {
            ahead.ended(A, false);
        }
        assert_eq!((ahead.routes.busy, ahead.speeds[&A].handed), (4, 0));
    }

    #[test]
    fn one_that_proves_quick_gives_its_workers_back() {
        let mut ahead = ahead();
        fill(&mut ahead, A);
        for _ in 0..QUICK {
            ahead.ended(A, true);
            ahead.started(A);
        }
        assert_eq!(ahead.routes.busy, 0);
        for _ in 0..12 {
            ahead.ended(A, true);
        }
        assert_eq!(ahead.speeds[&A].handed, 0);
    }

    #[test]
    fn only_so_many_are_remembered() {
        let mut ahead = ahead();
        for number in 0..5000 {
            quick(&mut ahead, RouteId::numbered(number));
        }
        assert!(ahead.speeds.len() <= MOST, "{}", ahead.speeds.len());
    }
}
