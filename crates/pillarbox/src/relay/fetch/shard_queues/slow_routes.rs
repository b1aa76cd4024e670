//! Slow routes: most of their rows stay in the table, so that those behind them are reached.
//!
//! A route is slow when its rows fill memory and wait for a worker of theirs, while other workers
//! have nothing to do. It keeps a part of the memory then. The rest is read again when that runs out.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use super::Bounds;
use super::in_flight::{InFlight, Load};
use crate::id::{Seq, ShardId};
use crate::relay::dispatch::fair_share::RouteId;

/// A route whose fortieth part of a full memory takes longer is slow.
const STUCK: Duration = Duration::from_millis(20);
const PARTS: u32 = 40;
/// A route that needs no longer for half of what it may have, an eighth of all rows, is not slow any
/// more.
const QUICK: Duration = Duration::from_millis(50);
/// Shards that are read for a route at a time.
const AT_A_TIME: usize = 8;

#[derive(Debug, Default)]
pub(super) struct SlowRoutes {
    routes: HashMap<RouteId, Slow>,
    stuck: Option<Stuck>,
}

/// Memory is full of rows whose routes have no room.
#[derive(Debug)]
struct Stuck {
    since: Instant,
    /// How many were started since.
    started: u32,
}

#[derive(Debug)]
struct Slow {
    /// Shards with rows of the route that were left in the table, the first to be read next.
    left: VecDeque<ShardId>,
    /// When it was last given more, and whether that has come.
    fed: Instant,
    has_come: bool,
}

impl SlowRoutes {
    pub(super) fn next_due(&self) -> Option<Instant> {
        let awaited = self.routes.values().filter(|slow| !slow.has_come);
        let stuck = self.stuck.as_ref().map(|stuck| stuck.since + STUCK);
        awaited.map(|slow| slow.fed + QUICK).chain(stuck).min()
    }

    /// Whether rows of slow routes were left in the table.
    pub(super) fn has_left(&self) -> bool {
        self.routes.values().any(|slow| !slow.left.is_empty())
    }

    /// A row was started.
    pub(super) fn started(&mut self) {
        if let Some(stuck) = &mut self.stuck {
            stuck.started = stuck.started.saturating_add(1);
        }
    }

    /// Whether a row in flight is of a slow route.
    pub(super) fn is_of_one(&self, in_flight: &InFlight, seq: Option<Seq>) -> bool {
        let route = seq.and_then(|seq| in_flight.route_of(seq));
        route.is_some_and(|route| self.routes.contains_key(&route))
    }

    /// How much of slow routes is in flight.
    pub(super) fn load(&self, in_flight: &InFlight) -> Load {
        let loads = self.routes.keys().map(|route| in_flight.of_route(*route));
        loads.fold(Load::default(), |sum, load| Load {
            rows: sum.rows.saturating_add(load.rows),
            bytes: sum.bytes + load.bytes,
        })
    }

    /// Whether routes prove to be slow: nothing can be read, and hardly anything was started.
    pub(super) fn watch(&mut self, is_stuck: bool, bounds: Bounds, now: Instant) -> bool {
        if !is_stuck {
            self.stuck = None;
            return false;
        }
        let least = (bounds.batch / PARTS).max(1);
        let stuck = self.stuck.get_or_insert(Stuck { since: now, started: 0 });
        if now < stuck.since + STUCK {
            return false;
        }
        let is_slow = stuck.started < least;
        self.stuck = None;
        is_slow
    }

    /// These routes are slow.
    pub(super) fn add(&mut self, routes: impl Iterator<Item = RouteId>, now: Instant) {
        for route in routes {
            let slow = Slow { left: VecDeque::new(), fed: now, has_come: true };
            self.routes.entry(route).or_insert(slow);
        }
    }

    /// How many rows each of them may have.
    pub(super) fn most(&self, in_flight: &InFlight, bounds: Bounds) -> Vec<(RouteId, usize)> {
        let share = self.share(bounds);
        let most = |route: &RouteId| (*route, share.rows_of(in_flight.of_route(*route)) as usize);
        self.routes.keys().map(most).collect()
    }

    /// Whether a row of the route, which has so much in flight, is to stay in the table for now.
    pub(super) fn leaves(
        &mut self,
        load: Load,
        route: RouteId,
        shard: ShardId,
        bounds: Bounds,
    ) -> bool {
        let is_slow = !self.routes.is_empty() && self.routes.contains_key(&route);
        let leaves = is_slow && load.rows >= self.share(bounds).rows_of(load);
        if leaves {
            self.leave(route, shard);
        }
        leaves
    }

    /// A row stays in the table.
    pub(super) fn leave(&mut self, route: RouteId, shard: ShardId) {
        if let Some(slow) = self.routes.get_mut(&route)
            && !slow.left.contains(&shard)
        {
            slow.left.push_back(shard);
        }
    }

    /// Gives routes more that have little left. Returns the shards to read for them.
    pub(super) fn feed(
        &mut self,
        in_flight: &InFlight,
        bounds: Bounds,
        now: Instant,
    ) -> Vec<ShardId> {
        let (share, mut shards) = (self.share(bounds), Vec::new());
        self.routes.retain(|route, slow| {
            let load = in_flight.of_route(*route);
            let has_enough = load.rows > share.rows_of(load) / 2;
            slow.has_come |= has_enough;
            if has_enough || slow.is_awaited(now) {
                return true;
            }
            let is_over = slow.is_quick(now) || slow.left.is_empty();
            shards.extend(slow.feed(now));
            !is_over
        });
        shards
    }

    /// How much a slow route may have in flight: all such routes together have a quarter.
    fn share(&self, Bounds { batch, least, bytes }: Bounds) -> Share {
        let count = u32::try_from(self.routes.len()).unwrap_or(u32::MAX).max(1);
        Share(Load { rows: (batch / 4 / count).max(least), bytes: bytes / 4 / count as usize })
    }
}

/// What a slow route may have in flight.
#[derive(Clone, Copy)]
struct Share(Load);

impl Share {
    /// How many rows these are, where rows are as large as those that it has.
    fn rows_of(self, load: Load) -> u32 {
        if load.bytes <= self.0.bytes {
            return self.0.rows;
        }
        let rows = (load.rows as usize).saturating_mul(self.0.bytes) / load.bytes;
        self.0.rows.min(u32::try_from(rows).unwrap_or(u32::MAX).max(1))
    }
}

impl Slow {
    /// Whether it was given more, which has not come yet.
    fn is_awaited(&self, now: Instant) -> bool {
        !self.has_come && now < self.fed + QUICK
    }

    fn is_quick(&self, now: Instant) -> bool {
        self.has_come && now < self.fed + QUICK
    }

    /// The shards to read for it now.
    fn feed(&mut self, now: Instant) -> impl Iterator<Item = ShardId> {
        let most = if self.is_quick(now) { usize::MAX } else { AT_A_TIME };
        (self.fed, self.has_come) = (now, false);
        self.left.drain(..most.min(self.left.len()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_share_is_counted_in_rows_and_in_bytes() {
        let share = Share(Load { rows: 8, bytes: 100 });

        let rows = |rows, bytes| share.rows_of(Load { rows, bytes });

        assert_eq!(rows(20, 100), 8, "they are small");
        assert_eq!(rows(20, 1000), 2);
        assert_eq!(rows(1, 1000), 1, "one in any case");
        assert_eq!(rows(0, 0), 8);
    }
}
