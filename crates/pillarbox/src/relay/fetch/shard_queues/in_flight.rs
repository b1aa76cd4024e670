//! Rows in flight: every row from its read to the end of its settle, counted by shard and by route.

use std::collections::BTreeSet;
use std::hash::Hash;

use crate::id::{Seq, ShardId};
use crate::relay::dispatch::fair_share::RouteId;
use crate::relay::fetch::shard_queues::key_queue::Queued;
use crate::relay::number_map::NumberMap;

#[derive(Debug, Default)]
pub(super) struct InFlight {
    rows: NumberMap<Seq, InFlightRow>,
    shards: NumberMap<ShardId, u32>,
    routes: NumberMap<RouteId, Load>,
    /// Payloads and headers that are in memory.
    bytes: usize,
    is_reading: bool,
    /// Forgotten while a read was under way, which may still show them as they were.
    forgotten: Vec<Seq>,
}

#[derive(Debug)]
struct InFlightRow {
    shard: ShardId,
    /// Not known of one that is about to be committed.
    route: Option<RouteId>,
    /// Bytes of payload and headers that are in memory: none of one that has its place in the
    /// local queue, or is delivered.
    bytes: usize,
}

/// What is in flight of a route.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Load {
    pub(super) rows: u32,
    pub(super) bytes: usize,
}

impl InFlight {
    /// A row that was read, or whose commit is known.
    pub(super) fn take(&mut self, queued: &Queued) {
        let Queued { row, route, room } = queued;
        let bytes = if room.is_some() { 0 } else { row.content.bytes() };
        self.insert(row.seq, InFlightRow { shard: row.shard, route: Some(*route), bytes });
    }

    /// A row that is about to be committed.
    pub(super) fn register(&mut self, seq: Seq, shard: ShardId) {
        self.insert(seq, InFlightRow { shard, route: None, bytes: 0 });
    }

    fn insert(&mut self, seq: Seq, row: InFlightRow) {
        self.remove(seq);
        *self.shards.entry(row.shard).or_default() += 1;
        self.bytes += row.bytes;
        if let Some(route) = row.route {
            let load = self.routes.entry(route).or_default();
            load.rows += 1;
            load.bytes += row.bytes;
        }
        self.rows.insert(seq, row);
    }

    pub(super) fn begin_read(&mut self) {
        self.is_reading = true;
    }

    pub(super) fn end_read(&mut self) {
        self.is_reading = false;
        for seq in std::mem::take(&mut self.forgotten) {
            self.remove(seq);
        }
    }

    /// Forgets a row, but not before the read under way has ended. Returns its shard.
    pub(super) fn forget(&mut self, seq: Seq) -> Option<ShardId> {
        let shard = self.rows.get(&seq).map(|row| row.shard);
        if self.is_reading {
            self.unload(seq);
            self.forgotten.push(seq);
        } else {
            self.remove(seq);
        }
        shard
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        self.unload(seq);
        let Some(InFlightRow { shard, route, .. }) = self.rows.remove(&seq) else { return };
        one_less(&mut self.shards, shard, |count| count);
        route
            .into_iter()
            .for_each(|route| one_less(&mut self.routes, route, |load| &mut load.rows));
    }

    /// The row is delivered, or is not to be: its payload and headers are gone from memory.
    pub(super) fn unload(&mut self, seq: Seq) {
        let Some(row) = self.rows.get_mut(&seq) else { return };
        let bytes = std::mem::take(&mut row.bytes);
        self.bytes -= bytes;
        if let Some(load) = row.route.and_then(|route| self.routes.get_mut(&route)) {
            load.bytes -= bytes;
        }
    }

    pub(super) fn has(&self, seq: Seq) -> bool {
        self.rows.contains_key(&seq)
    }

    pub(super) fn len(&self) -> usize {
        self.rows.len()
    }

    #[cfg(test)]
    pub(super) fn is_empty(&self) -> bool {
        self.rows.is_empty() && self.shards.is_empty() && self.routes.is_empty() && self.bytes == 0
    }

    /// Bytes of payloads and headers that are in memory.
    pub(super) fn bytes(&self) -> usize {
        self.bytes
    }

    pub(super) fn seqs(&self) -> BTreeSet<Seq> {
        self.rows.keys().copied().collect()
    }

    pub(super) fn route_of(&self, seq: Seq) -> Option<RouteId> {
        self.rows.get(&seq).and_then(|row| row.route)
    }

    pub(super) fn of_shard(&self, shard: ShardId) -> u32 {
        self.shards.get(&shard).copied().unwrap_or(0)
    }

    pub(super) fn of_route(&self, route: RouteId) -> Load {
        self.routes.get(&route).copied().unwrap_or_default()
    }

    /// The first row of each shard.
    pub(super) fn lowest(&self) -> NumberMap<ShardId, Seq> {
        let mut lowest = NumberMap::default();
        for (seq, row) in &self.rows {
            let known = lowest.entry(row.shard).or_insert(*seq);
            *known = (*known).min(*seq);
        }
        lowest
    }
}

fn one_less<K: Hash + Eq, V>(
    counts: &mut NumberMap<K, V>,
    of: K,
    count: impl Fn(&mut V) -> &mut u32,
) {
    if let Some(counted) = counts.get_mut(&of).map(count) {
        *counted -= 1;
        if *counted == 0 {
            counts.remove(&of);
        }
    }
}
