//! The rows of owned shards: what to read, what may start, which keys wait. Pure, no I/O.
//!
//! Rules it keeps: a row in flight is never taken twice; per key one event is under way at a time
//! and later ones wait behind it, also while it waits for a retry or is held; a row that is
//! settled stays in flight until every read that began before has been taken in.

mod cursor;
mod heads;
mod in_flight;
mod key_queue;
mod key_queues;
mod queued_rows;
mod reads;
mod shard;
mod slow_routes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::time::Instant;

use self::queued_rows::{QueuedRows, Taken};
use self::reads::Reads;
use crate::id::{Epoch, Seq, ShardId};
use crate::local_queue::{KeyedEvent, Registration};
use crate::relay::dispatch::fair_share::Capacity;
use crate::relay::number_map::NumberSet;
use crate::store::{DueRow, Heads, Pending, Read, ReadHeads, ReadKeys};
use crate::verdict::Verdict;

/// Keys to be read; beyond that, no more rows are made new.
const MOST_KEY_READS: usize = 4_000;

/// How long a key waits for a commit that does not come; the row is an ordinary one then.
const COMMIT_TIMEOUT: Duration = Duration::from_secs(5);

type ShardKey = (ShardId, Arc<str>);

#[derive(Debug)]
pub(crate) struct ShardQueues {
    reads: Reads,
    rows: QueuedRows,
    /// Rows that are new again, and were in flight when this was heard.
    promoted: NumberSet<Seq>,
}

/// How much to read at a time.
#[derive(Clone, Copy, Debug)]
struct Pages {
    /// Rows of all shards together.
    batch: u32,
    /// Rows of each shard, at least.
    least: u32,
}

/// How much to have in memory.
#[derive(Clone, Copy, Debug)]
struct Bounds {
    /// Rows of all shards together.
    batch: u32,
    /// Rows of each shard, at least, and rows of one key at most.
    least: u32,
    /// Payloads and headers.
    bytes: usize,
}

/// A row under way.
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

/// What the rows of a page came to.
#[derive(Debug, Default)]
struct Tally {
    rows: usize,
    accepted: usize,
    /// Rows that wait, and rows behind such; also rows in flight that will be there for long.
    waiting: usize,
    /// Those of them that an older row comes before which is not read: it waits.
    blocked: usize,
    /// The last of these rows.
    last: Option<Seq>,
    /// The next one could start, and its content was not read. It and those behind it stay in the
    /// table.
    is_cut: bool,
    /// When the first row without a key is due that waits.
    next_due: Option<Instant>,
}

impl ShardQueues {
    /// Reads so many rows at a time, of all shards together.
    pub(crate) fn new(batch: u32) -> Self {
        Self::with_pages(Pages { batch, least: 16 })
    }

    fn with_pages(pages: Pages) -> Self {
        let (rows, promoted) = (QueuedRows::default(), NumberSet::default());
        Self { reads: Reads::new(pages), rows, promoted }
    }

    /// Works on the shards now owned; forgets what waits in those that are not.
    pub(crate) fn hold(&mut self, owned: &BTreeMap<ShardId, Epoch>) {
        let (added, lost) = self.reads.sync(owned);
        lost.into_iter().for_each(|shard| self.rows.close(shard));
        added.into_iter().for_each(|shard| self.rows.keys_mut().open(shard));
    }

    /// Drains so many more shards, those with least in flight first: nothing new of them starts,
    /// and what is under way comes to its end. Returns which.
    pub(crate) fn drain(&mut self, count: usize) -> Vec<ShardId> {
        let mut chosen: Vec<ShardId> = self.reads.open().collect();
        chosen.sort_by_key(|shard| self.rows.in_flight().of_shard(*shard));
        chosen.truncate(count);
        for shard in &chosen {
            self.reads.drain(*shard);
            self.rows.close(*shard);
        }
        chosen
    }

    /// The draining shards of which nothing is in flight any more.
    pub(crate) fn drained(&self) -> Vec<ShardId> {
        let is_drained = |shard: &ShardId| self.rows.in_flight().of_shard(*shard) == 0;
        self.reads.draining().filter(is_drained).collect()
    }

    /// Whether what was read at this epoch may be started.
    pub(crate) fn holds(&self, shard: ShardId, epoch: Epoch) -> bool {
        self.works_on(shard) && self.reads.epoch(shard) == Some(epoch)
    }

    /// Whether rows of the shard are read and started.
    pub(crate) fn works_on(&self, shard: ShardId) -> bool {
        self.rows.keys().is_open(shard)
    }

    /// Something may have been committed anywhere.
    pub(crate) fn wake(&mut self) {
        self.reads.wake();
    }

    /// Everything is to be read from its head: for late commits and replays.
    pub(crate) fn sweep(&mut self) {
        self.reads.sweep();
    }

