//! Hot rows with a key: in hand from before their commit, so that no read brings them again.

use std::time::Duration;

use tokio::time::Instant;

use super::lane::Queued;
use super::{Board, LaneKey, Ticket};
use crate::id::{Epoch, Token};
use crate::local_queue::{KeyedEvent, Registration};
use crate::relay::routes::Places;
use crate::store::{Content, Pending, Predecessor, Status};

/// How long a key waits for a commit that does not come; the row is an ordinary one then.
const PATIENCE: Duration = Duration::from_secs(5);

impl Board {
    /// A row is about to be committed. It counts only if its shard is still held as it was when the
    /// row was written.
    pub(in crate::relay) fn register(&mut self, registration: &Registration, now: Instant) {
        let Registration { seq, shard, epoch, key } = registration;
        if !self.holds(*shard, *epoch) {
            return;
        }
        let lane_key = (*shard, key.clone());
        self.hand.register(*seq, *shard);
        let lane = self.lanes.entry(lane_key.clone()).or_default();
        lane.register(*seq, now);
        // A later row came first, and waits for its time: not in front of this one.
        if lane.parked.is_some_and(|parked| parked.seq > *seq) {
            lane.tail_unread = true;
            self.unpark(&lane_key);
        }
    }

    /// A row was committed. Returns whether it is in hand; if not, a read will find it.
    pub(in crate::relay) fn commit(&mut self, event: KeyedEvent) -> bool {
        let KeyedEvent { registration, envelope, room } = event;
        let lane_key = (registration.shard, registration.key.clone());
        let Some(lane) = self.lanes.get_mut(&lane_key) else { return false };
        if !lane.unregister(registration.seq) {
            return false;
        }
        let row = Pending {
            seq: registration.seq,
            shard: registration.shard,
            key: Some(registration.key),
            token: Token(0),
            status: Status::New,
            attempts: 0,
            due_in: Duration::ZERO,
            is_early: false,
            lapsed: false,
            before: Predecessor::Nothing,
            content: Content::Event(envelope),
        };
        let queued = Queued::hot(row, room);
        self.hand.take(&queued);
        lane.push(queued);
        self.go_on(&lane_key);
        true
    }

    /// A row was not committed, or nobody knows: the table does.
    pub(in crate::relay) fn withdraw(&mut self, registration: Registration) {
        let Registration { seq, shard, key, .. } = registration;
        let lane_key: LaneKey = (shard, key);
        if self.lanes.get_mut(&lane_key).is_some_and(|lane| lane.unregister(seq)) {
            self.put_back(&Ticket { seq, shard, key: Some(lane_key.1) });
        }
    }

    /// Commits that did not come are not waited for any longer.
    pub(in crate::relay) fn withdraw_overdue(&mut self, now: Instant) {
        let Some(then) = now.checked_sub(PATIENCE) else { return };
        let mut overdue = Vec::new();
        for ((shard, key), lane) in &self.lanes {
            let registration =
                |seq| Registration { seq, shard: *shard, epoch: Epoch(0), key: key.clone() };
            overdue.extend(lane.registered_before(then).map(registration));
        }
        overdue.into_iter().for_each(|registration| self.withdraw(registration));
    }

    /// The next row from memory to start, and the epoch its shard is held at.
    pub(in crate::relay) fn next_hot(&mut self, routes: &impl Places) -> Option<(Pending, Epoch)> {
        let queued = self.ready_hot.next(routes)?;
        self.slow.started();
        Some(self.at_epoch(*queued))
    }
}
