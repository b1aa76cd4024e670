//! What becomes of a key when the turn of one of its events is over.

use tokio::time::Instant;

use super::lane::Parked;
use super::{Board, LaneKey, Ticket};
use crate::id::Seq;
use crate::verdict::Verdict;

impl Board {
    /// A delivery is over, and its verdict is to be written.
    pub(in crate::relay) fn judged(&mut self, ticket: &Ticket, verdict: &Verdict) {
        self.hand.unload(ticket.seq);
        // After a success the next one may start before this is written: a crash would repeat
        // both, in order. After anything else the key waits for what is written.
        if !matches!(verdict, Verdict::Done | Verdict::Delete) {
            return;
        }
        let Some(lane_key) = ticket.lane() else { return };
        self.end_turn(&lane_key, ticket.seq);
        self.go_on(&lane_key);
    }

    /// A verdict was written.
    pub(in crate::relay) fn settled(&mut self, ticket: &Ticket, verdict: &Verdict) {
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
                if let Some(lane_key) = ticket.lane() {
                    self.end_turn(&lane_key, ticket.seq);
                    self.go_on(&lane_key);
                }
            }
        }
    }

    /// A row could not be started, and is read again at that time; its key waits behind it.
    pub(in crate::relay) fn put_off(&mut self, ticket: &Ticket, until: Instant) {
        self.forget(ticket.seq);
        let Some(lane_key) = ticket.lane() else { return self.note_due(ticket.shard, until) };
        self.end_turn(&lane_key, ticket.seq);
        self.drop_queue(&lane_key);
        self.park(&lane_key, Parked { seq: ticket.seq, until: Some(until) });
        self.leave_if_lost(&lane_key);
    }

    /// The row waits for its time or for an operator. A read that begins from now on says of the rows
    /// behind it that it comes before them; the one under way may show them as free.
    fn wait_in_table(&mut self, ticket: &Ticket) {
        let Some(lane_key) = ticket.lane() else { return };
        self.end_turn(&lane_key, ticket.seq);
        if !self.read_under_way {
            return self.close(&lane_key);
        }
        self.drop_queue(&lane_key);
        self.park(&lane_key, Parked { seq: ticket.seq, until: None });
        self.closing.push(lane_key.clone());
        self.leave_if_lost(&lane_key);
    }

    /// Forgets a key whose head waits in the table.
    pub(super) fn close(&mut self, lane_key: &LaneKey) {
        self.unpark(lane_key);
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        for seq in lane.drop_queue().into_iter().chain(lane.drop_registered()) {
            self.hand.remove(seq);
        }
        lane.tail_unread = false;
        if lane.is_over() {
            self.lanes.remove(lane_key);
        }
    }

    /// A verdict did not apply: written before, or overtaken by an operator or another owner.
    pub(in crate::relay) fn overtaken(&mut self, ticket: &Ticket, verdict: &Verdict) {
        if !matches!(verdict, Verdict::Done | Verdict::Delete) {
            return self.put_back(ticket);
        }
        self.look_again(ticket);
        let Some(lane_key) = ticket.lane() else { return };
        // It was delivered, and its successor may be under way: only the tail is in doubt.
        if let Some(lane) = self.lanes.get_mut(&lane_key) {
            lane.tail_unread = true;
        }
        self.go_on(&lane_key);
    }

    /// A row was not delivered after all: it is to be read again.
    pub(in crate::relay) fn put_back(&mut self, ticket: &Ticket) {
        self.look_again(ticket);
        if let Some(lane_key) = ticket.lane() {
            self.read_again(&lane_key, ticket.seq);
        }
    }

    /// The row is out of hand, and its shard is read from the head.
    fn look_again(&mut self, ticket: &Ticket) {
        self.forget(ticket.seq);
        if let Some(shard) = self.shards.get_mut(&ticket.shard) {
            shard.start_over();
        }
    }

    /// Nothing of the key starts before it has been read from its head, by a read that begins
    /// later than now.
    fn read_again(&mut self, lane_key: &LaneKey, seq: Seq) {
        self.end_turn(lane_key, seq);
        self.drop_queue(lane_key);
        self.park(lane_key, Parked { seq, until: None });
        if self.read_under_way {
            self.doubtful.push(lane_key.clone());
        } else {
            self.want_key(lane_key.clone());
        }
    }

    fn end_turn(&mut self, lane_key: &LaneKey, seq: Seq) {
        if let Some(lane) = self.lanes.get_mut(lane_key) {
            lane.end_turn(seq);
        }
    }

    /// A lane that outlived its shard, or the work on it, because something of it was under way,
    /// ends.
    pub(super) fn leave_if_lost(&mut self, lane_key: &LaneKey) {
        if !self.works_on(lane_key.0) {
            self.unpark(lane_key);
            self.lanes.remove(lane_key);
        }
    }
}
