//! The handover of a transaction's events to the relay when it commits.

use std::mem;

use super::{KeyedEvent, LocalEvent, LocalQueue, Message, Registration, Reservation};
use crate::crash_point::crash_point;
use crate::envelope::Envelope;
use crate::tx::{Inserted, LocalLease};

/// The events that a transaction hands over when it commits. Dropping it withdraws them.
#[derive(Debug)]
pub(crate) struct Handover {
    queue: LocalQueue,
    reservation: Reservation,
    inserted: Vec<Option<Inserted>>,
    /// The registered events, in order.
    registered: Vec<Registration>,
}

impl Handover {
    /// Registers the events that have a key with the relay before their commit, so that the relay
    /// knows them before a read can return them.
    pub(crate) fn new(
        queue: LocalQueue,
        reservation: Reservation,
        inserted: Vec<Option<Inserted>>,
        events: &[Envelope],
    ) -> Self {
        let register = |(event, row): (&Envelope, &Option<Inserted>)| {
            registration(&reservation, event, (*row)?)
        };
        let registered: Vec<_> = events.iter().zip(&inserted).filter_map(register).collect();
        if !registered.is_empty() {
            queue.send(Message::Registered(registered.clone()));
        }
        Self { queue, reservation, inserted, registered }
    }

    /// Hands over the committed events. Returns whether all of them were eligible.
    pub(crate) fn keep(mut self, events: &[Envelope]) -> bool {
        crash_point!("hot.before");
        let mut registered = mem::take(&mut self.registered).into_iter().peekable();
        let (mut handed, mut keyed) = (0, Vec::new());
        for (envelope, inserted) in events.iter().zip(mem::take(&mut self.inserted)) {
            let Some(inserted) = inserted else { continue };
            if LocalLease::leases(envelope) {
                handed += 1;
                self.hand_over(envelope, inserted);
            } else if let Some(registration) = registered.next_if(|it| it.seq == inserted.seq) {
                handed += 1;
                let room = self.reservation.permit(envelope);
                let envelope = envelope.clone().occurred_at(inserted.occurred_at);
                keyed.push(KeyedEvent { registration, envelope, room });
            }
        }
        crash_point!("hot.between");
        if !keyed.is_empty() {
            self.queue.send(Message::Committed(keyed));
        }
        handed == events.len()
    }

    fn hand_over(&mut self, envelope: &Envelope, inserted: Inserted) {
        let (room, deadline) = (self.reservation.permit(envelope), self.reservation.deadline);
        let envelope = envelope.clone().occurred_at(inserted.occurred_at);
        let event = LocalEvent { envelope, inserted, deadline, room };
        self.queue.send(Message::Leased(Box::new(event)));
    }
}

impl Drop for Handover {
    fn drop(&mut self) {
        let registered = mem::take(&mut self.registered);
        if !registered.is_empty() {
            self.queue.send(Message::Withdrawn(registered));
        }
    }
}

/// Returns the registration of an event whose shard the relay owns already. A shard that it acquires
/// later may have been read by another relay in between.
fn registration(of: &Reservation, envelope: &Envelope, inserted: Inserted) -> Option<Registration> {
    let shards = of.relay.shards.as_ref().filter(|_| inserted.is_next)?;
    let key = envelope.ordering_key()?.into();
    let epoch = shards.epoch(inserted.shard)?;
    Some(Registration { seq: inserted.seq, shard: inserted.shard, epoch, key })
}
