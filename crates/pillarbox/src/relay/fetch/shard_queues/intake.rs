//! Taking in what a read brought.

use std::cmp::Ordering;
use std::collections::{HashMap, HashSet};
use std::time::Duration;

use tokio::time::Instant;

use crate::id::{Seq, ShardId};
use crate::relay::fetch::shard_queues::cursor::ReadStart;
use crate::relay::fetch::shard_queues::key_queue::{Parked, Queued};
use crate::relay::fetch::shard_queues::{MOST_PARKED, Shard, ShardKey, ShardQueues};
use crate::relay::number_map::NumberMap;
use crate::store::{KeyRead, Pending, Predecessor, Read, ReadKeys, ShardRead};

/// A read that takes longer walks through entries that are dead and still there.
const READ_TAKES: Duration = Duration::from_millis(20);
const ROW_TAKES: Duration = Duration::from_micros(20);

/// What the rows of a page came to.
#[derive(Debug, Default)]
pub(super) struct Tally {
    rows: usize,
    accepted: usize,
    /// Rows that wait, and rows behind such; also rows in flight that will be there for long.
    waiting: usize,
    /// Those of them that an older row comes before which is not read: it waits.
    blocked: usize,
    /// The last of these rows.
    pub(super) last: Option<Seq>,
    /// The next one could start, and its content was not read. It and those behind it stay in the
    /// table.
    pub(super) is_cut: bool,
}

/// What became of a row.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Taken {
    /// Nothing of its key was in flight: it may start.
    Starts,
    Accepted,
    /// It waits, and so do the later rows of its key.
    Waits,
    /// It could start, and its content was not read.
    Unread,
}

impl ShardQueues {
    /// Takes in pages of shards, which took so long to read.
    pub(crate) fn take_shards(
        &mut self,
        read: &Read,
        rows: Vec<Pending>,
        took: Duration,
        now: Instant,
    ) {
        self.note_speed(rows.len(), took);
        let mut pages: NumberMap<ShardId, Vec<Pending>> = NumberMap::default();
        rows.into_iter().for_each(|row| pages.entry(row.shard).or_default().push(row));
        let (mut whole, mut first_cut) = (Tally::default(), None);
        for want in &read.shards {
            let page = pages.remove(&want.shard).unwrap_or_default();
            let begin = self.shards.get(&want.shard).and_then(|shard| shard.asked);
            let Some(begin) = begin else { continue };
            let tally = self.take_page(*want, begin, read.limit, page, now);
            if tally.is_cut && tally.accepted == 0 {
                first_cut.get_or_insert(want.shard);
            }
            whole.rows += tally.rows;
            whole.is_cut |= tally.is_cut;
        }
        let behind = read.shards.last().map(|last| ShardId(last.shard.0.saturating_add(1)));
        self.first_shard = first_cut.or(behind).unwrap_or(self.first_shard);
        self.pace.came(whole.rows, !whole.is_cut);
        self.read_ended();
    }

    /// Reads from the head say whether there is much to walk through before the first row.
    fn note_speed(&mut self, rows: usize, took: Duration) {
        let asked =
            |shard: &Shard| shard.asked.is_some_and(|begin| shard.floor.is_from_base(begin));
        if self.shards.values().any(asked) {
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            let is_slow = took > READ_TAKES + ROW_TAKES.saturating_mul(rows);
            self.slow_reads = if is_slow { self.slow_reads.saturating_add(1) } else { 0 };
        }
    }

    fn take_page(
        &mut self,
        read: ShardRead,
        begin: ReadStart,
        limit: u32,
        rows: Vec<Pending>,
        now: Instant,
    ) -> Tally {
        let full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
        let last = rows.last().map(|row| row.seq).filter(|_| full);
        let vanished = self.unpark_vanished(read, last, &rows);
        let tally = self.take_rows(rows, now);
        let is_blocked = self.are_mostly_blocked(tally.rows, tally.blocked);
        vanished.iter().for_each(|shard_key| self.go_on(shard_key));
        let Some(shard) = self.shards.get_mut(&read.shard) else { return tally };
        shard.more = full || tally.is_cut;
        shard.waiting = u32::try_from(tally.waiting).unwrap_or(u32::MAX);
        shard.hungry |= shard.more && tally.accepted > 0;
        // Others had all the budget: this one is to be read first.
        shard.hungry |= tally.is_cut && tally.waiting == 0;
        shard.floor.saw(begin, tally.last, shard.more, now);
        let is_crowd = shard.more && tally.is_mostly_waiting() && !is_blocked;
        if let Some(last) = tally.last.filter(|_| is_crowd) {
            shard.hungry |= shard.floor.pass_crowd(begin, last);
        }
        if !shard.more {
            shard.end_pass();
        }
        if is_blocked {
            self.raise_base(read.shard);
        }
        tally
    }

