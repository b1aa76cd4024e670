//! What to read next: pages of shards, keys, or heads of keys.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::time::Duration;

use tokio::time::Instant;

use super::queued_rows::QueuedRows;
use super::shard::Shard;
use super::{Bounds, Pages, ShardKey, Tally, Wanted};
use crate::id::{Epoch, Seq, ShardId};
use crate::relay::fetch::memory::{Limits, PageSize};
use crate::relay::number_map::NumberMap;
use crate::store::{
    Budget, Heads, HeadsCursor, KeyRead, Pending, Read, ReadHeads, ReadKeys, ShardRead,
};

/// Keys that are read at once: after many failures, many are due together.
const MOST_KEYS: usize = 64;

/// Fewer rows of keys that wait are not worth a base.
const FEW: usize = 64;

/// A read that takes longer walks through entries that are dead and still there.
const READ_TAKES: Duration = Duration::from_millis(20);
const ROW_TAKES: Duration = Duration::from_micros(20);
/// One may have had to wait for something else.
const SLOW_READS: u32 = 3;

#[derive(Debug)]
pub(super) struct Reads {
    pages: Pages,
    pub(super) limits: Limits,
    /// Fewer rows of keys that wait are read with every page.
    pub(super) few: usize,
    /// How many rows to ask for at a time.
    page_size: PageSize,
    shards: BTreeMap<ShardId, Shard>,
    /// Shards of which nothing more is read or started.
    draining: BTreeSet<ShardId>,
    /// The relay stops: each shard is read to its end once more.
    is_last_pass: bool,
    is_reading: bool,
    /// What was read last: pages, keys and heads take turns.
    last_read: Kind,
    /// How many reads from the head, one after the other, took long.
    slow_reads: u32,
    /// The shard that the next read begins with, or the first one behind it.
    first_shard: ShardId,
    /// The same for the next read of heads.
    first_heads: ShardId,
}

/// What a read is of.
#[derive(Clone, Copy, Debug)]
enum Kind {
    Shards,
    Keys,
    Heads,
}

impl Reads {
    pub(super) fn new(pages: Pages) -> Self {
        Self {
            pages,
            limits: Limits::RELAY,
            few: FEW,
            page_size: PageSize::new(pages.batch),
            shards: BTreeMap::new(),
            draining: BTreeSet::new(),
            is_last_pass: false,
            is_reading: false,
            last_read: Kind::Heads,
            slow_reads: 0,
            first_shard: ShardId(0),
            first_heads: ShardId(0),
        }
    }

    /// Adds the shards that are new. Returns which these are, and which are not owned any more.
    pub(super) fn sync(
        &mut self,
        owned: &BTreeMap<ShardId, Epoch>,
    ) -> (Vec<ShardId>, Vec<ShardId>) {
        let moved = |(shard, state): &(&ShardId, &Shard)| owned.get(shard) != Some(&state.epoch());
        let lost: Vec<ShardId> =
            self.shards.iter().filter(moved).map(|(shard, _)| *shard).collect();
        for shard in &lost {
            self.shards.remove(shard);
            self.draining.remove(shard);
        }
        let mut added = Vec::new();
        for (shard, epoch) in owned {
            self.shards.entry(*shard).or_insert_with(|| {
                added.push(*shard);
                Shard::new(*epoch)
            });
        }
        (added, lost)
    }

    /// Drains a shard: a read that has begun for it does not count any more.
    pub(super) fn drain(&mut self, shard: ShardId) {
        self.draining.insert(shard);
        self.shards.get_mut(&shard).into_iter().for_each(Shard::end_read);
    }

    pub(super) fn draining(&self) -> impl Iterator<Item = ShardId> {
        self.draining.iter().copied()
    }

    /// The shards that are read.
    pub(super) fn open(&self) -> impl Iterator<Item = ShardId> {
        self.shards.keys().filter(|shard| !self.draining.contains(shard)).copied()
    }

