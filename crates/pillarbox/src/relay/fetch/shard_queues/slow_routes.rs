//! Slow routes: most of their rows stay in the table, so that those behind them are reached.
//!
//! A route is slow when its rows fill the hand and wait for a worker of theirs, while other workers
//! have nothing to do. It keeps a part of the hand then. The rest is read again when that runs out.

use std::collections::{HashMap, VecDeque};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::{Seq, ShardId};
use crate::relay::dispatch::fair_share::RouteId;
use crate::relay::fetch::shard_queues::in_flight::{InFlight, Load};
use crate::relay::fetch::shard_queues::key_queue::{KeyQueue, Queued};
use crate::relay::fetch::shard_queues::{Pages, Shard, ShardQueues};

/// Whose fortieth part of a full hand takes longer is slow.
const STUCK: Duration = Duration::from_millis(20);
const PARTS: u32 = 40;
/// Who needs no longer for half of what it may have, an eighth of the hand, is not slow any more.
const QUICK: Duration = Duration::from_millis(50);
/// Shards that are read for a route at a time.
const AT_A_TIME: usize = 8;

#[derive(Debug, Default)]
pub(super) struct SlowRoutes {
    routes: HashMap<RouteId, Slow>,
    stuck: Option<Stuck>,
}

/// A hand that is full of rows whose routes have no place.
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

    pub(super) fn started(&mut self) {
        if let Some(stuck) = &mut self.stuck {
            stuck.started = stuck.started.saturating_add(1);
        }
    }

    fn has(&self, route: RouteId) -> bool {
        self.routes.contains_key(&route)
    }

    /// Whether a row in flight is of a slow route.
    fn is_of_one(&self, in_flight: &InFlight, seq: Option<Seq>) -> bool {
        seq.and_then(|seq| in_flight.route_of(seq)).is_some_and(|route| self.has(route))
    }

    /// A row stays in the table.
    fn leave(&mut self, route: RouteId, shard: ShardId) {
        if let Some(slow) = self.routes.get_mut(&route)
            && !slow.left.contains(&shard)
        {
            slow.left.push_back(shard);
        }
    }
}

impl ShardQueues {
    /// Looks after the routes that are slow, or prove to be.
    pub(crate) fn mind_slow_routes(&mut self, now: Instant) {
        self.feed_slow_routes(now);
        if !self.is_stuck() {
            self.slow.stuck = None;
            return;
        }
        let least = (self.pages().batch / PARTS).max(1);
        let stuck = self.slow.stuck.get_or_insert(Stuck { since: now, started: 0 });
        if now >= stuck.since + STUCK {
            let is_slow = stuck.started < least;
            self.slow.stuck = None;
            if is_slow {
                self.put_down_slow_rows(now);
            }
        }
    }

    /// Whether nothing more can be read, and nothing can be started.
    fn is_stuck(&self) -> bool {
        let are_stuck = self.ready.is_stuck() || self.ready_local.is_stuck();
        are_stuck && !self.is_half_empty()
    }

    /// How much of slow routes is in in_flight.
    pub(super) fn slow_in_hand(&self) -> Load {
        let loads = self.slow.routes.keys().map(|route| self.in_flight.of_route(*route));
        loads.fold(Load::default(), |sum, load| Load {
            rows: sum.rows.saturating_add(load.rows),
            bytes: sum.bytes + load.bytes,
        })
    }

    fn put_down_slow_rows(&mut self, now: Instant) {
        let routes: Vec<RouteId> = self.ready.stuck().chain(self.ready_local.stuck()).collect();
        for route in routes {
            let slow = Slow { left: VecDeque::new(), fed: now, has_come: true };
            self.slow.routes.entry(route).or_insert(slow);
        }
        let (share, routes) = (self.share_of_slow(), self.slow.routes.keys());
        for route in routes.copied().collect::<Vec<_>>() {
            let most = share.rows_of(self.in_flight.of_route(route)) as usize;
            let mut rows = self.ready.take_behind(route, most);
            rows.append(&mut self.ready_local.take_behind(route, most));
            rows.into_iter().for_each(|queued| self.leave_in_table(queued));
        }
        self.shorten_slow_lanes();
        self.wake();
    }

    /// A row that was not started goes out of hand, and what is behind it.
    fn leave_in_table(&mut self, queued: Box<Queued>) {
        let shard_key = queued.row.key.clone().map(|key| (queued.row.shard, key));
        let queue = shard_key.as_ref().and_then(|shard_key| self.keys.get(shard_key));
        if queue.is_some_and(KeyQueue::is_registered) {
            // What is about to be committed would not wait for it.
            return self.ready.push(queued);
        }
        let Queued { row, route, .. } = *queued;
        self.in_flight.remove(row.seq);
        self.slow.leave(route, row.shard);
        let Some(shard_key) = shard_key else { return };
        self.drop_queue(&shard_key);
        let Some(queue) = self.keys.get_mut(&shard_key) else { return };
        queue.end_turn(row.seq);
        queue.tail_unread = !queue.is_idle();
        if queue.is_over() {
            self.keys.remove(&shard_key);
        }
    }

    /// What is behind an event of a slow route is read when its turn comes.
    fn shorten_slow_lanes(&mut self) {
        for queue in self.keys.values_mut() {
            if self.slow.is_of_one(&self.in_flight, queue.busy) {
                queue.drop_queue().into_iter().for_each(|seq| self.in_flight.remove(seq));
            }
        }
    }

    /// Whether a row of the route is to stay in the table for now.
    pub(super) fn leaves(&mut self, route: RouteId, shard: ShardId) -> bool {
        let load = self.in_flight.of_route(route);
        let leaves = self.slow.has(route) && load.rows >= self.share_of_slow().rows_of(load);
        if leaves {
            self.slow.leave(route, shard);
        }
        leaves
    }

    /// Whether the event under way in a queue is of a slow route.
    pub(super) fn is_slow(&self, seq: Option<Seq>) -> bool {
        self.slow.is_of_one(&self.in_flight, seq)
    }

    /// How much of a slow route is in flight: of all such together a quarter of it.
    fn share_of_slow(&self) -> Share {
        let count = u32::try_from(self.slow.routes.len()).unwrap_or(u32::MAX).max(1);
        let Pages { batch, least } = self.pages();
        Share(Load {
            rows: (batch / 4 / count).max(least),
            bytes: self.limits.most / 4 / count as usize,
        })
    }

    fn feed_slow_routes(&mut self, now: Instant) {
        let share = self.share_of_slow();
        let Self { slow, in_flight, shards, .. } = self;
        slow.routes.retain(|route, slow| {
            let load = in_flight.of_route(*route);
            let has_enough = load.rows > share.rows_of(load) / 2;
            slow.has_come |= has_enough;
            if has_enough || slow.is_awaited(now) {
                return true;
            }
            let is_over = slow.is_quick(now) || slow.left.is_empty();
            for shard in slow.feed(now) {
                shards.get_mut(&shard).into_iter().for_each(Shard::start_over);
            }
            !is_over
        });
    }
}

/// What a slow route may have of the in_flight.
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