    /// Takes in the rows of keys, each of which was read from its head.
    pub(crate) fn take_keys(&mut self, read: &ReadKeys, rows: Vec<Pending>, now: Instant) {
        let mut pages: HashMap<ShardKey, Vec<Pending>> = HashMap::new();
        for row in rows {
            if let Some(key) = row.key.clone() {
                pages.entry((row.shard, key)).or_default().push(row);
            }
        }
        for KeyRead { shard, key } in &read.keys {
            let shard_key = (*shard, key.clone());
            let page = pages.remove(&shard_key).unwrap_or_default();
            if self.has_asked(*shard) {
                self.take_key(&shard_key, read.limit, page, now);
            }
        }
        self.read_ended();
    }

    fn take_key(&mut self, shard_key: &ShardKey, limit: u32, rows: Vec<Pending>, now: Instant) {
        let full = u32::try_from(rows.len()).is_ok_and(|count| count >= limit);
        // What the queue waits for is seen anew, unless it was decided on during this read.
        let parked = self.keys.get(shard_key).and_then(|queue| queue.parked);
        if parked.is_some_and(|parked| !self.in_flight.has(parked.seq)) {
            self.unpark(shard_key);
        }
        if let Some(queue) = self.keys.get_mut(shard_key) {
            queue.reading = false;
            queue.tail_unread |= full;
        }
        let tally = self.take_rows(rows, now);
        if tally.is_cut && self.works_on(shard_key.0) {
            self.keys.entry(shard_key.clone()).or_default().tail_unread = true;
        }
        if tally.blocked > 0
            && let Some(queue) = self.keys.get_mut(shard_key)
        {
            // So is all that is behind it, until the row that waits is made new.
            queue.tail_unread = false;
        }
        self.go_on(shard_key);
    }