    /// So many rows whose lease had run out can be started now.
    pub(crate) fn reclaimed(&mut self, rows: u64) {
        if !self.reads.is_last_pass() {
            self.wake();
        } else if rows > 0 {
            self.sweep();
        }
    }

    /// Waiting rows are new now: they are found by pages, or below the base by their keys.
    pub(crate) fn promoted(&mut self, rows: Vec<DueRow>) {
        for DueRow { shard, seq, key } in rows {
            if self.rows.in_flight().has(seq) {
                // The answer to the settle that put it off is still to come.
                self.promoted.insert(seq);
            }
            let Some(state) = self.reads.shard(shard) else { continue };
            let is_below = state.promoted(seq);
            if let Some(key) = key.filter(|_| is_below) {
                self.rows.keys_mut().want((shard, key));
            }
        }
    }

    /// Whether as many keys are to be read as are worth remembering.
    pub(crate) fn has_many_keys_to_read(&self) -> bool {
        self.rows.keys().wanted() > MOST_KEY_READS
    }

    /// A row of the shard may be found now that earlier reads have not brought.
    pub(crate) fn look_at_shard_again(&mut self, shard: ShardId) {
        if let Some(shard) = self.reads.shard(shard) {
            shard.start_over();
        }
    }

    /// Reads every shard to its end once more. What waits for its time is left alone from now on.
    pub(crate) fn begin_last_pass(&mut self) {
        self.reads.begin_last_pass();
    }

    /// Whether rows may start, or may be found by the last pass.
    pub(crate) fn has_due_rows(&self) -> bool {
        self.table_depth() + self.local_depth() + self.rows.keys().wanted() > 0
            || self.reads.is_unread()
            || self.rows.slow().has_left()
            || self.rows.keys().has_next()
    }

    /// Turns to what has become due.
    pub(crate) fn tick(&mut self, now: Instant) {
        if !self.reads.is_last_pass() {
            self.rows.keys_mut().tick(now);
            self.reads.tick(now);
        }
    }

    /// When [`tick`](Self::tick) or [`mind_slow_routes`](Self::mind_slow_routes) has something to do
    /// next.
    pub(crate) fn next_due(&self) -> Option<Instant> {
        let slow = self.rows.slow().next_due();
        if self.reads.is_last_pass() {
            return slow;
        }
        let timers = [slow, self.rows.keys().next_due(), self.reads.next_due()];
        timers.into_iter().flatten().min()
    }

    /// How many rows from the table may start.
    pub(crate) fn table_depth(&self) -> usize {
        self.rows.table_depth()
    }

    /// How many rows from memory may start.
    pub(crate) fn local_depth(&self) -> usize {
        self.rows.local_depth()
    }

    /// The next row from the table to start, and the epoch its shard is owned at.
    pub(crate) fn next_start(&mut self, capacity: &impl Capacity) -> Option<(Pending, Epoch)> {
        self.rows.next_from_table(capacity).map(|row| self.at_epoch(row))
    }

    /// The next row from memory to start, and the epoch its shard is owned at.
    pub(crate) fn next_local(&mut self, capacity: &impl Capacity) -> Option<(Pending, Epoch)> {
        self.rows.next_local(capacity).map(|row| self.at_epoch(row))
    }

    fn at_epoch(&self, row: Pending) -> (Pending, Epoch) {
        let epoch = self.reads.epoch(row.shard).expect("a lost shard takes its rows along");
        (row, epoch)
    }

    /// Looks after the routes that are slow, or prove to be.
    pub(crate) fn mind_slow_routes(&mut self, now: Instant) {
        let bounds = self.reads.bounds();
        for shard in self.rows.feed_slow_routes(bounds, now) {
            self.look_at_shard_again(shard);
        }
        let is_stuck = self.rows.is_stuck() && !self.reads.has_room(&self.rows);
        if self.rows.find_slow_routes(is_stuck, bounds, now) {
            self.wake();
        }
    }

    /// The next read, if one is worth doing and none is under way.
    pub(crate) fn next_read(&mut self, now: Instant) -> Option<Wanted> {
        let wanted = self.reads.next(&mut self.rows, now)?;
        self.rows.begin_read();
        Some(wanted)
    }

    /// A read failed: what it was for is still to be read.
    pub(crate) fn read_failed(&mut self, wanted: Wanted) {
        self.reads.failed(wanted, &mut self.rows);
        self.read_ended();
    }

    /// Takes in pages of shards, which took so long to read.
    pub(crate) fn take_shards(
        &mut self,
        read: &Read,
        page: Vec<Pending>,
        took: Duration,
        now: Instant,
    ) {
        self.reads.take_shards(read, page, took, &mut self.rows, now);
        self.read_ended();
    }

