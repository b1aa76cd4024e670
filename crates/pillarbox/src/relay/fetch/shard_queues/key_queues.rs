//! The queues of all keys: which key may go on, which waits, and which is to be read.

use std::cmp::Ordering;
use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use super::ShardKey;
use super::in_flight::InFlight;
use super::key_queue::{KeyQueue, Parked, Queued};
use crate::id::{Epoch, Seq, ShardId};
use crate::local_queue::Registration;
use crate::store::{Pending, Predecessor, ShardRead};

/// Keys remembered as waiting; beyond that, each sweep finds them again.
const MOST_PARKED: usize = 100_000;

#[derive(Debug, Default)]
pub(super) struct KeyQueues {
    /// The shards whose rows are read and started.
    open: BTreeSet<ShardId>,
    keys: HashMap<ShardKey, KeyQueue>,
    /// The rows that keys wait for, in order, to notice one that vanishes.
    parked: BTreeMap<(ShardId, Seq), Arc<str>>,
    /// The keys whose wait ends by itself, in order of time.
    due: BTreeSet<(Instant, ShardKey)>,
    /// Keys to be read from their head.
    wanted: VecDeque<ShardKey>,
    is_reading: bool,
    /// Keys to be read once the read under way, which may show them as they were, has ended.
    doubtful: Vec<ShardKey>,
    /// Keys whose event was settled as one that waits, to be forgotten once the read under way,
    /// which may show the rows behind it as free, has ended.
    closing: Vec<ShardKey>,
}

/// Where a row of a key can go.
#[derive(Clone, Copy, Debug)]
pub(super) struct Offer {
    /// The row of the key that may start, is in delivery, or has a verdict to be written.
    pub(super) busy: Option<Seq>,
    /// How many rows wait behind it.
    pub(super) queued: usize,
}

impl KeyQueues {
    pub(super) fn open(&mut self, shard: ShardId) {
        self.open.insert(shard);
    }

    /// Whether rows of the shard are read and started.
    pub(super) fn is_open(&self, shard: ShardId) -> bool {
        self.open.contains(&shard)
    }

    /// Forgets what waits in a shard. What is under way stays until it ends.
    pub(super) fn close(&mut self, shard: ShardId, in_flight: &mut InFlight) {
        self.open.remove(&shard);
        for (_, queue) in self.keys.iter_mut().filter(|((of, _), _)| *of == shard) {
            queue.clear(in_flight);
            (queue.parked, queue.reading) = (None, false);
        }
        self.keys.retain(|(of, _), queue| *of != shard || queue.busy.is_some());
        self.parked.retain(|(of, _), _| *of != shard);
        self.due.retain(|(_, (of, _))| *of != shard);
        self.wanted.retain(|(of, _)| *of != shard);
    }

    #[cfg(test)]
    pub(super) fn len(&self) -> usize {
        self.keys.len()
    }

    /// How many keys are to be read.
    pub(super) fn wanted(&self) -> usize {
        self.wanted.len()
    }

    /// Whether a row may start without waiting for a time or for an operator.
    pub(super) fn has_next(&self) -> bool {
        self.keys.values().any(KeyQueue::has_next)
    }

