//! The end of the engine of row claims: it delivers what is due, finishes what has started, and
//! leaves.

use tokio::time::{Instant, sleep, sleep_until};

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::local_queue::PendingWriters;
use crate::relay::fetch::local_events::LOOK;
use crate::relay::rows::RowEngine;
use crate::relay::stop::{Ended, StopDeadlines, Unfinished};

impl RowEngine {
    /// Stops within `drain`.
    pub(super) async fn stop(mut self) -> Ended {
        let deadlines = StopDeadlines::new(&self.settings, instant());
        let writers = self.lane.close();
        let unfinished = self.deliver_due(&writers, deadlines.start).await;
        let abandoned = self.finish(&writers, deadlines.finish).await;
        Ended { abandoned, unfinished }
    }

    /// Delivers what the local queue has accepted, and claims until nothing is due. Returns the
    /// shards that may have more of it.
    async fn deliver_due(&mut self, writers: &PendingWriters, until: Instant) -> Unfinished {
        self.ownership.stop_taking();
        self.work.look.stop_polling();
        self.work.due.look_last(instant());
        loop {
            self.advance();
            // Without a lease nothing may start, and another relay delivers it.
            if !self.deliverer.is_live() {
                return None;
            }
            if !self.has_due_events(writers) {
                return Some(Vec::new());
            }
            if instant() >= until {
                return Some(self.work.claim.shards.clone());
            }
            let timer = self.next_timer().min(until);
            let is_awaited = writers.are_awaited(&self.events);
            tokio::select! {
                () = self.work.deliveries.finished() => {}
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                Some(mail) = self.events.next() => self.take_hot(mail),
                () = self.ownership.changed() => self.share(),
                () = sleep(LOOK), if is_awaited => {}
                () = sleep_until(timer) => self.tick(),
            }
        }
    }

    /// Whether there are, or may be, events to start.
    fn has_due_events(&self, writers: &PendingWriters) -> bool {
        let work = &self.work;
        // The next event of a key can be claimed when the one before it is settled.
        work.unsettled() > 0
            || work.claiming.is_some()
            || work.look.is_due()
            || work.due.is_looking()
            || work.line.guards().next().is_some()
            || work.suspects.iter().next().is_some()
            || writers.are_awaited(&self.events)
    }

    /// Gives back what no worker has begun with, finishes deliveries that have started and writes
    /// their verdicts. Returns how many deliveries were abandoned.
    async fn finish(mut self, writers: &PendingWriters, until: Instant) -> usize {
        self.work.is_stopping = true;
        let rows = self.work.line.take_all();
        self.work.writes.give_back(rows);
        self.leave_suspects();
        self.work.writes.try_refused_again();
        self.ownership.leave();
        self.share();
        crash_point!("drain");
        loop {
            self.take_in_deliveries();
            self.start_writes();
            let is_awaited = writers.are_awaited(&self.events);
            if self.is_done() && !is_awaited {
                return 0;
            }
            let timer = self.work.writes.next_timer().unwrap_or(until);
            tokio::select! {
                () = self.work.deliveries.finished() => {}
                Some(done) = self.work.tasks.join_next_with_id() => self.take_in_all(done),
                Some(mail) = self.events.next() => self.take_hot(mail),
                () = sleep(LOOK), if is_awaited => {}
                () = sleep_until(until) => break,
                () = sleep_until(timer) => self.work.writes.tick(instant()),
            }
        }
        let abandoned = self.work.unsettled();
        self.observers.abandoned(abandoned);
        abandoned
    }

    /// Whether everything is settled or given back.
    fn is_done(&self) -> bool {
        let work = &self.work;
        work.unsettled() == 0 && work.claiming.is_none() && !work.writes.is_giving_back()
    }
}
