//! Draining: nothing new of a shard is started, and what is under way comes to its end.

use crate::id::ShardId;
use crate::relay::fetch::shard_queues::ShardQueues;

impl ShardQueues {
    /// Drains so many more shards, those with least in flight first. Returns which.
    pub(crate) fn drain(&mut self, count: usize) -> Vec<ShardId> {
        let mut chosen: Vec<ShardId> =
            self.shards.keys().filter(|shard| !self.draining.contains(shard)).copied().collect();
        chosen.sort_by_key(|shard| self.in_flight.of_shard(*shard));
        chosen.truncate(count);
        chosen.iter().for_each(|shard| self.stop_shard(*shard));
        chosen
    }

    /// The draining shards of which nothing is in flight any more.
    pub(crate) fn drained(&self) -> Vec<ShardId> {
        let is_drained = |shard: &&ShardId| self.in_flight.of_shard(**shard) == 0;
        self.draining.iter().filter(is_drained).copied().collect()
    }

    /// What waits is forgotten, what is under way stays in flight until it is settled. A read that
    /// has begun for the shard does not count any more.
    fn stop_shard(&mut self, shard: ShardId) {
        self.draining.insert(shard);
        if let Some(state) = self.shards.get_mut(&shard) {
            state.asked = None;
        }
        self.put_down(shard);
    }
}