    pub(super) fn take_rows(&mut self, rows: Vec<Pending>, now: Instant) -> Tally {
        let mut tally = Tally::default();
        let (mut waiting_keys, mut touched) = (HashSet::new(), Vec::new());
        for row in rows {
            let seq = row.seq;
            if self.in_flight.has(seq) {
                tally.saw(seq);
                tally.waiting += usize::from(self.is_slow(Some(seq)));
                continue;
            }
            tally.blocked += usize::from(row.before == Predecessor::Waiting);
            let taken = match row.key.clone() {
                None => self.take_free_row(row, now),
                Some(key) if waiting_keys.contains(&key) => Taken::Waits,
                Some(key) => {
                    let shard_key = (row.shard, key);
                    let taken = self.take_keyed_row(row, &shard_key, now);
                    if taken == Taken::Waits {
                        waiting_keys.insert(shard_key.1.clone());
                    }
                    touched.extend((taken != Taken::Starts).then_some(shard_key));
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
        touched.iter().for_each(|shard_key| self.go_on(shard_key));
        tally
    }

    fn take_free_row(&mut self, row: Pending, now: Instant) -> Taken {
        if row.due_in > Duration::ZERO {
            self.note_due(row.shard, now + row.due_in);
            return Taken::Waits;
        }
        if row.content.is_unread() {
            return Taken::Unread;
        }
        let queued = Queued::from_table(row);
        if self.leaves(queued.route, queued.row.shard) {
            return Taken::Waits;
        }
        self.in_flight.take(&queued);
        self.ready.push(queued);
        Taken::Accepted
    }

    fn take_keyed_row(&mut self, row: Pending, shard_key: &ShardKey, now: Instant) -> Taken {
        match row.before {
            Predecessor::Nothing => {}
            Predecessor::Waiting => return Taken::Waits,
            Predecessor::Unread => return self.leave_behind(shard_key),
        }
        self.reconsider_parked(shard_key, row.seq);
        let queue = self.keys.entry(shard_key.clone()).or_default();
        if queue.parked.is_some() {
            queue.tail_unread = true;
            return Taken::Waits;
        }
        if row.due_in > Duration::ZERO {
            if queue.is_idle() && self.parked.len() < MOST_PARKED {
                self.park(shard_key, Parked { seq: row.seq, until: Some(now + row.due_in) });
            } else {
                // A key too many is forgotten, tail and all: reading it on would never end.
                queue.tail_unread = !queue.is_idle();
            }
            return Taken::Waits;
        }
        let (busy, queued) = (queue.busy, queue.queued());
        let most = if self.is_slow(busy) { 0 } else { self.pages().least };
        if row.content.is_unread() && queued < most as usize {
            return Taken::Unread;
        }
        self.line_up(Queued::from_table(row), shard_key, most)
    }

    /// Takes a row that may start behind those of its key that are in flight, at most so many.
    fn line_up(&mut self, queued: Box<Queued>, shard_key: &ShardKey, most: u32) -> Taken {
        let is_left = self.leaves(queued.route, shard_key.0);
        let Some(queue) = self.keys.get_mut(shard_key) else { return Taken::Waits };
        // One key must not fill the hand: its tail is read when its head has moved on.
        let is_left = is_left && !queue.is_registered();
        if is_left || queue.queued() >= usize::try_from(most).unwrap_or(usize::MAX) {
            queue.tail_unread = !queue.is_idle();
            return Taken::Waits;
        }
        self.in_flight.take(&queued);
        if queue.start_at_once(queued.row.seq) {
            self.ready.push(queued);
            return Taken::Starts;
        }
        queue.push(queued);
        Taken::Accepted
    }

    /// Older rows of the key lie below the floor. Where nothing is known of them, they came late.
    fn leave_behind(&mut self, shard_key: &ShardKey) -> Taken {
        if let Some(queue) = self.keys.get_mut(shard_key) {
            queue.tail_unread = true;
        } else if self.keys.len() < MOST_PARKED {
            // Beyond the bound, the next sweep finds it from the head.
            self.want_key(shard_key.clone());
        }
        Taken::Waits
    }

    /// The row that a queue waits for is seen anew: its wait is decided anew. One before it came
    /// late: the key is read from its head.
    fn reconsider_parked(&mut self, shard_key: &ShardKey, seen: Seq) {
        if self.parked.is_empty() {
            return;
        }
        let parked = self.keys.get(shard_key).and_then(|queue| queue.parked);
        match parked.map(|parked| seen.cmp(&parked.seq)) {
            Some(Ordering::Equal) => self.unpark(shard_key),
            Some(Ordering::Less) => self.want_key(shard_key.clone()),
            Some(Ordering::Greater) | None => {}
        }
    }

    /// A row that a queue waits for, and that this page should show and does not, is gone.
    fn unpark_vanished(
        &mut self,
        read: ShardRead,
        last: Option<Seq>,
        rows: &[Pending],
    ) -> Vec<ShardKey> {
        let from = (read.shard, Seq(read.floor.0.saturating_add(1)));
        let to = (read.shard, last.unwrap_or(Seq(i64::MAX)));
        // A page is in order of its rows.
        let is_seen = |seq: &Seq| rows.binary_search_by_key(seq, |row| row.seq).is_ok();
        let gone: Vec<ShardKey> = self
            .parked
            .range(from..=to)
            .filter(|((_, seq), _)| !is_seen(seq) && !self.in_flight.has(*seq))
            .map(|((shard, _), key)| (*shard, key.clone()))
            .collect();
        gone.iter().for_each(|shard_key| self.unpark(shard_key));
        gone
    }
}

impl Tally {
    fn saw(&mut self, row: Seq) {
        self.rows += 1;
        self.last = Some(row);
    }

    fn count(&mut self, taken: Taken) {
        match taken {
            Taken::Starts | Taken::Accepted => self.accepted += 1,
            Taken::Waits => self.waiting += 1,
            Taken::Unread => {}
        }
    }

    fn is_mostly_waiting(&self) -> bool {
        self.waiting > 0 && self.waiting >= self.rows / 4 * 3
    }
}
