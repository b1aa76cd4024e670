//! The queues: which rows are in flight, which may start, which keys wait. Pure, no I/O.
//!
//! Rules it keeps: a row in flight is never taken twice; per key one event is under way at a time
//! and later ones wait behind it, also while it waits for a retry or is held; a row that is
//! settled stays in flight until every read that began before has been taken in.

mod cursor;
mod drain;
mod heads;
mod in_flight;
mod intake;
mod key_queue;
mod outcome;
mod plan;
mod registered;
mod slow_routes;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;

use crate::id::{Epoch, Seq, ShardId};
use crate::relay::dispatch::fair_share::Capacity;
use crate::relay::dispatch::route_queue::RouteQueue;
use crate::relay::fetch::memory::{Limits, PageSize};
use crate::relay::fetch::shard_queues::cursor::{Cursor, ReadStart};
use crate::relay::fetch::shard_queues::heads::{FEW, HeadScan};
use crate::relay::fetch::shard_queues::in_flight::InFlight;
use crate::relay::fetch::shard_queues::key_queue::{KeyQueue, Parked, Queued};
use crate::relay::fetch::shard_queues::slow_routes::SlowRoutes;
use crate::relay::number_map::NumberSet;
use crate::store::{DueRow, Pending, Read, ReadHeads, ReadKeys};

/// Keys remembered as waiting; beyond that, each sweep finds them again.
const MOST_PARKED: usize = 100_000;

/// Keys to be read; beyond that, no more rows are made new.
const MOST_KEY_READS: usize = 4_000;

type ShardKey = (ShardId, Arc<str>);

#[derive(Debug)]
pub(crate) struct ShardQueues {
    pages: Pages,
    limits: Limits,
    /// Fewer rows of keys that wait are read with every page.
    few: usize,
    /// How many rows to ask for at a time.
    pace: PageSize,
    shards: BTreeMap<ShardId, Shard>,
    /// Shards of which nothing more is read or started.
    draining: BTreeSet<ShardId>,
    in_flight: InFlight,
    keys: HashMap<ShardKey, KeyQueue>,
    /// The rows that keys wait for, in order, to notice one that vanishes.
    parked: BTreeMap<(ShardId, Seq), Arc<str>>,
    /// The keys whose wait ends by itself, in order of time.
    due: BTreeSet<(Instant, ShardKey)>,
    ready: RouteQueue<Box<Queued>>,
    /// Rows that come from memory and may start: they go first, but not always.
    ready_local: RouteQueue<Box<Queued>>,
    slow: SlowRoutes,
    key_reads: VecDeque<ShardKey>,
    /// Rows that are new again, and were in flight when this was heard.
    promoted_in_hand: NumberSet<Seq>,
    /// Settled while a read was under way, which may still show them as they were.
    settled_during_read: Vec<Seq>,
    /// Lanes to be read once the read under way, which may show them as they were, has ended.
    doubtful: Vec<ShardKey>,
    read_under_way: bool,
    /// Lanes whose event was settled as one that waits, to be forgotten once the read under way,
    /// which may show the rows behind it as free, has ended.
    closing: Vec<ShardKey>,
    /// What was read last: pages, keys and heads take turns.
    last_read: Kind,
    /// How many reads from the head, one after the other, took long.
    slow_reads: u32,
    /// The relay stops: each shard is read to its end once more, and what waits stays in the table.
    is_last_pass: bool,
    /// The shard that the next read begins with, or the first one behind it.
    first_shard: ShardId,
    /// The same for the next read of heads.
    first_heads: ShardId,
}

/// How much to read at a time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Pages {
    /// Rows of all shards together.
    pub(crate) batch: u32,
    /// Rows of each shard, at least.
    pub(crate) least: u32,
}

#[derive(Debug)]
struct Shard {
    epoch: Epoch,
    floor: Cursor,
    /// What is read by heads of keys, if anything is.
    below: Option<HeadScan>,
    /// Whether a read may find something new.
    hungry: bool,
    /// How the read under way was begun for it. One begun before it was lost and taken again shows
    /// what was decided since as undecided: its rows do not count.
    asked: Option<ReadStart>,
    /// The last page was full: there are rows behind it.
    more: bool,
    /// How many rows of the last page waited: the next one is to be larger by as many.
    waiting: u32,
    /// To be read from its head, once the pass under way has come to its end: a pass that is cut
    /// short again and again would never reach the rows behind a crowd that waits.
    again: bool,
    /// When the first row without a key is free that is leased, or was put off.
    next_due: Option<Instant>,
    /// How far the last pass over the shard has come.
    last_pass: LastPass,
}

/// The last pass over a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastPass {
    /// No read has begun since the relay stops.
    Prefetch,
    /// A read has begun since then.
    Begun,
    /// All that was committed before was read.
    Over,
}

