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
    pub(in crate::relay) fn settled(&mut self, ticket: &Ticket, verdict: &Verdict, now: Instant) {
        self.forget(ticket.seq);
        match verdict {
            Verdict::Done | Verdict::Delete => {}
            Verdict::Retry { delay, .. } | Verdict::Defer { delay, .. } => {
                self.wait_until(ticket, Some(now + *delay));
            }
            Verdict::Held { .. } => self.wait_until(ticket, None),
            Verdict::Dead { .. } => {
                if let Some(lane_key) = ticket.lane() {
                    self.end_turn(&lane_key, ticket.seq);
                    self.go_on(&lane_key);
                }
            }
        }
    }

    /// A row could not be started, and is read again at that time.
    pub(in crate::relay) fn put_off(&mut self, ticket: &Ticket, until: Instant) {
        self.forget(ticket.seq);
        self.wait_until(ticket, Some(until));
    }

    /// The row waits, and its key behind it, until a time or for an operator.
    fn wait_until(&mut self, ticket: &Ticket, until: Option<Instant>) {
        let Some(lane_key) = ticket.lane() else {
            return until.into_iter().for_each(|when| self.note_due(ticket.shard, when));
        };
        self.end_turn(&lane_key, ticket.seq);
        self.drop_queue(&lane_key);
        self.park(&lane_key, Parked { seq: ticket.seq, until });
        self.leave_if_lost(&lane_key);
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
