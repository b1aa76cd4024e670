//! What a shard has at and below its base: rows of keys that wait for their head, one row for each key.
//!
//! The base is put at the newest row of a shard when a page shows mostly rows that an older one of
//! their key comes before. Above it rows are read by pages, new ones first of all. HeadScan it heads of
//! keys are read with every sweep, and the rest of a key when its head has been decided on.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::{Seq, ShardId};
use crate::relay::fetch::shard_queues::{LastPass, Pages, ShardQueues, Wanted};
use crate::store::{Heads, HeadsCursor, Pending, Predecessor, ReadHeads};

/// Fewer rows of keys that wait are not worth a base.
pub(super) const FEW: usize = 64;

/// Heads are read for at most one part in so many of the time, and at least this often.
const SHARE: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The walk over the heads of a shard.
#[derive(Debug)]
pub(super) struct HeadScan {
    /// Where to go on.
    cursor: HeadsCursor,
    is_wanted: bool,
    /// Another walk was wanted since this one began.
    again: bool,
    /// The base is to be put at the newest row.
    rises: bool,
    /// Whether this walk has found anything at or below the base.
    has_found: bool,
    /// How long the reads of this walk have taken.
    took: Duration,
    /// The next walk begins no sooner, unless the relay stops.
    paused: Option<Instant>,
}

impl HeadScan {
    fn new() -> Self {
        Self {
            cursor: HeadsCursor::start(),
            is_wanted: true,
            again: false,
            rises: true,
            has_found: false,
            took: Duration::ZERO,
            paused: None,
        }
    }

    /// Heads are to be read from the first key on, as soon as the walk under way is over.
    pub(super) fn want(&mut self) {
        (self.is_wanted, self.again) = (true, true);
    }

    /// Whether the base is about to be put at the newest row.
    pub(super) fn rises(&self) -> bool {
        self.rises
    }

    fn rise(&mut self) -> bool {
        std::mem::take(&mut self.rises)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// When the next page is to be read.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.paused.filter(|_| self.is_wanted)
    }

    /// A pause that is over needs no timer: the next page is read as soon as a read can begin.
    pub(super) fn tick(&mut self, now: Instant) {
        self.paused = self.paused.filter(|paused| *paused > now);
    }

    fn is_due(&self, now: Instant, is_last_pass: bool) -> bool {
        self.is_wanted && (is_last_pass || self.paused.is_none_or(|paused| paused <= now))
    }

    /// The walk has come to its end.
    fn end(&mut self, now: Instant) {
        let paused = Some(now + (self.took * SHARE).min(LONGEST_PAUSE));
        let is_wanted = self.rises || self.again;
        *self = Self { is_wanted, rises: self.rises, paused, ..Self::new() };
    }
}

impl ShardQueues {
    /// Whether most of the rows of a page are behind a head that waits.
    pub(super) fn are_mostly_blocked(&self, rows: usize, blocked: usize) -> bool {
        blocked >= self.few && blocked >= rows / 4 * 3
    }

    /// A page showed mostly rows of keys that wait.
    pub(super) fn raise_base(&mut self, shard: ShardId) {
        let Some(shard) = self.shards.get_mut(&shard) else { return };
        let below = shard.below.get_or_insert_with(HeadScan::new);
        (below.rises, below.is_wanted) = (true, true);
    }

    /// The next heads to read, of the shards in turn.
    pub(super) fn next_heads_read(&mut self, now: Instant) -> Option<Wanted> {
        if !self.is_half_empty() {
            return None;
        }
        let Pages { batch: limit, .. } = self.pages();
        let (is_last_pass, budget) = (self.is_last_pass, self.budget());
        let is_due = |below: &HeadScan| below.is_due(now, is_last_pass);
        let wanted = self.shards.iter().filter(|(id, shard)| {
            !self.draining.contains(id) && shard.below.as_ref().is_some_and(is_due)
        });
        let mut wanted: Vec<ShardId> = wanted.map(|(id, _)| *id).collect();
        let before = wanted.partition_point(|shard| *shard < self.first_heads);
        wanted.rotate_left(before);
        let shard = *wanted.first()?;
        self.first_heads = ShardId(shard.0.saturating_add(1));
        let state = self.shards.get_mut(&shard)?;
        state.asked = Some(state.floor.begin(false, None));
        let below = state.below.as_mut()?;
        below.again &= below.cursor != HeadsCursor::start();
        let (after, up_to) = (below.cursor.clone(), state.floor.base());
        Some(Wanted::Heads(ReadHeads { shard, after, up_to, limit, budget }))
    }

    /// Takes in heads, which took so long to read.
    pub(crate) fn take_heads(
        &mut self,
        read: &ReadHeads,
        heads: Heads,
        took: Duration,
        now: Instant,
    ) {
        if self.has_asked(read.shard) {
            self.take_page_of_heads(read, heads, took, now);
        }
        self.read_ended();
    }

    fn take_page_of_heads(
        &mut self,
        read: &ReadHeads,
        Heads { rows, next, newest }: Heads,
        took: Duration,
        now: Instant,
    ) {
        let Some(shard) = self.shards.get_mut(&read.shard) else { return };
        if read.after == HeadsCursor::start() && shard.below.as_mut().is_some_and(HeadScan::rise) {
            shard.floor.raise_base(newest);
            // Rows may have come since.
            shard.hungry = true;
        }
        let base = shard.floor.base();
        let has_found = rows.iter().any(|row| row.seq <= base);
        let places: Vec<(Seq, HeadsCursor)> =
            rows.iter().map(|row| (row.seq, HeadsCursor::at(row))).collect();
        self.note_tails(&rows);
        let tally = self.take_rows(rows, now);
        let Some(shard) = self.shards.get_mut(&read.shard) else { return };
        let Some(below) = shard.below.as_mut() else { return };
        below.has_found |= has_found;
        below.took += took;
        let last = places.into_iter().find(|(seq, _)| Some(*seq) == tally.last);
        match (tally.is_cut, next) {
            // What was left out for want of memory is read when there is some.
            (true, _) => below.cursor = last.map_or_else(|| read.after.clone(), |(_, at)| at),
            (false, Some(next)) => below.cursor = next,
            (false, None) if below.has_found || below.rises => below.end(now),
            (false, None) => {
                shard.below = None;
                shard.floor.drop_base();
                shard.hungry = true;
                shard.last_pass = LastPass::Prefetch;
            }
        }
    }

    /// Behind the head of a key there may be more, which no page shows.
    fn note_tails(&mut self, heads: &[Pending]) {
        for row in heads.iter().filter(|row| row.before == Predecessor::Nothing) {
            if let Some(key) = row.key.clone().filter(|_| !self.in_flight.has(row.seq)) {
                self.keys.entry((row.shard, key)).or_default().tail_unread = true;
            }
        }
    }
}