/// A row under way, as the queues knows it.
#[derive(Clone, Debug)]
pub(crate) struct RowKey {
    pub(crate) seq: Seq,
    pub(crate) shard: ShardId,
    pub(crate) key: Option<Arc<str>>,
}

/// A read to be done.
#[derive(Clone, Debug)]
pub(crate) enum Wanted {
    Shards(Read),
    Keys(ReadKeys),
    Heads(ReadHeads),
}

/// What a read is of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Shards,
    Keys,
    Heads,
}

impl ShardQueues {
    /// Reads so many rows at a time, of all shards together.
    pub(crate) fn new(batch: u32) -> Self {
        Self::with_pages(Pages { batch, least: 16 })
    }

    fn with_pages(pages: Pages) -> Self {
        Self {
            pages,
            limits: Limits::RELAY,
            few: FEW,
            pace: PageSize::new(pages.batch),
            shards: BTreeMap::new(),
            draining: BTreeSet::new(),
            in_flight: InFlight::default(),
            keys: HashMap::new(),
            parked: BTreeMap::new(),
            due: BTreeSet::new(),
            ready: RouteQueue::default(),
            ready_local: RouteQueue::default(),
            slow: SlowRoutes::default(),
            key_reads: VecDeque::new(),
            promoted_in_hand: NumberSet::default(),
            settled_during_read: Vec::new(),
            doubtful: Vec::new(),
            read_under_way: false,
            closing: Vec::new(),
            last_read: Kind::Heads,
            slow_reads: 0,
            is_last_pass: false,
            first_shard: ShardId(0),
            first_heads: ShardId(0),
        }
    }

    /// Works on the shards now held; forgets what waited in those that are not.
    pub(crate) fn hold(&mut self, held: &BTreeMap<ShardId, Epoch>) {
        let moved = |(shard, state): &(&ShardId, &Shard)| held.get(shard) != Some(&state.epoch);
        let lost: Vec<ShardId> =
            self.shards.iter().filter(moved).map(|(shard, _)| *shard).collect();
        lost.into_iter().for_each(|shard| self.drop_shard(shard));
        for (shard, epoch) in held {
            self.shards.entry(*shard).or_insert(Shard {
                epoch: *epoch,
                floor: Cursor::new(),
                below: None,
                hungry: true,
                asked: None,
                more: false,
                waiting: 0,
                again: false,
                next_due: None,
                last_pass: LastPass::Prefetch,
            });
        }
    }

    /// Forgets a shard that is another's now. What is in delivery stays in flight until it ends.
    fn drop_shard(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        self.draining.remove(&shard);
        self.put_down(shard);
    }

    /// Forgets what waits in a shard.
    fn put_down(&mut self, shard: ShardId) {
        for row in self.leave_ready(shard) {
            self.in_flight.remove(row.seq);
            if let Some(queue) = row.key.and_then(|key| self.keys.get_mut(&(shard, key))) {
                queue.end_turn(row.seq);
            }
        }
        for (_, queue) in self.keys.iter_mut().filter(|((of, _), _)| *of == shard) {
            for seq in queue.drop_queue().into_iter().chain(queue.drop_registered()) {
                self.in_flight.remove(seq);
            }
            (queue.parked, queue.reading) = (None, false);
        }
        self.keys.retain(|(of, _), queue| *of != shard || queue.busy.is_some());
        self.parked.retain(|(of, _), _| *of != shard);
        self.due.retain(|(_, (of, _))| *of != shard);
        self.key_reads.retain(|(of, _)| *of != shard);
    }

    fn leave_ready(&mut self, shard: ShardId) -> Vec<Pending> {
        let both = [&mut self.ready, &mut self.ready_local];
        let gone = both.map(|ready| ready.take_out(|queued| queued.row.shard == shard));
        gone.into_iter().flatten().map(|queued| queued.row).collect()
    }

    /// Something may have been committed anywhere.
    pub(crate) fn wake(&mut self) {
        for shard in self.shards.values_mut() {
            shard.hungry = true;
            shard.below.iter_mut().for_each(HeadScan::want);
        }
    }

    /// So many rows whose lease had run out can be started now.
    pub(crate) fn reclaimed(&mut self, rows: u64) {
        if !self.is_last_pass {
            self.wake();
        } else if rows > 0 {
            self.sweep();
        }
    }

    /// Everything is to be read from its head: for late commits and replays.
    pub(crate) fn sweep(&mut self) {
        self.shards.values_mut().for_each(Shard::start_over);
    }

