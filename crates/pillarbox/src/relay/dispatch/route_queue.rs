//! What may start, in order, except that a route without a place keeps no other waiting.

use std::collections::{BTreeMap, VecDeque};

use crate::relay::dispatch::fair_share::{Capacity, RouteId};

/// Something that goes to a route.
pub(crate) trait Routed {
    fn route(&self) -> RouteId;
}

impl<T: Routed> Routed for Box<T> {
    fn route(&self) -> RouteId {
        T::route(self)
    }
}

#[derive(Debug)]
pub(crate) struct RouteQueue<T> {
    line: VecDeque<T>,
    /// Whose turn has come while their route had no place.
    aside: BTreeMap<RouteId, VecDeque<T>>,
}

impl<T> Default for RouteQueue<T> {
    fn default() -> Self {
        Self { line: VecDeque::new(), aside: BTreeMap::new() }
    }
}

impl<T: Routed> RouteQueue<T> {
    pub(crate) fn push(&mut self, item: T) {
        self.line.push_back(item);
    }

    pub(crate) fn len(&self) -> usize {
        self.line.len() + self.aside.values().map(VecDeque::len).sum::<usize>()
    }

    pub(crate) fn is_empty(&self) -> bool {
        self.line.is_empty() && self.aside.is_empty()
    }

    /// The first one whose route has a place.
    pub(crate) fn next(&mut self, routes: &impl Capacity) -> Option<T> {
        let has_room = self.aside.keys().find(|route| routes.has_room(**route)).copied();
        if let Some(route) = has_room {
            return self.next_aside(route);
        }
        while let Some(item) = self.line.pop_front() {
            let route = item.route();
            if routes.has_room(route) {
                return Some(item);
            }
            self.aside.entry(route).or_default().push_back(item);
        }
        None
    }

    fn next_aside(&mut self, route: RouteId) -> Option<T> {
        let items = self.aside.get_mut(&route)?;
        let item = items.pop_front();
        if items.is_empty() {
            self.aside.remove(&route);
        }
        item
    }

    /// Whether something waits, and nothing but places.
    pub(crate) fn is_stuck(&self) -> bool {
        self.line.is_empty() && !self.aside.is_empty()
    }

    /// The routes without a place.
    pub(crate) fn stuck(&self) -> impl Iterator<Item = RouteId> {
        self.aside.keys().copied()
    }

    /// Takes those of a route that wait for a place, but for the first ones.
    pub(crate) fn take_behind(&mut self, route: RouteId, first: usize) -> Vec<T> {
        let Some(items) = self.aside.get_mut(&route) else { return Vec::new() };
        let taken = items.split_off(first.min(items.len())).into();
        if items.is_empty() {
            self.aside.remove(&route);
        }
        taken
    }

    /// Takes those out that are meant.
    pub(crate) fn take_out(&mut self, is_meant: impl Fn(&T) -> bool) -> Vec<T> {
        let mut taken = Vec::new();
        for items in self.aside.values_mut().chain([&mut self.line]) {
            let (meant, kept): (VecDeque<_>, VecDeque<_>) =
                std::mem::take(items).into_iter().partition(&is_meant);
            *items = kept;
            taken.extend(meant);
        }
        self.aside.retain(|_, items| !items.is_empty());
        taken
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::relay::dispatch::fair_share::FairShare;

    /// Its route, and its number.
    #[derive(Debug, PartialEq)]
    struct Item(RouteId, u32);

    impl Routed for Item {
        fn route(&self) -> RouteId {
            self.0
        }
    }

    const SLOW: RouteId = RouteId::numbered(1);
    const QUICK: RouteId = RouteId::numbered(2);

    /// Three of the one, then one of the other, with two workers.
    fn ready() -> (RouteQueue<Item>, FairShare) {
        let mut ready = RouteQueue::default();
        (0..3).for_each(|number| ready.push(Item(SLOW, number)));
        ready.push(Item(QUICK, 3));
        (ready, FairShare::new(2, true))
    }

    /// Starts the next one, if one may.
    fn start(ready: &mut RouteQueue<Item>, routes: &mut FairShare) -> Option<u32> {
        let item = ready.next(routes)?;
        routes.started(item.0);
        Some(item.1)
    }

    #[test]
    fn a_route_without_a_place_steps_aside_and_keeps_its_order() {
        let (mut ready, mut routes) = ready();
        let started = [(); 3].map(|()| start(&mut ready, &mut routes));
        assert_eq!(started, [Some(0), Some(3), None]);
        assert!(ready.is_stuck());

        routes.ended(SLOW, true);
        assert_eq!(start(&mut ready, &mut routes), Some(1), "it has waited longest");
    }

    #[test]
    fn what_is_taken_out_is_gone_from_both_places() {
        let (mut ready, mut routes) = ready();
        start(&mut ready, &mut routes);
        start(&mut ready, &mut routes);
        ready.push(Item(SLOW, 4));
        let taken = ready.take_out(|item| item.1 != 2);
        assert_eq!(taken, [Item(SLOW, 1), Item(SLOW, 4)]);
        assert_eq!(ready.take_behind(SLOW, 1), []);
        assert_eq!(ready.take_behind(SLOW, 0), [Item(SLOW, 2)]);
        assert!(!ready.is_stuck());
    }
}
