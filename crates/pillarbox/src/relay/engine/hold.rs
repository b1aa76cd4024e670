//! The shards that are held: worked on, and given back.

use crate::relay::dispatch::deliverer::LeaseKind;
use crate::relay::engine::Engine;

impl Engine {
    /// Works on the shards now held, and drains those that are to be given back.
    pub(crate) fn hold(&mut self) {
        let held = self.ownership.shards();
        self.queues.hold(&held);
        self.wake.alone(held.len() == self.all_shards);
        self.drain_shards();
        let unsettled = self.settings.max_unsettled.get();
        self.careful.took_over(self.ownership.take_lapsed(), unsettled);
        self.leave_careful();
    }

    fn drain_shards(&mut self) {
        let mut drained = Vec::new();
        self.ownership.drain(|count| {
            drained = self.queues.drain(count);
            drained.clone()
        });
        if !drained.is_empty() {
            let is_of = |under: &LeaseKind| matches!(under, LeaseKind::Shard(it, _) if drained.contains(it));
            self.recall(is_of);
        }
    }

    /// What no worker has begun with need not be waited for.
    pub(super) fn recall(&mut self, is_meant: impl Fn(&LeaseKind) -> bool) {
        self.work.deliveries.recall(is_meant);
        self.take_in_deliveries();
    }

    /// A drained shard is given back as soon as nothing of it is under way.
    pub(super) fn give_back(&mut self) {
        let drained = self.queues.drained();
        if !drained.is_empty() {
            self.ownership.drained(&drained);
            self.hold();
        }
    }
}