    /// The epoch that the shard is owned at.
    pub(super) fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        self.shards.get(&shard).map(Shard::epoch)
    }

    pub(super) fn shard(&mut self, shard: ShardId) -> Option<&mut Shard> {
        self.shards.get_mut(&shard)
    }

    /// Something may have been committed anywhere.
    pub(super) fn wake(&mut self) {
        self.shards.values_mut().for_each(Shard::wake);
    }

    /// Everything is to be read from its head: for late commits and replays.
    pub(super) fn sweep(&mut self) {
        self.shards.values_mut().for_each(Shard::start_over);
    }

    pub(super) fn begin_last_pass(&mut self) {
        self.is_last_pass = true;
        self.sweep();
    }

    pub(super) fn is_last_pass(&self) -> bool {
        self.is_last_pass
    }

    /// Whether the last pass may find more.
    pub(super) fn is_unread(&self) -> bool {
        let is_unread =
            |(id, shard): (&ShardId, &Shard)| shard.is_unread() && !self.draining.contains(id);
        self.is_reading || self.shards.iter().any(is_unread)
    }

    pub(super) fn tick(&mut self, now: Instant) {
        self.shards.values_mut().for_each(|shard| shard.tick(now));
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        self.shards.values().filter_map(Shard::next_due).min()
    }

    /// How much to have in memory: fewer rows where they are large, and at least one of each shard.
    pub(super) fn bounds(&self) -> Bounds {
        let batch = self.page_size.rows();
        let each = batch / u32::try_from(self.shards.len()).unwrap_or(u32::MAX).max(1);
        Bounds { batch, least: self.pages.least.min(each.max(1)), bytes: self.limits.most }
    }

    /// Whether every page brings rows that are not in memory yet: it is half empty.
    pub(super) fn has_room(&self, rows: &QueuedRows) -> bool {
        // Of the setting: memory is bounded by bytes, and rows that wait for their verdict have none.
        let half = self.pages.batch as usize / 2;
        // Rows of slow routes keep no others out, unless such routes are many.
        let in_flight = rows.in_flight();
        let slow = rows.slow().load(in_flight);
        let bytes = in_flight.bytes().saturating_sub(slow.bytes.min(self.limits.most / 2));
        in_flight.len().saturating_sub((slow.rows as usize).min(half)) <= half
            && self.limits.is_half_empty(bytes)
    }

    /// The next read, if one is worth doing and none is under way.
    pub(super) fn next(&mut self, rows: &mut QueuedRows, now: Instant) -> Option<Wanted> {
        if self.is_reading {
            return None;
        }
        let kinds = match self.last_read {
            Kind::Keys => [Kind::Shards, Kind::Heads, Kind::Keys],
            Kind::Shards => [Kind::Keys, Kind::Heads, Kind::Shards],
            Kind::Heads => [Kind::Keys, Kind::Shards, Kind::Heads],
        };
        for kind in kinds {
            let wanted = match kind {
                Kind::Shards => self.next_shards(rows),
                Kind::Keys => self.next_keys(rows),
                Kind::Heads => self.next_heads(rows, now),
            };
            if wanted.is_some() {
                (self.last_read, self.is_reading) = (kind, true);
                return wanted;
            }
        }
        None
    }

    fn next_keys(&mut self, rows: &mut QueuedRows) -> Option<Wanted> {
        // Keys are read ahead of room, but not without bound.
        let Bounds { batch, least: limit, .. } = self.bounds();
        let is_full = rows.in_flight().len() > self.pages.batch as usize;
        if is_full || rows.in_flight().bytes() > self.limits.most {
            return None;
        }
        let most = usize::try_from(batch / limit.max(1)).unwrap_or(MOST_KEYS);
        let mut keys = Vec::new();
        for (shard, key) in rows.keys_mut().take_wanted(most.clamp(1, MOST_KEYS)) {
            self.shards.get_mut(&shard).into_iter().for_each(Shard::begin_keys);
            keys.push(KeyRead { shard, key });
        }
        let read = (!keys.is_empty()).then(|| ReadKeys { keys, limit, budget: self.budget(rows) });
        read.map(Wanted::Keys)
    }

    /// What is in flight needs no content, and leaves the less room for what is not.
    fn budget(&self, rows: &QueuedRows) -> Budget {
        let in_flight = rows.in_flight();
        Budget { bytes: self.limits.budget(in_flight.bytes()), skip: in_flight.seqs() }
    }

    /// Reads shards together, except those whose page would show mostly rows in flight: they are
    /// read one at a time, with a larger page.
    fn next_shards(&mut self, rows: &QueuedRows) -> Option<Wanted> {
        if !self.has_room(rows) {
            return None;
        }
        let of = |shard: &ShardId| rows.in_flight().of_shard(*shard);
        let needs_read = self.shards.iter().filter(|(_, state)| state.needs_read());
        let open = needs_read.map(|(shard, _)| *shard);
        let mut shards: Vec<ShardId> =
            open.filter(|shard| !self.draining.contains(shard)).collect();
        let Bounds { batch, least, .. } = self.bounds();
        let before = shards.partition_point(|shard| *shard < self.first_shard);
        shards.rotate_left(before);
        shards.truncate(usize::try_from(batch).unwrap_or(usize::MAX));
        let count = u32::try_from(shards.len()).ok().filter(|count| *count > 0)?;
        let fair = (batch / count).max(least);
        let light: Vec<ShardId> = shards.iter().filter(|shard| of(shard) < fair).copied().collect();
        let (wanted, limit) = match (light.is_empty(), shards.first()) {
            (true, Some(heavy)) => (vec![*heavy], of(heavy).saturating_add(fair)),
            _ => {
                let limit = fair.saturating_mul(2).saturating_add(self.most_waiting(&light, fair));
                (light, limit)
            }
        };
        let (shards, budget) = (self.begin_pages(&wanted, rows), self.budget(rows));
        Some(Wanted::Shards(Read { shards, limit, budget }))
    }

    /// How many rows of a page only wait, in the worst of these shards. Beyond a bound they are
    /// passed.
    fn most_waiting(&self, shards: &[ShardId], fair: u32) -> u32 {
        let shards = shards.iter().filter_map(|shard| self.shards.get(shard));
        let most = shards.map(Shard::waiting).max().unwrap_or(0);
        most.min(fair.saturating_mul(2))
    }

    fn begin_pages(&mut self, wanted: &[ShardId], rows: &QueuedRows) -> Vec<ShardRead> {
        let is_slow = self.slow_reads >= SLOW_READS;
        let lowest = if is_slow { rows.in_flight().lowest() } else { NumberMap::default() };
        let mut reads = Vec::new();
        for shard in wanted {
            if let Some(state) = self.shards.get_mut(shard) {
                let lowest = lowest.get(shard).copied();
                let floor = state.begin_page(is_slow, lowest, self.is_last_pass);
                reads.push(ShardRead { shard: *shard, floor });
            }
        }
        reads
    }

    /// The next heads to read, of the shards in turn.
    fn next_heads(&mut self, rows: &QueuedRows, now: Instant) -> Option<Wanted> {
        if !self.has_room(rows) {
            return None;
        }
        let (Bounds { batch: limit, .. }, budget) = (self.bounds(), self.budget(rows));
        let wanted = self.shards.iter().filter(|(id, shard)| {
            !self.draining.contains(id) && shard.needs_heads(now, self.is_last_pass)
        });
        let mut wanted: Vec<ShardId> = wanted.map(|(id, _)| *id).collect();
        let before = wanted.partition_point(|shard| *shard < self.first_heads);
        wanted.rotate_left(before);
        let shard = *wanted.first()?;
        self.first_heads = ShardId(shard.0.saturating_add(1));
        let (after, up_to) = self.shards.get_mut(&shard)?.begin_heads()?;
        Some(Wanted::Heads(ReadHeads { shard, after, up_to, limit, budget }))
    }

    /// The read under way has ended.
    pub(super) fn end(&mut self) {
        self.is_reading = false;
        self.shards.values_mut().for_each(Shard::end_read);
    }

    /// A read failed: what it was for is still to be read.
    pub(super) fn failed(&mut self, wanted: Wanted, rows: &mut QueuedRows) {
        self.page_size.failed();
        match wanted {
            Wanted::Keys(read) => {
                for KeyRead { shard, key } in read.keys {
                    rows.keys_mut().want_again((shard, key));
                }
            }
            Wanted::Heads(_) => {}
            Wanted::Shards(read) => {
                for ShardRead { shard, .. } in read.shards {
                    self.shards.get_mut(&shard).into_iter().for_each(Shard::want_read);
                }
            }
        }
    }

    /// Takes in pages of shards, which took so long to read.
    pub(super) fn take_shards(
        &mut self,
        read: &Read,
        pages: Vec<Pending>,
        took: Duration,
        rows: &mut QueuedRows,
        now: Instant,
    ) {
        self.note_speed(pages.len(), took);
        let mut of: NumberMap<ShardId, Vec<Pending>> = NumberMap::default();
        pages.into_iter().for_each(|row| of.entry(row.shard).or_default().push(row));
        let (mut count, mut is_cut, mut first_cut) = (0, false, None);
        for want in &read.shards {
            let page = of.remove(&want.shard).unwrap_or_default();
            let Some(tally) = self.take_page(*want, read.limit, page, rows, now) else { continue };
            if tally.is_cut && tally.accepted == 0 {
                first_cut.get_or_insert(want.shard);
            }
            count += tally.rows;
            is_cut |= tally.is_cut;
        }
        let behind = read.shards.last().map(|last| ShardId(last.shard.0.saturating_add(1)));
        self.first_shard = first_cut.or(behind).unwrap_or(self.first_shard);
        self.page_size.came(count, !is_cut);
    }

    /// Reads from the head say whether there is much to walk through before the first row.
    fn note_speed(&mut self, rows: usize, took: Duration) {
        if self.shards.values().any(Shard::is_read_from_base) {
            let rows = u32::try_from(rows).unwrap_or(u32::MAX);
            let is_slow = took > READ_TAKES + ROW_TAKES.saturating_mul(rows);
            self.slow_reads = if is_slow { self.slow_reads.saturating_add(1) } else { 0 };
        }
    }

    fn take_page(
        &mut self,
        read: ShardRead,
        limit: u32,
        page: Vec<Pending>,
        rows: &mut QueuedRows,
        now: Instant,
    ) -> Option<Tally> {
        let start = self.shards.get(&read.shard).and_then(Shard::asked)?;
        let is_full = u32::try_from(page.len()).is_ok_and(|count| count >= limit);
        let last = page.last().map(|row| row.seq).filter(|_| is_full);
        let vanished = rows.unpark_vanished(read, last, &page);
        let tally = rows.take(page, self.bounds(), now);
        vanished.iter().for_each(|key| rows.go_on(key));
        let is_blocked = tally.blocked >= self.few && tally.blocked >= tally.rows / 4 * 3;
        let shard = self.shards.get_mut(&read.shard)?;
        tally.next_due.into_iter().for_each(|when| shard.note_due(when));
        shard.took_page(start, &tally, is_full, is_blocked, now);
        Some(tally)
    }

    /// Takes in the rows of keys, each of which was read from its head.
    pub(super) fn take_keys(
        &mut self,
        read: &ReadKeys,
        page: Vec<Pending>,
        rows: &mut QueuedRows,
        now: Instant,
    ) {
        let mut pages: HashMap<ShardKey, Vec<Pending>> = HashMap::new();
        for row in page {
            if let Some(key) = row.key.clone() {
                pages.entry((row.shard, key)).or_default().push(row);
            }
        }
        let bounds = self.bounds();
        for KeyRead { shard, key } in &read.keys {
            let key = (*shard, key.clone());
            let page = pages.remove(&key).unwrap_or_default();
            if let Some(shard) = self.shards.get_mut(shard).filter(|it| it.asked().is_some()) {
                let is_full = u32::try_from(page.len()).is_ok_and(|count| count >= read.limit);
                let tally = rows.take_key(&key, is_full, page, bounds, now);
                tally.next_due.into_iter().for_each(|when| shard.note_due(when));
            }
        }
    }

    /// Takes in heads, which took so long to read.
    pub(super) fn take_heads(
        &mut self,
        read: &ReadHeads,
        Heads { rows: heads, next, newest }: Heads,
        took: Duration,
        rows: &mut QueuedRows,
        now: Instant,
    ) {
        let bounds = self.bounds();
        let Some(shard) = self.shards.get_mut(&read.shard) else { return };
        if shard.asked().is_none() {
            return;
        }
        let base = shard.raise_base(read, newest);
        let has_found = heads.iter().any(|row| row.seq <= base);
        let positions: Vec<(Seq, HeadsCursor)> =
            heads.iter().map(|row| (row.seq, HeadsCursor::at(row))).collect();
        rows.note_tails(&heads);
        let tally = rows.take(heads, bounds, now);
        tally.next_due.into_iter().for_each(|when| shard.note_due(when));
        let last = || positions.into_iter().find(|(seq, _)| Some(*seq) == tally.last);
        // What was left out for want of memory is read when there is some.
        let next = if tally.is_cut {
            Some(last().map_or_else(|| read.after.clone(), |(_, at)| at))
        } else {
            next
        };
        shard.took_heads(next, has_found, took, now);
    }

    #[cfg(test)]
    pub(super) fn shards(&mut self) -> &mut BTreeMap<ShardId, Shard> {
        &mut self.shards
    }

    #[cfg(test)]
    pub(super) fn read_slowly(&mut self) {
        self.slow_reads += 1;
    }

    #[cfg(test)]
    pub(super) fn first_shard(&self) -> ShardId {
        self.first_shard
    }

    #[cfg(test)]
    pub(super) fn page_size(&mut self) -> &mut PageSize {
        &mut self.page_size
    }
}
