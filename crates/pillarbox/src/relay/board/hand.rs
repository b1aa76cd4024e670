//! The hand: every row from its read to the end of its settle, counted by shard and by route.

use std::hash::Hash;

use super::lane::Queued;
use crate::id::{Seq, ShardId};
use crate::relay::number::NumberMap;
use crate::relay::routes::RouteId;

#[derive(Debug, Default)]
pub(super) struct Hand {
    /// The route is not known of one that is about to be committed.
    rows: NumberMap<Seq, (ShardId, Option<RouteId>)>,
    shards: NumberMap<ShardId, u32>,
    routes: NumberMap<RouteId, u32>,
}

impl Hand {
    /// A row that was read, or whose commit is known.
    pub(super) fn take(&mut self, queued: &Queued) {
        self.insert(queued.row.seq, queued.row.shard, Some(queued.route));
    }

    /// A row that is about to be committed.
    pub(super) fn register(&mut self, seq: Seq, shard: ShardId) {
        self.insert(seq, shard, None);
    }

    fn insert(&mut self, seq: Seq, shard: ShardId, route: Option<RouteId>) {
        self.remove(seq);
        self.rows.insert(seq, (shard, route));
        *self.shards.entry(shard).or_default() += 1;
        if let Some(route) = route {
            *self.routes.entry(route).or_default() += 1;
        }
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        if let Some((shard, route)) = self.rows.remove(&seq) {
            one_less(&mut self.shards, shard);
            route.into_iter().for_each(|route| one_less(&mut self.routes, route));
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
        self.rows.is_empty() && self.shards.is_empty() && self.routes.is_empty()
    }

    pub(super) fn shard_of(&self, seq: Seq) -> Option<ShardId> {
        self.rows.get(&seq).map(|(shard, _)| *shard)
    }

    pub(super) fn route_of(&self, seq: Seq) -> Option<RouteId> {
        self.rows.get(&seq).and_then(|(_, route)| *route)
    }

    pub(super) fn of_shard(&self, shard: ShardId) -> u32 {
        self.shards.get(&shard).copied().unwrap_or(0)
    }

    pub(super) fn of_route(&self, route: RouteId) -> u32 {
        self.routes.get(&route).copied().unwrap_or(0)
    }

    /// The first row of each shard.
    pub(super) fn lowest(&self) -> NumberMap<ShardId, Seq> {
        let mut lowest = NumberMap::default();
        for (seq, (shard, _)) in &self.rows {
            let known = lowest.entry(*shard).or_insert(*seq);
            *known = (*known).min(*seq);
        }
        lowest
    }
}

fn one_less<K: Hash + Eq>(counts: &mut NumberMap<K, u32>, of: K) {
    if let Some(count) = counts.get_mut(&of) {
        *count -= 1;
        if *count == 0 {
            counts.remove(&of);
        }
    }
}
