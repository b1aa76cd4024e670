//! A handover: what a transaction hands over if it commits.

use std::mem;

use super::{KeyedEvent, LocalEvent, LocalQueue, Message, Registration, Reservation};
use crate::crash_point::crash_point;
use crate::envelope::Envelope;
use crate::tx::{LocalLease, Place};

/// Events of a transaction that go to a worker when it commits; dropped, none of them do.
#[derive(Debug)]
pub(crate) struct Handover {
    queue: LocalQueue,
    reservation: Reservation,
    places: Vec<Option<Place>>,
    /// Of those with a key, in order.
    registered: Vec<Registration>,
}

impl Handover {
    /// Registers the events that have a key with the relay, before their commit: whoever reads one
    /// of them afterwards reads what the relay knows of.
    pub(crate) fn new(
        queue: LocalQueue,
        reservation: Reservation,
        places: Vec<Option<Place>>,
        events: &[Envelope],
    ) -> Self {
        let registered: Vec<_> = events
            .iter()
            .zip(&places)
            .filter_map(|(it, at)| register(&reservation, it, (*at)?))
            .collect();
        if !registered.is_empty() {
            queue.post(Message::Registered(registered.clone()));
        }
        Self { queue, reservation, places, registered }
    }

    /// Hands over what was committed. Returns whether that was all of it.
    pub(crate) fn keep(mut self, events: &[Envelope]) -> bool {
        crash_point!("hot.before");
        let mut registered = mem::take(&mut self.registered).into_iter().peekable();
        let (mut handed, mut keyed) = (0, Vec::new());
        for (envelope, place) in events.iter().zip(mem::take(&mut self.places)) {
            let Some(place) = place else { continue };
            if LocalLease::leases(envelope) {
                handed += 1;
                self.hand_over(envelope, place);
            } else if let Some(registration) = registered.next_if(|it| it.seq == place.seq) {
                handed += 1;
                let room = self.reservation.room(envelope);
                let envelope = envelope.clone().occurred_at(place.occurred_at);
                keyed.push(KeyedEvent { registration, envelope, room });
            }
        }
        crash_point!("hot.between");
        if !keyed.is_empty() {
            self.queue.post(Message::Committed(keyed));
        }
        handed == events.len()
    }

    fn hand_over(&mut self, envelope: &Envelope, place: Place) {
        let (room, deadline) = (self.reservation.room(envelope), self.reservation.deadline);
        let envelope = envelope.clone().occurred_at(place.occurred_at);
        let event = LocalEvent { envelope, place, deadline, room };
        self.queue.post(Message::Leased(Box::new(event)));
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let registered = mem::take(&mut self.registered);
        if !registered.is_empty() {
            self.queue.post(Message::Withdrawn(registered));
        }
    }
}

/// Only where the relay owns the shard already: one that it takes later may have been read by
/// another in between.
fn register(reservation: &Reservation, envelope: &Envelope, place: Place) -> Option<Registration> {
    let shards = reservation.relay.shards.as_ref().filter(|_| place.is_next)?;
    let key = envelope.ordering_key()?.into();
    let epoch = shards.epoch(place.shard)?;
    Some(Registration { seq: place.seq, shard: place.shard, epoch, key })
}
