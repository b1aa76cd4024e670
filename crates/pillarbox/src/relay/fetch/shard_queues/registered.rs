//! Hot rows with a key: in flight from before their commit, so that no read brings them again.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::{Epoch, Token};
use crate::local_queue::{KeyedEvent, Registration};
use crate::relay::dispatch::fair_share::Capacity;
use crate::relay::fetch::shard_queues::key_queue::Queued;
use crate::relay::fetch::shard_queues::{RowKey, ShardKey, ShardQueues};
use crate::store::{Content, Pending, Predecessor, Status};

/// How long a key waits for a commit that does not come; the row is an ordinary one then.
const PATIENCE: Duration = Duration::from_secs(5);

impl ShardQueues {
    /// A row is about to be committed. It counts only if its shard is still held as it was when the
    /// row was written.
    pub(crate) fn register(&mut self, registration: &Registration, now: Instant) {
        let Registration { seq, shard, epoch, key } = registration;
        if !self.holds(*shard, *epoch) {
            return;
        }
        let shard_key = (*shard, key.clone());
        self.in_flight.register(*seq, *shard);
        let queue = self.keys.entry(shard_key.clone()).or_default();
        queue.register(*seq, now);
        // A later row came first, and waits for its time: not in front of this one.
        if queue.parked.is_some_and(|parked| parked.seq > *seq) {
            queue.tail_unread = true;
            self.unpark(&shard_key);
        }
    }

    /// A row was committed. Returns whether it is in flight; if not, a read will find it.
    pub(crate) fn commit(&mut self, event: KeyedEvent) -> bool {
        let KeyedEvent { registration, envelope, room } = event;
        let shard_key = (registration.shard, registration.key.clone());
        let Some(queue) = self.keys.get_mut(&shard_key) else { return false };
        if !queue.unregister(registration.seq) {
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
        let queued = Queued::local(row, room);
        self.in_flight.take(&queued);
        queue.push(queued);
        self.go_on(&shard_key);
        true
    }

    /// A row was not committed, or nobody knows: the table does.
    pub(crate) fn withdraw(&mut self, registration: Registration) {
        let Registration { seq, shard, key, .. } = registration;
        let shard_key: ShardKey = (shard, key);
        if self.keys.get_mut(&shard_key).is_some_and(|queue| queue.unregister(seq)) {
            self.put_back(&RowKey { seq, shard, key: Some(shard_key.1) });
        }
    }

    /// Commits that did not come are not waited for any longer.
    pub(crate) fn withdraw_overdue(&mut self, now: Instant) {
        let Some(then) = now.checked_sub(PATIENCE) else { return };
        let mut overdue = Vec::new();
        for ((shard, key), queue) in &self.keys {
            let registration =
                |seq| Registration { seq, shard: *shard, epoch: Epoch(0), key: key.clone() };
            overdue.extend(queue.registered_before(then).map(registration));
        }
        overdue.into_iter().for_each(|registration| self.withdraw(registration));
    }

    /// The next row from memory to start, and the epoch its shard is held at.
    pub(crate) fn next_local(&mut self, routes: &impl Capacity) -> Option<(Pending, Epoch)> {
        let queued = self.ready_local.next(routes)?;
        self.slow.started();
        Some(self.at_epoch(*queued))
    }
}
