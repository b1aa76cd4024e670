//! What to read next.

use tokio::time::Instant;

use crate::id::ShardId;
use crate::relay::fetch::shard_queues::{Kind, LastPass, Pages, Shard, ShardQueues, Wanted};
use crate::relay::number_map::NumberMap;
use crate::store::{Budget, KeyRead, Read, ReadKeys, ShardRead};

/// Keys that are read at once: after many failures, many are due together.
const MOST_KEYS: usize = 64;

/// One may have had to wait for something else.
const SLOW_READS: u32 = 3;

impl ShardQueues {
    /// The next read, if one is worth doing and none is under way.
    pub(crate) fn next_read(&mut self, now: Instant) -> Option<Wanted> {
        if self.read_under_way {
            return None;
        }
        let kinds = match self.last_read {
            Kind::Keys => [Kind::Shards, Kind::Heads, Kind::Keys],
            Kind::Shards => [Kind::Keys, Kind::Heads, Kind::Shards],
            Kind::Heads => [Kind::Keys, Kind::Shards, Kind::Heads],
        };
        for kind in kinds {
            let wanted = match kind {
                Kind::Shards => self.next_shard_read(),
                Kind::Keys => self.next_key_read(),
                Kind::Heads => self.next_heads_read(now),
            };
            if wanted.is_some() {
                (self.last_read, self.read_under_way) = (kind, true);
                return wanted;
            }
        }
        None
    }

    fn next_key_read(&mut self) -> Option<Wanted> {
        // Keys are read ahead of room, but not without bound.
        let Pages { batch, least: limit } = self.pages();
        let is_full = self.in_flight.len() > self.pages.batch as usize;
        if is_full || self.in_flight.bytes() > self.limits.most {
            return None;
        }
        let most = usize::try_from(batch / limit.max(1)).unwrap_or(MOST_KEYS);
        let count = self.key_reads.len().min(most.clamp(1, MOST_KEYS));
        let mut keys = Vec::with_capacity(count);
        for (shard, key) in self.key_reads.drain(..count) {
            if let Some(state) = self.shards.get_mut(&shard) {
                state.asked = Some(state.floor.begin(false, None));
            }
            keys.push(KeyRead { shard, key });
        }
        let budget = self.budget();
        (!keys.is_empty()).then_some(Wanted::Keys(ReadKeys { keys, limit, budget }))
    }

    /// What is in flight needs no content, and leaves the less room for what is not.
    pub(super) fn budget(&self) -> Budget {
        Budget { bytes: self.limits.budget(self.in_flight.bytes()), skip: self.in_flight.seqs() }
    }

    /// Reads hungry shards together, except those whose page would show mostly rows in flight:
    /// they are read one at a time, with a larger page.
    fn next_shard_read(&mut self) -> Option<Wanted> {
        if !self.is_half_empty() {
            return None;
        }
        let of = |shard: &ShardId| self.in_flight.of_shard(*shard);
        let is_hungry = |state: &Shard| state.hungry && state.last_pass != LastPass::Over;
        let hungry =
            self.shards.iter().filter(|(_, state)| is_hungry(state)).map(|(shard, _)| *shard);
        let mut hungry: Vec<ShardId> =
            hungry.filter(|shard| !self.draining.contains(shard)).collect();
        let Pages { batch, least } = self.pages();
        let before = hungry.partition_point(|shard| *shard < self.first_shard);
        hungry.rotate_left(before);
        hungry.truncate(usize::try_from(batch).unwrap_or(usize::MAX));
        let count = u32::try_from(hungry.len()).ok().filter(|count| *count > 0)?;
        let fair = (batch / count).max(least);
        let light: Vec<ShardId> = hungry.iter().filter(|shard| of(shard) < fair).copied().collect();
        let (wanted, limit) = match (light.is_empty(), hungry.first()) {
            (true, Some(heavy)) => (vec![*heavy], of(heavy).saturating_add(fair)),
            _ => {
                let limit = fair.saturating_mul(2).saturating_add(self.most_waiting(&light, fair));
                (light, limit)
            }
        };
        let (shards, budget) = (self.feed(&wanted), self.budget());
        Some(Wanted::Shards(Read { shards, limit, budget }))
    }

    /// How many rows of a page only wait, in the worst of these shards. Beyond a bound they are passed.
    fn most_waiting(&self, shards: &[ShardId], fair: u32) -> u32 {
        let shards = shards.iter().filter_map(|shard| self.shards.get(shard));
        let most = shards.map(|shard| shard.waiting).max().unwrap_or(0);
        most.min(fair.saturating_mul(2))
    }

    /// Only then every page brings rows that are not in flight yet.
    pub(super) fn is_half_empty(&self) -> bool {
        // Of the setting: memory is bounded by bytes, and rows that wait for their verdict have none.
        let half = self.pages.batch as usize / 2;
        // Rows of slow routes keep no others out, unless such routes are many.
        let slow = self.slow_in_hand();
        let bytes = self.in_flight.bytes().saturating_sub(slow.bytes.min(self.limits.most / 2));
        self.in_flight.len().saturating_sub((slow.rows as usize).min(half)) <= half
            && self.limits.is_half_empty(bytes)
    }

    fn feed(&mut self, wanted: &[ShardId]) -> Vec<ShardRead> {
        let is_slow = self.slow_reads >= SLOW_READS;
        let lowest = if is_slow { self.in_flight.lowest() } else { NumberMap::default() };
        let mut reads = Vec::new();
        for shard in wanted {
            if let Some(state) = self.shards.get_mut(shard) {
                let begin = state.floor.begin(is_slow, lowest.get(shard).copied());
                (state.hungry, state.asked) = (false, Some(begin));
                if self.is_last_pass {
                    state.last_pass = LastPass::Begun;
                }
                reads.push(ShardRead { shard: *shard, floor: begin.floor });
            }
        }
        reads
    }

    /// A read failed: what it was for is still to be read.
    pub(crate) fn read_failed(&mut self, wanted: Wanted) {
        self.pace.failed();
        match wanted {
            Wanted::Keys(read) => {
                for KeyRead { shard, key } in read.keys {
                    if self.works_on(shard) {
                        self.key_reads.push_back((shard, key));
                    }
                }
            }
            Wanted::Heads(_) => {}
            Wanted::Shards(read) => {
                for read in read.shards {
                    if let Some(shard) = self.shards.get_mut(&read.shard) {
                        shard.hungry = true;
                    }
                }
            }
        }
        self.read_ended();
    }
}
