//! The rows in memory: which of them may start, and in which order.

use std::collections::HashSet;
use std::time::Duration;

use tokio::time::Instant;

use super::in_flight::InFlight;
use super::key_queue::Queued;
use super::key_queues::KeyQueues;
use super::slow_routes::SlowRoutes;
use super::{Bounds, RowKey, ShardKey, Tally};
use crate::id::{Seq, ShardId};
use crate::local_queue::{KeyedEvent, Registration};
use crate::relay::dispatch::fair_share::{Capacity, RouteId};
use crate::relay::dispatch::route_queue::RouteQueue;
use crate::store::{Pending, Predecessor, ShardRead};
use crate::verdict::Verdict;

#[derive(Debug, Default)]
pub(super) struct QueuedRows {
    in_flight: InFlight,
    keys: KeyQueues,
    /// Rows from the table that may start.
    table: RouteQueue<Box<Queued>>,
    /// Rows from memory that may start: they go first, but not always.
    local: RouteQueue<Box<Queued>>,
    slow: SlowRoutes,
}

/// What became of a row that was read.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Taken {
    /// Nothing of its key was in flight: it may start.
    Starts,
    Accepted,
    /// It waits, and so do the later rows of its key.
    Waits,
    /// It could start, and its content was not read.
    Unread,
}

impl QueuedRows {
    pub(super) fn in_flight(&self) -> &InFlight {
        &self.in_flight
    }

    pub(super) fn keys(&self) -> &KeyQueues {
        &self.keys
    }

    pub(super) fn keys_mut(&mut self) -> &mut KeyQueues {
        &mut self.keys
    }

    pub(super) fn slow(&self) -> &SlowRoutes {
        &self.slow
    }

    pub(super) fn table_depth(&self) -> usize {
        self.table.len()
    }

    pub(super) fn local_depth(&self) -> usize {
        self.local.len()
    }

    /// Forgets what waits in a shard. What is in delivery stays in flight until it ends.
    pub(super) fn close(&mut self, shard: ShardId) {
        for ready in [&mut self.table, &mut self.local] {
            for Queued { row, .. } in
                ready.take_out(|queued| queued.row.shard == shard).into_iter().map(|it| *it)
            {
                self.in_flight.remove(row.seq);
                if let Some(key) = row.key {
                    self.keys.end_turn(&(shard, key), row.seq);
                }
            }
        }
        self.keys.close(shard, &mut self.in_flight);
    }

    pub(super) fn begin_read(&mut self) {
        self.in_flight.begin_read();
        self.keys.begin_read();
    }

    pub(super) fn end_read(&mut self) {
        self.in_flight.end_read();
        self.keys.end_read(&mut self.in_flight);
    }

    /// The next row from the table to start.
    pub(super) fn next_from_table(&mut self, capacity: &impl Capacity) -> Option<Pending> {
        let queued = self.table.next(capacity)?;
        self.slow.started();
        Some(queued.row)
    }

    /// The next row from memory to start.
    pub(super) fn next_local(&mut self, capacity: &impl Capacity) -> Option<Pending> {
        let queued = self.local.next(capacity)?;
        self.slow.started();
        Some(queued.row)
    }

    /// Lets a key go on: with its queue, with a read of its tail, or to its end.
    pub(super) fn go_on(&mut self, key: &ShardKey) {
        let Some(queued) = self.keys.next(key) else { return };
        let ready = if queued.room.is_some() { &mut self.local } else { &mut self.table };
        ready.push(queued);
    }