    /// Waiting rows are new now: they are found by pages, or below the base by their keys.
    pub(crate) fn promoted(&mut self, rows: Vec<DueRow>) {
        for DueRow { shard, seq, key } in rows {
            if self.in_flight.has(seq) {
                // The answer to the settle that put it off is still to come.
                self.promoted_in_hand.insert(seq);
            }
            let Some(state) = self.shards.get_mut(&shard) else { continue };
            state.start_over();
            let rises = state.below.as_ref().is_some_and(HeadScan::rises);
            if let Some(key) = key.filter(|_| rises || seq <= state.floor.base()) {
                self.want_key((shard, key));
            }
        }
    }

    /// Whether as many keys are to be read as are worth remembering.
    pub(crate) fn has_many_keys_to_read(&self) -> bool {
        self.key_reads.len() > MOST_KEY_READS
    }

    /// A row of the shard may be found now that earlier reads have not brought.
    pub(crate) fn look_at_shard_again(&mut self, shard: ShardId) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.start_over();
        }
    }

    /// Reads every shard to its end once more. What waits for its time is left alone from now on.
    pub(crate) fn begin_last_pass(&mut self) {
        self.is_last_pass = true;
        self.sweep();
    }

    /// Whether rows may start, or may be found by the last pass.
    pub(crate) fn has_due_rows(&self) -> bool {
        let is_unread = |(id, shard): (&ShardId, &Shard)| {
            let has_heads = shard.below.as_ref().is_some_and(HeadScan::is_wanted);
            (has_heads || shard.last_pass != LastPass::Over) && !self.draining.contains(id)
        };
        self.read_under_way
            || self.table_depth() + self.local_depth() + self.key_reads.len() > 0
            || self.shards.iter().any(is_unread)
            || self.slow.has_left()
            || self.keys.values().any(KeyQueue::has_next)
    }

    /// Turns to what has become due.
    pub(crate) fn tick(&mut self, now: Instant) {
        if self.is_last_pass {
            return;
        }
        while self.due.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, shard_key)) = self.due.pop_first() else { break };
            self.want_key(shard_key);
        }
        for shard in self.shards.values_mut() {
            if shard.next_due.is_some_and(|when| when <= now) {
                shard.next_due = None;
                shard.start_over();
            }
            if let Some(below) = &mut shard.below {
                below.tick(now);
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        if self.is_last_pass {
            return self.slow.next_due();
        }
        let keys = self.due.first().map(|(when, _)| *when);
        let rows = self.shards.values().filter_map(|shard| shard.next_due).min();
        let below = self.shards.values().filter_map(|shard| shard.below.as_ref());
        let heads = below.filter_map(HeadScan::next_due).min();
        [keys, rows, heads, self.slow.next_due()].into_iter().flatten().min()
    }

    /// How many rows from the table may start.
    pub(crate) fn table_depth(&self) -> usize {
        self.ready.len()
    }

    /// How many rows from memory may start.
    pub(crate) fn local_depth(&self) -> usize {
        self.ready_local.len()
    }

    /// The next row to start, and the epoch its shard is held at.
    pub(crate) fn next_start(&mut self, routes: &impl Capacity) -> Option<(Pending, Epoch)> {
        let queued = self.ready.next(routes)?;
        self.slow.started();
        Some(self.at_epoch(*queued))
    }

    fn at_epoch(&self, Queued { row, .. }: Queued) -> (Pending, Epoch) {
        let shard = self.shards.get(&row.shard).expect("a dropped shard takes its rows along");
        (row, shard.epoch)
    }

    /// Lets a queue go on: with its queue, with a read of its tail, or to its end.
    fn go_on(&mut self, shard_key: &ShardKey) {
        let Some(queue) = self.keys.get_mut(shard_key) else { return };
        if let Some(queued) = queue.pop() {
            let is_hot = queued.room.is_some();
            let ready = if is_hot { &mut self.ready_local } else { &mut self.ready };
            return ready.push(queued);
        }
        if queue.is_idle() && queue.parked.is_none() && queue.tail_unread {
            queue.tail_unread = false;
            self.want_key(shard_key.clone());
        } else if queue.is_over() {
            self.keys.remove(shard_key);
        }
    }

    /// How much to read at a time: fewer rows where they are large, and at least one of each shard.
    fn pages(&self) -> Pages {
        let batch = self.pace.rows();
        let each = batch / u32::try_from(self.shards.len()).unwrap_or(u32::MAX).max(1);
        Pages { batch, least: self.pages.least.min(each.max(1)) }
    }

    /// Whether what was read at this epoch may be started.
    pub(crate) fn holds(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.works_on(shard) && self.shards.get(&shard).is_some_and(|state| state.epoch == epoch)
    }

    /// Whether rows of the shard are read and started.
    pub(crate) fn works_on(&self, shard: ShardId) -> bool {
        self.shards.contains_key(&shard) && !self.draining.contains(&shard)
    }

    /// Whether the read under way was begun for the shard as it is held now.
    fn has_asked(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|state| state.asked.is_some())
    }

    /// Wants a key read from its head, once.
    fn want_key(&mut self, shard_key: ShardKey) {
        if !self.works_on(shard_key.0) {
            return self.leave_if_lost(&shard_key);
        }
        let queue = self.keys.entry(shard_key.clone()).or_default();
        if !std::mem::replace(&mut queue.reading, true) {
            self.key_reads.push_back(shard_key);
        } else if self.read_under_way {
            // Perhaps of this key, and begun before.
            self.doubtful.push(shard_key);
        }
    }

    fn park(&mut self, shard_key: &ShardKey, parked: Parked) {
        self.unpark(shard_key);
        let Some(queue) = self.keys.get_mut(shard_key) else { return };
        queue.parked = Some(parked);
        self.parked.insert((shard_key.0, parked.seq), shard_key.1.clone());
        if let Some(when) = parked.until {
            self.due.insert((when, shard_key.clone()));
        }
    }

    fn unpark(&mut self, shard_key: &ShardKey) {
        let queue = self.keys.get_mut(shard_key);
        let Some(parked) = queue.and_then(|queue| queue.parked.take()) else { return };
        self.parked.remove(&(shard_key.0, parked.seq));
        if let Some(when) = parked.until {
            self.due.remove(&(when, shard_key.clone()));
        }
    }

    fn drop_queue(&mut self, shard_key: &ShardKey) {
        let Some(queue) = self.keys.get_mut(shard_key) else { return };
        for seq in queue.drop_queue() {
            self.in_flight.remove(seq);
        }
    }

    /// A row of the shard, which is not in flight, is due then.
    pub(crate) fn note_due(&mut self, shard: ShardId, when: Instant) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.next_due = Some(shard.next_due.map_or(when, |next| next.min(when)));
        }
    }

    /// Forgets a row, but not before the read under way has been taken in.
    fn forget(&mut self, seq: Seq) {
        let shard = self.in_flight.shard_of(seq);
        if let Some(shard) = shard.and_then(|shard| self.shards.get_mut(&shard)) {
            shard.hungry |= shard.more;
        }
        if self.read_under_way {
            self.in_flight.unload(seq);
            self.settled_during_read.push(seq);
        } else {
            self.in_flight.remove(seq);
        }
    }

    fn read_ended(&mut self) {
        self.read_under_way = false;
        self.shards.values_mut().for_each(|shard| shard.asked = None);
        for seq in std::mem::take(&mut self.settled_during_read) {
            self.in_flight.remove(seq);
        }
        let in_flight = &self.in_flight;
        self.promoted_in_hand.retain(|seq| in_flight.has(*seq));
        for shard_key in std::mem::take(&mut self.closing) {
            self.close(&shard_key);
        }
        for shard_key in std::mem::take(&mut self.doubtful) {
            self.want_key(shard_key);
        }
        self.forget_a_crowd();
    }

    /// Keeps the number of waiting keys within bounds; a sweep finds the others again.
    fn forget_a_crowd(&mut self) {
        while self.parked.len() > MOST_PARKED {
            let Some(((shard, _), key)) = self.parked.pop_last() else { return };
            let shard_key = (shard, key);
            self.unpark(&shard_key);
            if self.keys.get(&shard_key).is_some_and(|queue| queue.is_idle() && !queue.reading) {
                self.keys.remove(&shard_key);
            }
        }
    }
}

impl Shard {
    /// From the head: at once, or when the pass under way has come to its end.
    fn start_over(&mut self) {
        self.hungry = true;
        self.last_pass = LastPass::Prefetch;
        self.below.iter_mut().for_each(HeadScan::want);
        if self.more && self.floor.passes_a_crowd() {
            self.again = true;
            self.floor.look_back();
        } else {
            self.floor.start_over();
        }
    }

    /// A page that was not full ends the pass.
    fn end_pass(&mut self) {
        if std::mem::take(&mut self.again) {
            self.hungry = true;
            self.floor.start_over();
        } else if self.last_pass == LastPass::Begun {
            self.last_pass = LastPass::Over;
        }
    }
}

impl From<&Pending> for RowKey {
    fn from(row: &Pending) -> Self {
        Self { seq: row.seq, shard: row.shard, key: row.key.clone() }
    }
}

impl From<RowKey> for DueRow {
    fn from(RowKey { seq, shard, key }: RowKey) -> Self {
        Self { shard, seq, key }
    }
}

impl RowKey {
    fn lane(&self) -> Option<ShardKey> {
        self.key.clone().map(|key| (self.shard, key))
    }
}
