//! The shards that are held: worked on, and given back.

use super::Engine;
use crate::relay::deliver::Under;

impl Engine {
    /// Works on the shards now held, and drains those that are to be given back.
    pub(in crate::relay) fn hold(&mut self) {
        let held = self.tenure.shards();
        self.board.hold(&held);
        self.wake.alone(held.len() == self.all_shards);
        self.drain_shards();
        let unsettled = self.settings.max_unsettled.get();
        self.careful.took_over(self.tenure.take_lapsed(), unsettled);
        self.leave_careful();
    }

    fn drain_shards(&mut self) {
        let mut drained = Vec::new();
        self.tenure.drain(|count| {
            drained = self.board.drain(count);
            drained.clone()
        });
        if !drained.is_empty() {
            let is_of =
                |under: &Under| matches!(under, Under::Shard(it, _) if drained.contains(it));
            self.recall(is_of);
        }
    }

    /// What no worker has begun with need not be waited for.
    pub(super) fn recall(&mut self, is_meant: impl Fn(&Under) -> bool) {
        self.work.deliveries.recall(is_meant);
        self.take_in_deliveries();
    }

    /// A drained shard is given back as soon as nothing of it is under way.
    pub(super) fn give_back(&mut self) {
        let drained = self.board.drained();
        if !drained.is_empty() {
            self.tenure.drained(&drained);
            self.hold();
        }
    }
}