    /// Takes in rows of one shard that were read.
    pub(super) fn take(&mut self, rows: Vec<Pending>, bounds: Bounds, now: Instant) -> Tally {
        let mut tally = Tally::default();
        let (mut waiting_keys, mut touched) = (HashSet::new(), Vec::new());
        for row in rows {
            let seq = row.seq;
            if self.in_flight.has(seq) {
                tally.saw(seq);
                tally.waiting += usize::from(self.slow.is_of_one(&self.in_flight, Some(seq)));
                continue;
            }
            tally.blocked += usize::from(row.before == Predecessor::Waiting);
            let taken = match row.key.clone() {
                None => self.take_free_row(row, bounds, &mut tally, now),
                Some(key) if waiting_keys.contains(&key) => Taken::Waits,
                Some(key) => {
                    let key = (row.shard, key);
                    let taken = self.take_keyed_row(row, &key, bounds, now);
                    if taken == Taken::Waits {
                        waiting_keys.insert(key.1.clone());
                    }
                    touched.extend((taken != Taken::Starts).then_some(key));
                    taken
                }
            };
            if taken == Taken::Unread {
                tally.is_cut = true;
                break;
            }
            tally.saw(seq);
            tally.count(taken);
        }
        touched.iter().for_each(|key| self.go_on(key));
        tally
    }

    fn take_free_row(
        &mut self,
        row: Pending,
        bounds: Bounds,
        tally: &mut Tally,
        now: Instant,
    ) -> Taken {
        if row.due_in > Duration::ZERO {
            tally.note_due(now + row.due_in);
            return Taken::Waits;
        }
        if row.content.is_unread() {
            return Taken::Unread;
        }
        let queued = Queued::from_table(row);
        if self.leaves(queued.route, queued.row.shard, bounds) {
            return Taken::Waits;
        }
        self.in_flight.take(&queued);
        self.table.push(queued);
        Taken::Accepted
    }

    fn take_keyed_row(
        &mut self,
        row: Pending,
        key: &ShardKey,
        bounds: Bounds,
        now: Instant,
    ) -> Taken {
        let Some(offer) = self.keys.offer(key, &row, now) else { return Taken::Waits };
        // One key must not fill memory: its tail is read when its head has moved on.
        let is_slow = self.slow.is_of_one(&self.in_flight, offer.busy);
        let is_full = offer.queued >= if is_slow { 0 } else { bounds.least as usize };
        if row.content.is_unread() && !is_full {
            return Taken::Unread;
        }
        let queued = Queued::from_table(row);
        let is_left = self.leaves(queued.route, key.0, bounds) && !self.keys.is_registered(key);
        if is_left || is_full {
            self.keys.leave(key);
            return Taken::Waits;
        }
        self.in_flight.take(&queued);
        let Some(queued) = self.keys.line_up(key, queued) else { return Taken::Accepted };
        self.table.push(queued);
        Taken::Starts
    }

    /// Whether a row of the route is to stay in the table for now.
    fn leaves(&mut self, route: RouteId, shard: ShardId, bounds: Bounds) -> bool {
        self.slow.leaves(self.in_flight.of_route(route), route, shard, bounds)
    }

    /// The rows of a key were read from its head.
    pub(super) fn take_key(
        &mut self,
        key: &ShardKey,
        is_full: bool,
        rows: Vec<Pending>,
        bounds: Bounds,
        now: Instant,
    ) -> Tally {
        self.keys.end_key_read(key, is_full, &self.in_flight);
        let tally = self.take(rows, bounds, now);
        if tally.is_cut && self.keys.is_open(key.0) {
            self.keys.note_tail(key.clone());
        }
        if tally.blocked > 0 {
            self.keys.block(key);
        }
        self.go_on(key);
        tally
    }

    /// Keys that wait for a row which this page should show, and does not.
    pub(super) fn unpark_vanished(
        &mut self,
        read: ShardRead,
        last: Option<Seq>,
        page: &[Pending],
    ) -> Vec<ShardKey> {
        self.keys.unpark_vanished(read, last, page, &self.in_flight)
    }

    /// Behind the head of a key there may be more, which no page shows.
    pub(super) fn note_tails(&mut self, heads: &[Pending]) {
        for row in heads.iter().filter(|row| row.before == Predecessor::Nothing) {
            if let Some(key) = row.key.clone().filter(|_| !self.in_flight.has(row.seq)) {
                self.keys.note_tail((row.shard, key));
            }
        }
    }

    /// A row is about to be committed.
    pub(super) fn register(&mut self, registration: &Registration, now: Instant) {
        let Registration { seq, shard, key, .. } = registration;
        self.in_flight.register(*seq, *shard);
        self.keys.register(&(*shard, key.clone()), *seq, now);
    }

