//! The queue of one key: at most one of its events is under way, the others wait behind it.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;

use super::in_flight::InFlight;
use crate::id::{Seq, Token};
use crate::local_queue::{KeyedEvent, Permit};
use crate::relay::dispatch::fair_share::RouteId;
use crate::relay::dispatch::route_queue::Routed;
use crate::store::{Content, Pending, Predecessor, Status};

#[derive(Debug, Default)]
pub(super) struct KeyQueue {
    /// Rows that may start one after the other, in order.
    queue: BTreeMap<Seq, Box<Queued>>,
    /// Rows that are about to be committed, and since when they are; later ones wait for them.
    registered: BTreeMap<Seq, Instant>,
    /// The row that may start, is in delivery, or has a verdict that must be written first.
    pub(super) busy: Option<Seq>,
    /// Its head waits: for its time, or for an operator.
    pub(super) parked: Option<Parked>,
    /// There are rows behind what is in in_flight.
    pub(super) tail_unread: bool,
    /// A read of the key is wanted or under way.
    pub(super) reading: bool,
}

/// A row that may start when its turn comes.
#[derive(Debug)]
pub(super) struct Queued {
    pub(super) row: Pending,
    pub(super) route: RouteId,
    /// It comes from memory, and takes room there.
    pub(super) room: Option<Permit>,
}

impl Queued {
    /// One from the table.
    pub(super) fn from_table(row: Pending) -> Box<Self> {
        Box::new(Self { route: RouteId::of_row(&row.content), row, room: None })
    }

    /// One from memory, which was committed after it was registered.
    pub(super) fn committed(KeyedEvent { registration, envelope, room }: KeyedEvent) -> Box<Self> {
        let route = RouteId::of(&envelope);
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
        Box::new(Self { row, route, room: Some(room) })
    }
}

impl Routed for Queued {
    fn route(&self) -> RouteId {
        self.route
    }
}

/// Why a queue stands still.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Parked {
    /// The row that waits.
    pub(super) seq: Seq,
    /// Until when; `None` = held, or to be read again.
    pub(super) until: Option<Instant>,
}

impl KeyQueue {
    pub(super) fn push(&mut self, queued: Box<Queued>) {
        self.queue.insert(queued.row.seq, queued);
    }

    /// Whether a row may start without waiting in line, which makes it the one under way.
    pub(super) fn start_at_once(&mut self, seq: Seq) -> bool {
        let may = self.is_idle() && self.parked.is_none();
        if may {
            self.busy = Some(seq);
        }
        may
    }

    /// The next row to start, if nothing of the key is under way or waits.
    pub(super) fn pop(&mut self) -> Option<Box<Queued>> {
        if self.busy.is_some() || self.parked.is_some() {
            return None;
        }
        let first = self.queue.first_entry()?;
        let before = self.registered.first_key_value().map(|(seq, _)| *seq);
        if before.is_some_and(|registered| registered < *first.key()) {
            return None;
        }
        let (seq, queued) = first.remove_entry();
        self.busy = Some(seq);
        Some(queued)
    }

    pub(super) fn register(&mut self, seq: Seq, now: Instant) {
        self.registered.insert(seq, now);
    }

    /// Whether the row was registered until now.
    pub(super) fn unregister(&mut self, seq: Seq) -> bool {
        self.registered.remove(&seq).is_some()
    }

    /// The rows that were registered before then.
    pub(super) fn registered_before(&self, then: Instant) -> impl Iterator<Item = Seq> {
        self.registered.iter().filter(move |(_, since)| **since < then).map(|(seq, _)| *seq)
    }

    /// Forgets what is queued, and what is about to be committed.
    pub(super) fn clear(&mut self, in_flight: &mut InFlight) {
        let registered = std::mem::take(&mut self.registered).into_keys();
        self.drop_queue().into_iter().chain(registered).for_each(|seq| in_flight.remove(seq));
    }

    /// Drops what is queued, to be read again. Returns what was dropped.
    pub(super) fn drop_queue(&mut self) -> Vec<Seq> {
        self.tail_unread |= !self.queue.is_empty();
        std::mem::take(&mut self.queue).into_keys().collect()
    }

    /// Whether something is about to be committed.
    pub(super) fn is_registered(&self) -> bool {
        !self.registered.is_empty()
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
        self.busy.is_none() && self.queue.is_empty() && self.registered.is_empty()
    }

    /// Whether a row of the key may start without waiting for a time or for an operator.
    pub(super) fn has_next(&self) -> bool {
        let follows = self.busy.is_some() && self.tail_unread;
        !self.queue.is_empty() || !self.registered.is_empty() || follows || self.reading
    }

    /// Whether nothing about the key is worth remembering.
    pub(super) fn is_over(&self) -> bool {
        self.is_idle() && self.parked.is_none() && !self.tail_unread && !self.reading
    }
}
