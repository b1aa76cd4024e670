//! The shards that are held: worked on, given back, and left at a stop.

use tokio::time::{sleep, sleep_until};

use super::Engine;
use crate::clock::instant;
use crate::point::point;
use crate::relay::deliver::Under;
use crate::relay::hot::LOOK;

impl Engine {
    /// Finishes deliveries under way and writes their verdicts, as long as `drain` allows.
    pub(super) async fn drain(mut self) {
        let deadline = instant() + self.settings.drain;
        self.hot.stop();
        self.tenure.leave();
        self.hold();
        self.wake.alone(false);
        self.recall(|_| true);
        point!("drain");
        while self.unsettled() > 0 || self.hot.is_giving_back() || self.hot.is_awaited() {
            self.start_settle();
            self.start_hot_settle();
            self.give_back();
            self.work.deliveries.go();
            tokio::select! {
                () = self.work.deliveries.finished() => self.take_in_deliveries(),
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                Some(mail) = self.hot.next() => self.turn_away(mail),
                () = sleep(LOOK), if self.hot.is_awaited() => {}
                () = sleep_until(deadline) => {
                    return self.observers.abandoned(self.unsettled());
                }
            }
        }
    }

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
    fn recall(&mut self, is_meant: impl Fn(&Under) -> bool) {
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