    /// A row was committed. Returns whether it is in flight; if not, a read will find it.
    pub(super) fn commit(&mut self, event: KeyedEvent) -> bool {
        let key = (event.registration.shard, event.registration.key.clone());
        if !self.keys.unregister(&key, event.registration.seq) {
            return false;
        }
        let queued = Queued::committed(event);
        self.in_flight.take(&queued);
        self.keys.push(&key, queued);
        self.go_on(&key);
        true
    }

    /// A delivery is over, and its verdict is to be written.
    pub(super) fn decided(&mut self, row: &RowKey, verdict: &Verdict) {
        self.in_flight.unload(row.seq);
        // After a success the next one may start before this is written: a crash would repeat
        // both, in order. After anything else the key waits for what is written.
        if matches!(verdict, Verdict::Done | Verdict::Delete) {
            self.end_turn(row);
        }
    }

    /// Ends the turn of a row, and lets its key go on.
    pub(super) fn end_turn(&mut self, row: &RowKey) {
        if let Some(key) = row.shard_key() {
            self.keys.end_turn(&key, row.seq);
            self.go_on(&key);
        }
    }

    /// Forgets a row, but not before the read under way has been taken in. Returns its shard.
    pub(super) fn forget(&mut self, seq: Seq) -> Option<ShardId> {
        self.in_flight.forget(seq)
    }

    /// A row waits in the table for its time, or for an operator.
    pub(super) fn wait_in_table(&mut self, row: &RowKey) {
        if let Some(key) = row.shard_key() {
            self.keys.wait_in_table(&key, row.seq, &mut self.in_flight);
        }
    }

    /// Nothing of the row's key starts before the key has been read.
    pub(super) fn read_again(&mut self, row: &RowKey) {
        if let Some(key) = row.shard_key() {
            self.keys.read_again(&key, row.seq, &mut self.in_flight);
        }
    }

    /// The key is read again at that time.
    pub(super) fn put_off(&mut self, key: &ShardKey, seq: Seq, until: Instant) {
        self.keys.put_off(key, seq, until, &mut self.in_flight);
    }

    /// Whether rows wait, and nothing but for room.
    pub(super) fn is_stuck(&self) -> bool {
        self.table.is_stuck() || self.local.is_stuck()
    }

    /// Gives slow routes more. Returns the shards to read for them.
    pub(super) fn feed_slow_routes(&mut self, bounds: Bounds, now: Instant) -> Vec<ShardId> {
        self.slow.feed(&self.in_flight, bounds, now)
    }

    /// Finds slow routes, where nothing can be read or started. Returns whether rows of them were
    /// left in the table.
    pub(super) fn find_slow_routes(
        &mut self,
        is_stuck: bool,
        bounds: Bounds,
        now: Instant,
    ) -> bool {
        if !self.slow.watch(is_stuck, bounds, now) {
            return false;
        }
        self.slow.add(self.table.stuck().chain(self.local.stuck()), now);
        for (route, most) in self.slow.most(&self.in_flight, bounds) {
            let mut rows = self.table.take_behind(route, most);
            rows.append(&mut self.local.take_behind(route, most));
            rows.into_iter().for_each(|queued| self.leave_in_table(queued));
        }
        // What is behind an event of a slow route is read when its turn comes.
        let Self { slow, keys, in_flight, .. } = self;
        keys.shorten(|busy, in_flight| slow.is_of_one(in_flight, busy), in_flight);
        true
    }

    /// A row that was not started goes back, and what is behind it.
    fn leave_in_table(&mut self, queued: Box<Queued>) {
        let key = queued.row.key.clone().map(|key| (queued.row.shard, key));
        if key.as_ref().is_some_and(|key| self.keys.is_registered(key)) {
            // What is about to be committed would not wait for it.
            return self.table.push(queued);
        }
        let Queued { row, route, .. } = *queued;
        self.in_flight.remove(row.seq);
        self.slow.leave(route, row.shard);
        if let Some(key) = key {
            self.keys.leave_in_table(&key, row.seq, &mut self.in_flight);
        }
    }
}
