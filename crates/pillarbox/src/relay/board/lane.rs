//! The lane of one key: at most one of its events is under way, the others wait behind it.

use std::collections::BTreeMap;

use tokio::time::Instant;

use crate::id::Seq;
use crate::store::Pending;

#[derive(Debug, Default)]
pub(super) struct Lane {
    /// Rows that may start one after the other, in order.
    queue: BTreeMap<Seq, Pending>,
    /// The row that may start, is in delivery, or has a verdict that must be written first.
    pub(super) busy: Option<Seq>,
    /// Its head waits: for its time, or for an operator.
    pub(super) parked: Option<Parked>,
    /// There are rows behind what is in hand.
    pub(super) tail_unread: bool,
    /// A read of the key is wanted or under way.
    pub(super) reading: bool,
}

/// Why a lane stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parked {
    /// The row that waits.
    pub(super) seq: Seq,
    /// Until when; `None` = held, or to be read again.
    pub(super) until: Option<Instant>,
}

impl Lane {
    pub(super) fn push(&mut self, row: Pending) {
        self.queue.insert(row.seq, row);
    }

    /// The next row to start, if nothing of the key is under way or waits.
    pub(super) fn pop(&mut self) -> Option<Pending> {
        if self.busy.is_some() || self.parked.is_some() {
            return None;
        }
        let (seq, row) = self.queue.pop_first()?;
        self.busy = Some(seq);
        Some(row)
    }

    /// Drops what is queued, to be read again. Returns what was dropped.
    pub(super) fn drop_queue(&mut self) -> Vec<Seq> {
        self.tail_unread |= !self.queue.is_empty();
        std::mem::take(&mut self.queue).into_keys().collect()
    }

    pub(super) fn queued(&self) -> usize {
        self.queue.len()
    }

    /// Ends the turn of a row, if it is that row's turn.
    pub(super) fn end_turn(&mut self, seq: Seq) {
        if self.busy == Some(seq) {
            self.busy = None;
        }
    }

    pub(super) fn is_idle(&self) -> bool {
        self.busy.is_none() && self.queue.is_empty()
    }

    /// Whether nothing about the key is worth remembering.
    pub(super) fn is_over(&self) -> bool {
        self.is_idle() && self.parked.is_none() && !self.tail_unread && !self.reading
    }
}
