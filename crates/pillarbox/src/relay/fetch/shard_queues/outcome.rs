//! What becomes of a key when the turn of one of its events is over.

use tokio::time::Instant;

use crate::id::Seq;
use crate::relay::fetch::shard_queues::key_queue::Parked;
use crate::relay::fetch::shard_queues::{RowKey, ShardKey, ShardQueues};
use crate::verdict::Verdict;

impl ShardQueues {
    /// A delivery is over, and its verdict is to be written.
    pub(crate) fn decided(&mut self, ticket: &RowKey, verdict: &Verdict) {
        self.in_flight.unload(ticket.seq);
        // After a success the next one may start before this is written: a crash would repeat
        // both, in order. After anything else the key waits for what is written.
        if !matches!(verdict, Verdict::Done | Verdict::Delete) {
            return;
        }
        let Some(shard_key) = ticket.lane() else { return };
        self.end_turn(&shard_key, ticket.seq);
        self.go_on(&shard_key);
    }

    /// A verdict was written.
    pub(crate) fn settled(&mut self, ticket: &RowKey, verdict: &Verdict) {
        self.forget(ticket.seq);
        let is_new_again = self.promoted_in_hand.remove(&ticket.seq);
        match verdict {
            Verdict::Done | Verdict::Delete => {}
            Verdict::Retry { .. } | Verdict::Defer { .. } | Verdict::Held { .. } => {
                self.wait_in_table(ticket);
                if is_new_again {
                    self.promoted(vec![ticket.clone().into()]);
                }
            }
            Verdict::Dead { .. } => {
                if let Some(shard_key) = ticket.lane() {
                    self.end_turn(&shard_key, ticket.seq);
                    self.go_on(&shard_key);
                }
            }
        }
    }

    /// A row could not be started, and is read again at that time; its key waits behind it.
    pub(crate) fn put_off(&mut self, ticket: &RowKey, until: Instant) {
        self.forget(ticket.seq);
        let Some(shard_key) = ticket.lane() else { return self.note_due(ticket.shard, until) };
        self.end_turn(&shard_key, ticket.seq);
        self.drop_queue(&shard_key);
        self.park(&shard_key, Parked { seq: ticket.seq, until: Some(until) });
        self.leave_if_lost(&shard_key);
    }

    /// The row waits for its time or for an operator. A read that begins from now on says of the rows
    /// behind it that it comes before them; the one under way may show them as free.
    fn wait_in_table(&mut self, ticket: &RowKey) {
        let Some(shard_key) = ticket.lane() else { return };
        self.end_turn(&shard_key, ticket.seq);
        if !self.read_under_way {
            return self.close(&shard_key);
        }
        self.drop_queue(&shard_key);
        self.park(&shard_key, Parked { seq: ticket.seq, until: None });
        self.closing.push(shard_key.clone());
        self.leave_if_lost(&shard_key);
    }

    /// Forgets a key whose head waits in the table.
    pub(super) fn close(&mut self, shard_key: &ShardKey) {
        self.unpark(shard_key);
        let Some(queue) = self.keys.get_mut(shard_key) else { return };
        for seq in queue.drop_queue().into_iter().chain(queue.drop_registered()) {
            self.in_flight.remove(seq);
        }
        queue.tail_unread = false;
        if queue.is_over() {
            self.keys.remove(shard_key);
        }
    }

    /// A verdict did not apply: written before, or overtaken by an operator or another owner.
    pub(crate) fn overtaken(&mut self, ticket: &RowKey, verdict: &Verdict) {
        if !matches!(verdict, Verdict::Done | Verdict::Delete) {
            return self.put_back(ticket);
        }
        self.look_again(ticket);
        let Some(shard_key) = ticket.lane() else { return };
        // It was delivered, and its successor may be under way: only the tail is in doubt.
        if let Some(queue) = self.keys.get_mut(&shard_key) {
            queue.tail_unread = true;
        }
        self.go_on(&shard_key);
    }

    /// A row was not delivered after all: it is to be read again.
    pub(crate) fn put_back(&mut self, ticket: &RowKey) {
        self.look_again(ticket);
        if let Some(shard_key) = ticket.lane() {
            self.read_again(&shard_key, ticket.seq);
        }
    }

    /// The row is out of hand, and its shard is read from the head.
    fn look_again(&mut self, ticket: &RowKey) {
        self.forget(ticket.seq);
        if let Some(shard) = self.shards.get_mut(&ticket.shard) {
            shard.start_over();
        }
    }

    /// Nothing of the key starts before it has been read from its head, by a read that begins
    /// later than now.
    fn read_again(&mut self, shard_key: &ShardKey, seq: Seq) {
        self.end_turn(shard_key, seq);
        self.drop_queue(shard_key);
        self.park(shard_key, Parked { seq, until: None });
        if self.read_under_way {
            self.doubtful.push(shard_key.clone());
        } else {
            self.want_key(shard_key.clone());
        }
    }

    fn end_turn(&mut self, shard_key: &ShardKey, seq: Seq) {
        if let Some(queue) = self.keys.get_mut(shard_key) {
            queue.end_turn(seq);
        }
    }

    /// A queue that outlived its shard, or the work on it, because something of it was under way,
    /// ends.
    pub(super) fn leave_if_lost(&mut self, shard_key: &ShardKey) {
        if !self.works_on(shard_key.0) {
            self.unpark(shard_key);
            self.keys.remove(shard_key);
        }
    }
}
