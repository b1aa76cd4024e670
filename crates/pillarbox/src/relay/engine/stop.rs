//! The end of the engine: it delivers what is due, finishes what has started, and leaves.

use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::relay::engine::Engine;
use crate::relay::fetch::local_events::LOOK;
use crate::relay::stop::{Ended, StopDeadlines, Unfinished};

impl Engine {
    /// Stops within `drain`.
    pub(super) async fn stop(mut self) -> Ended {
        let deadlines = StopDeadlines::new(&self.settings, instant());
        let unfinished = self.deliver_due(deadlines.start).await;
        let abandoned = self.finish(deadlines.finish).await;
        Ended { abandoned, unfinished }
    }

    /// Delivers what the local queue has accepted, and what a last read of the shards finds due.
    /// Returns the shards that may have more of it.
    async fn deliver_due(&mut self, until: Instant) -> Unfinished {
        self.hot.close();
        self.ownership.stop_taking();
        self.hold();
        self.due.look_last(instant());
        self.queues.begin_last_pass();
        loop {
            self.advance();
            // Without a lease nothing may start, and who has the shards next delivers it.
            if !self.deliverer.is_live() {
                return None;
            }
            if !self.has_due_events() {
                return Some(Vec::new());
            }
            if instant() >= until {
                return Some(self.ownership.shards().into_keys().collect());
            }
            let timer = self.next_timer().min(until);
            tokio::select! {
                () = self.work.deliveries.finished() => {}
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                Some(mail) = self.hot.next() => self.take_in_mail(mail),
                () = self.ownership.changed() => self.hold(),
                () = sleep(LOOK), if self.hot.is_awaited() => {}
                () = sleep_until(timer) => self.tick(),
            }
        }
    }

    /// Whether there are, or may be, events to start.
    fn has_due_events(&self) -> bool {
        self.hot.has_events()
            || self.hot.frees_rows()
            || self.work.deliveries.has_waiting()
            || self.careful.suspects.iter().next().is_some()
            || self.due.is_looking()
            || self.queues.has_due_rows()
    }

    /// Finishes deliveries that have started, writes their verdicts and gives the shards back.
    /// Returns how many deliveries were abandoned.
    async fn finish(mut self, until: Instant) -> usize {
        self.hot.stop();
        self.ownership.leave();
        self.hold();
        self.wake.alone(false);
        self.recall(|_| true);
        self.try_refused_again(instant());
        crash_point!("drain");
        while self.unsettled() > 0 || self.hot.is_giving_back() || self.hot.is_awaited() {
            self.start_settle();
            self.start_hot_settle();
            self.give_back();
            self.work.deliveries.go();
            self.ask_for_locked(instant());
            let timer = self.work.locked.next_timer().unwrap_or(until);
            tokio::select! {
                () = self.work.deliveries.finished() => self.take_in_deliveries(),
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                Some(mail) = self.hot.next() => self.turn_away(mail),
                () = sleep(LOOK), if self.hot.is_awaited() => {}
                () = sleep_until(timer), if timer < until => {}
                () = sleep_until(until) => {
                    let abandoned = self.unsettled();
                    self.observers.abandoned(abandoned);
                    return abandoned;
                }
            }
        }
        0
    }
}