    /// Takes in the rows of keys, each of which was read from its head.
    pub(crate) fn take_keys(&mut self, read: &ReadKeys, page: Vec<Pending>, now: Instant) {
        self.reads.take_keys(read, page, &mut self.rows, now);
        self.read_ended();
    }

    /// Takes in heads, which took so long to read.
    pub(crate) fn take_heads(
        &mut self,
        read: &ReadHeads,
        heads: Heads,
        took: Duration,
        now: Instant,
    ) {
        self.reads.take_heads(read, heads, took, &mut self.rows, now);
        self.read_ended();
    }

    fn read_ended(&mut self) {
        self.reads.end();
        self.rows.end_read();
        let in_flight = self.rows.in_flight();
        self.promoted.retain(|seq| in_flight.has(*seq));
    }

    /// A row is about to be committed. It counts only if its shard is still owned as it was when the
    /// row was written.
    pub(crate) fn register(&mut self, registration: &Registration, now: Instant) {
        if self.holds(registration.shard, registration.epoch) {
            self.rows.register(registration, now);
        }
    }

    /// A row was committed. Returns whether it is in flight; if not, a read will find it.
    pub(crate) fn commit(&mut self, event: KeyedEvent) -> bool {
        self.rows.commit(event)
    }

    /// A row was not committed, or nobody knows: the table does.
    pub(crate) fn withdraw(&mut self, Registration { seq, shard, key, .. }: Registration) {
        let row = RowKey { seq, shard, key: Some(key) };
        let was_registered =
            row.shard_key().is_some_and(|key| self.rows.keys_mut().unregister(&key, seq));
        if was_registered {
            self.put_back(&row);
        }
    }

    /// Commits that did not come are not waited for any longer.
    pub(crate) fn withdraw_overdue(&mut self, now: Instant) {
        let Some(then) = now.checked_sub(COMMIT_TIMEOUT) else { return };
        let overdue = self.rows.keys().registered_before(then);
        overdue.into_iter().for_each(|registration| self.withdraw(registration));
    }

    /// A delivery is over, and its verdict is to be written.
    pub(crate) fn decided(&mut self, row: &RowKey, verdict: &Verdict) {
        self.rows.decided(row, verdict);
    }

    /// A verdict was written.
    pub(crate) fn settled(&mut self, row: &RowKey, verdict: &Verdict) {
        self.forget(row.seq);
        let is_new_again = self.promoted.remove(&row.seq);
        match verdict {
            Verdict::Done | Verdict::Delete => {}
            Verdict::Retry { .. } | Verdict::Defer { .. } | Verdict::Held { .. } => {
                self.rows.wait_in_table(row);
                if is_new_again {
                    self.promoted(vec![row.clone().into()]);
                }
            }
            Verdict::Dead { .. } => self.rows.end_turn(row),
        }
    }

    /// A verdict did not apply: written before, or overtaken by an operator or another owner.
    pub(crate) fn overtaken(&mut self, row: &RowKey, verdict: &Verdict) {
        if !matches!(verdict, Verdict::Done | Verdict::Delete) {
            return self.put_back(row);
        }
        self.look_again(row);
        let Some(key) = row.shard_key() else { return };
        // It was delivered, and its successor may be under way: only the tail is in doubt.
        self.rows.keys_mut().doubt_tail(&key);
        self.rows.go_on(&key);
    }

    /// A row was not delivered after all: it is to be read again.
    pub(crate) fn put_back(&mut self, row: &RowKey) {
        self.look_again(row);
        self.rows.read_again(row);
    }

    /// A row could not be started, and is read again at that time; its key waits behind it.
    pub(crate) fn put_off(&mut self, row: &RowKey, until: Instant) {
        self.forget(row.seq);
        if let Some(key) = row.shard_key() {
            return self.rows.put_off(&key, row.seq, until);
        }
        if let Some(shard) = self.reads.shard(row.shard) {
            shard.note_due(until);
        }
    }

    /// The row is out of memory, and its shard is read from the head.
    fn look_again(&mut self, row: &RowKey) {
        self.forget(row.seq);
        self.look_at_shard_again(row.shard);
    }

    fn forget(&mut self, seq: Seq) {
        let shard = self.rows.forget(seq);
        if let Some(shard) = shard.and_then(|shard| self.reads.shard(shard)) {
            shard.freed();
        }
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

    fn note_due(&mut self, when: Instant) {
        self.next_due = Some(self.next_due.map_or(when, |next| next.min(when)));
    }

    fn is_mostly_waiting(&self) -> bool {
        self.waiting > 0 && self.waiting >= self.rows / 4 * 3
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
    fn shard_key(&self) -> Option<ShardKey> {
        self.key.clone().map(|key| (self.shard, key))
    }
}