    /// Wants the keys read whose time has come.
    pub(super) fn tick(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, key)) = self.due.pop_first() else { break };
            self.want(key);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.due.first().map(|(when, _)| *when)
    }

    /// Wants a key read from its head, once.
    pub(super) fn want(&mut self, key: ShardKey) {
        if !self.is_open(key.0) {
            return self.leave_if_closed(&key);
        }
        let queue = self.keys.entry(key.clone()).or_default();
        if !std::mem::replace(&mut queue.reading, true) {
            self.wanted.push_back(key);
        } else if self.is_reading {
            // Perhaps of this key, and begun before.
            self.doubtful.push(key);
        }
    }

    /// Takes so many keys out that are to be read.
    pub(super) fn take_wanted(&mut self, count: usize) -> impl Iterator<Item = ShardKey> {
        self.wanted.drain(..count.min(self.wanted.len()))
    }

    /// A read of the key failed.
    pub(super) fn want_again(&mut self, key: ShardKey) {
        if self.is_open(key.0) {
            self.wanted.push_back(key);
        }
    }

    pub(super) fn begin_read(&mut self) {
        self.is_reading = true;
    }

    pub(super) fn end_read(&mut self, in_flight: &mut InFlight) {
        self.is_reading = false;
        for key in std::mem::take(&mut self.closing) {
            self.forget(&key, in_flight);
        }
        for key in std::mem::take(&mut self.doubtful) {
            self.want(key);
        }
        self.forget_too_many();
    }

    /// Keeps the number of waiting keys within bounds; a sweep finds the others again.
    fn forget_too_many(&mut self) {
        while self.parked.len() > MOST_PARKED {
            let Some(((shard, _), key)) = self.parked.pop_last() else { return };
            let key = (shard, key);
            self.unpark(&key);
            if self.keys.get(&key).is_some_and(|queue| queue.is_idle() && !queue.reading) {
                self.keys.remove(&key);
            }
        }
    }

    /// The row of a key that may start now. Without one, the key is read or forgotten.
    pub(super) fn next(&mut self, key: &ShardKey) -> Option<Box<Queued>> {
        let queue = self.keys.get_mut(key)?;
        let next = queue.pop();
        if next.is_some() {
            return next;
        }
        if queue.is_idle() && queue.parked.is_none() && queue.tail_unread {
            queue.tail_unread = false;
            self.want(key.clone());
        } else if queue.is_over() {
            self.keys.remove(key);
        }
        None
    }

    pub(super) fn end_turn(&mut self, key: &ShardKey, seq: Seq) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.end_turn(seq);
        }
    }

    /// There are rows behind those in flight, which no read has brought.
    pub(super) fn note_tail(&mut self, key: ShardKey) {
        self.keys.entry(key).or_default().tail_unread = true;
    }

    /// There may be rows behind those in flight, if there are any.
    pub(super) fn doubt_tail(&mut self, key: &ShardKey) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.tail_unread = true;
        }
    }

    /// A row is about to be committed.
    pub(super) fn register(&mut self, key: &ShardKey, seq: Seq, now: Instant) {
        let queue = self.keys.entry(key.clone()).or_default();
        queue.register(seq, now);
        // A later row came first, and waits for its time: not in front of this one.
        if queue.parked.is_some_and(|parked| parked.seq > seq) {
            queue.tail_unread = true;
            self.unpark(key);
        }
    }

    /// Whether the row was registered until now.
    pub(super) fn unregister(&mut self, key: &ShardKey, seq: Seq) -> bool {
        self.keys.get_mut(key).is_some_and(|queue| queue.unregister(seq))
    }

    pub(super) fn is_registered(&self, key: &ShardKey) -> bool {
        self.keys.get(key).is_some_and(KeyQueue::is_registered)
    }

    /// The registrations of before then.
    pub(super) fn registered_before(&self, then: Instant) -> Vec<Registration> {
        let mut overdue = Vec::new();
        for ((shard, key), queue) in &self.keys {
            let registration =
                |seq| Registration { seq, shard: *shard, epoch: Epoch(0), key: key.clone() };
            overdue.extend(queue.registered_before(then).map(registration));
        }
        overdue
    }

    /// Queues a row that was committed after it was registered.
    pub(super) fn push(&mut self, key: &ShardKey, queued: Box<Queued>) {
        self.keys.entry(key.clone()).or_default().push(queued);
    }

    /// Whether a row that was read can be queued, as far as its key is concerned; `None` if it is
    /// to wait in the table.
    pub(super) fn offer(&mut self, key: &ShardKey, row: &Pending, now: Instant) -> Option<Offer> {
        match row.before {
            Predecessor::Nothing => {}
            Predecessor::Waiting => return None,
            Predecessor::Unread => {
                self.leave_behind(key);
                return None;
            }
        }
        self.reconsider_parked(key, row.seq);
        let queue = self.keys.entry(key.clone()).or_default();
        if queue.parked.is_some() {
            queue.tail_unread = true;
            return None;
        }
        if row.due_in > Duration::ZERO {
            if queue.is_idle() && self.parked.len() < MOST_PARKED {
                self.park(key, Parked { seq: row.seq, until: Some(now + row.due_in) });
            } else {
                // A key too many is forgotten, tail and all: reading it on would never end.
                queue.tail_unread = !queue.is_idle();
            }
            return None;
        }
        Some(Offer { busy: queue.busy, queued: queue.queued() })
    }

    /// A row of the key stays in the table, behind those in flight.
    pub(super) fn leave(&mut self, key: &ShardKey) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.tail_unread = !queue.is_idle();
        }
    }

    /// Lines a row up. Returns it if it may start at once.
    pub(super) fn line_up(&mut self, key: &ShardKey, queued: Box<Queued>) -> Option<Box<Queued>> {
        let queue = self.keys.entry(key.clone()).or_default();
        if queue.start_at_once(queued.row.seq) {
            return Some(queued);
        }
        queue.push(queued);
        None
    }

    /// Older rows of the key lie below the cursor. Where nothing is known of them, they came late.
    fn leave_behind(&mut self, key: &ShardKey) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.tail_unread = true;
        } else if self.keys.len() < MOST_PARKED {
            // Beyond the bound, the next sweep finds it from the head.
            self.want(key.clone());
        }
    }

    /// The row that a key waits for is seen anew: its wait is decided anew. One before it came
    /// late: the key is read from its head.
    fn reconsider_parked(&mut self, key: &ShardKey, seen: Seq) {
        if self.parked.is_empty() {
            return;
        }
        let parked = self.keys.get(key).and_then(|queue| queue.parked);
        match parked.map(|parked| seen.cmp(&parked.seq)) {
            Some(Ordering::Equal) => self.unpark(key),
            Some(Ordering::Less) => self.want(key.clone()),
            Some(Ordering::Greater) | None => {}
        }
    }

    /// Rows that keys wait for, and that this page should show and does not, are gone. Returns
    /// their keys.
    pub(super) fn unpark_vanished(
        &mut self,
        read: ShardRead,
        last: Option<Seq>,
        rows: &[Pending],
        in_flight: &InFlight,
    ) -> Vec<ShardKey> {
        let from = (read.shard, Seq(read.floor.0.saturating_add(1)));
        let to = (read.shard, last.unwrap_or(Seq(i64::MAX)));
        // A page is in order of its rows.
        let is_seen = |seq: &Seq| rows.binary_search_by_key(seq, |row| row.seq).is_ok();
        let gone: Vec<ShardKey> = self
            .parked
            .range(from..=to)
            .filter(|((_, seq), _)| !is_seen(seq) && !in_flight.has(*seq))
            .map(|((shard, _), key)| (*shard, key.clone()))
            .collect();
        gone.iter().for_each(|key| self.unpark(key));
        gone
    }

    /// A key was read from its head.
    pub(super) fn end_key_read(&mut self, key: &ShardKey, is_full: bool, in_flight: &InFlight) {
        // What the key waits for is seen anew, unless it was decided on during this read.
        let parked = self.keys.get(key).and_then(|queue| queue.parked);
        if parked.is_some_and(|parked| !in_flight.has(parked.seq)) {
            self.unpark(key);
        }
        if let Some(queue) = self.keys.get_mut(key) {
            queue.reading = false;
            queue.tail_unread |= is_full;
        }
    }

    /// The head of the key waits, and so does all that is behind it, until that is made new.
    pub(super) fn block(&mut self, key: &ShardKey) {
        if let Some(queue) = self.keys.get_mut(key) {
            queue.tail_unread = false;
        }
    }

    /// Nothing of the key starts before it has been read from its head, by a read that begins
    /// later than now.
    pub(super) fn read_again(&mut self, key: &ShardKey, seq: Seq, in_flight: &mut InFlight) {
        self.wait_for(key, Parked { seq, until: None }, in_flight);
        if self.is_reading {
            self.doubtful.push(key.clone());
        } else {
            self.want(key.clone());
        }
    }

    /// The row is read again at that time; its key waits behind it.
    pub(super) fn put_off(
        &mut self,
        key: &ShardKey,
        seq: Seq,
        until: Instant,
        in_flight: &mut InFlight,
    ) {
        self.wait_for(key, Parked { seq, until: Some(until) }, in_flight);
        self.leave_if_closed(key);
    }

    /// The row waits for its time or for an operator. A read that begins from now on says of the
    /// rows behind it that it comes before them; the one under way may show them as free.
    pub(super) fn wait_in_table(&mut self, key: &ShardKey, seq: Seq, in_flight: &mut InFlight) {
        if !self.is_reading {
            self.end_turn(key, seq);
            return self.forget(key, in_flight);
        }
        self.wait_for(key, Parked { seq, until: None }, in_flight);
        self.closing.push(key.clone());
        self.leave_if_closed(key);
    }

    fn wait_for(&mut self, key: &ShardKey, parked: Parked, in_flight: &mut InFlight) {
        self.end_turn(key, parked.seq);
        self.drop_queue(key, in_flight);
        self.park(key, parked);
    }

    /// Forgets a key whose head waits in the table.
    fn forget(&mut self, key: &ShardKey, in_flight: &mut InFlight) {
        self.unpark(key);
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.clear(in_flight);
        queue.tail_unread = false;
        if queue.is_over() {
            self.keys.remove(key);
        }
    }

    /// A queue that outlived its shard, or the work on it, because something of it was under way,
    /// ends.
    fn leave_if_closed(&mut self, key: &ShardKey) {
        if !self.is_open(key.0) {
            self.unpark(key);
            self.keys.remove(key);
        }
    }

    /// A row that was to start stays in the table, and what is behind it.
    pub(super) fn leave_in_table(&mut self, key: &ShardKey, seq: Seq, in_flight: &mut InFlight) {
        self.drop_queue(key, in_flight);
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.end_turn(seq);
        queue.tail_unread = !queue.is_idle();
        if queue.is_over() {
            self.keys.remove(key);
        }
    }

    /// Drops what is behind events that are chosen by the row under way.
    pub(super) fn shorten(
        &mut self,
        is_chosen: impl Fn(Option<Seq>, &InFlight) -> bool,
        in_flight: &mut InFlight,
    ) {
        for queue in self.keys.values_mut() {
            if is_chosen(queue.busy, in_flight) {
                queue.drop_queue().into_iter().for_each(|seq| in_flight.remove(seq));
            }
        }
    }

    fn drop_queue(&mut self, key: &ShardKey, in_flight: &mut InFlight) {
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.drop_queue().into_iter().for_each(|seq| in_flight.remove(seq));
    }

    fn park(&mut self, key: &ShardKey, parked: Parked) {
        self.unpark(key);
        let Some(queue) = self.keys.get_mut(key) else { return };
        queue.parked = Some(parked);
        self.parked.insert((key.0, parked.seq), key.1.clone());
        if let Some(when) = parked.until {
            self.due.insert((when, key.clone()));
        }
    }

    fn unpark(&mut self, key: &ShardKey) {
        let queue = self.keys.get_mut(key);
        let Some(parked) = queue.and_then(|queue| queue.parked.take()) else { return };
        self.parked.remove(&(key.0, parked.seq));
        if let Some(when) = parked.until {
            self.due.remove(&(when, key.clone()));
        }
    }
}
