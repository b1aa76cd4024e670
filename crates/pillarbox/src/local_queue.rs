//! The local queue: events go from a commit to the relay of the same process, without a read.
//!
//! A place is reserved before the insert. So a row is inserted under a lease, or registered with the
//! relay that owns its shard, only if there is room to deliver it from memory. Everything else is an
//! ordinary row.

mod handover;
#[cfg(test)]
mod tests;

use std::{
    fmt,
    sync::{
        Arc, PoisonError,
        atomic::{Ordering, fence},
    },
    time::Duration,
};

use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};

pub(crate) use self::handover::Handover;
use crate::clock::{Clock, Deadline};
use crate::envelope::Envelope;
use crate::id::{Epoch, OwnerId, Seq, ShardId};
use crate::sync::RwLock;
use crate::telemetry::{Observers, RelayEvent};
use crate::tx::{LocalLease, Place};

/// Bytes of payload and headers that may be in the queue.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// With more events, those of a transaction that have a key go through the table: whether something
/// is before them is looked up one by one, and a crowd is in no such hurry.
const MOST_KEYED: usize = 64;

/// The end of the writers.
#[derive(Clone)]
pub(crate) struct LocalQueue(Arc<Shared>);

struct Shared {
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    messages: mpsc::UnboundedSender<Message>,
    /// Set while a relay delivers what comes.
    relay: RwLock<Option<Arc<LocalRelay>>>,
}

/// The relay that delivers what comes through the queue.
#[derive(Debug)]
pub(crate) struct LocalRelay {
    pub(crate) owner: OwnerId,
    /// How long a row is leased to it.
    pub(crate) lease: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
    /// The shards it owns, where it delivers by shards.
    pub(crate) shards: Option<Arc<dyn OwnedShards>>,
}

/// Knows which shards are owned.
pub(crate) trait OwnedShards: fmt::Debug + Send + Sync {
    /// The epoch at which a shard is owned, if it is, and is to stay so.
    fn epoch(&self, shard: ShardId) -> Option<Epoch>;
}

/// The end of the relay.
#[derive(Debug)]
pub(crate) struct LocalReceiver(mpsc::UnboundedReceiver<Message>);

/// What writers tell the relay.
#[derive(Debug)]
pub(crate) enum Message {
    /// Committed.
    Leased(Box<LocalEvent>),
    /// Written, and about to be committed.
    Registered(Vec<Registration>),
    /// Committed, after they were registered.
    Committed(Vec<KeyedEvent>),
    /// Not committed, or nobody knows.
    Withdrawn(Vec<Registration>),
}

/// An event with a key, written by someone who saw nothing of its key before it.
///
/// It counts as under way from before its commit, so that no read can bring it a second time, and
/// only for the epoch at which its shard was owned when it was written.
#[derive(Clone, Debug)]
pub(crate) struct Registration {
    pub(crate) seq: Seq,
    pub(crate) shard: ShardId,
    pub(crate) epoch: Epoch,
    pub(crate) key: Arc<str>,
}

/// A committed event with a key.
#[derive(Debug)]
pub(crate) struct KeyedEvent {
    pub(crate) registration: Registration,
    pub(crate) envelope: Envelope,
    pub(crate) room: Permit,
}

/// A committed event that only its writer's process may deliver, for as long as the lease lasts.
#[derive(Debug)]
pub(crate) struct LocalEvent {
    pub(crate) envelope: Envelope,
    pub(crate) place: Place,
    /// When the lease on its row runs out, counted from before the insert.
    pub(crate) deadline: Deadline,
    /// Its place in the queue, free again when this is dropped.
    pub(crate) room: Permit,
}

/// A place in the queue.
#[derive(Debug)]
pub(crate) struct Permit {
    _place: Option<OwnedSemaphorePermit>,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// Places for all events of a transaction that go through the queue.
#[derive(Debug)]
pub(crate) struct Reservation {
    relay: Arc<LocalRelay>,
    keyed: bool,
    deadline: Deadline,
    places: OwnedSemaphorePermit,
    bytes: OwnedSemaphorePermit,
}

impl LocalQueue {
    /// A queue for this many events; nothing goes through it before it is opened.
    pub(crate) fn new(most: u32) -> (Self, LocalReceiver) {
        let (messages, coming) = mpsc::unbounded_channel();
        let shared = Shared {
            places: Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX >> 3))),
            bytes: Arc::new(Semaphore::new(MOST_BYTES)),
            messages,
            relay: RwLock::default(),
        };
        (Self(Arc::new(shared)), LocalReceiver(coming))
    }

    pub(crate) fn open(&self, relay: LocalRelay) {
        *self.0.relay.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(relay));
    }

    /// From now on every event is an ordinary row, but for those of writers who have a place.
    pub(crate) fn close(&self) -> PendingWriters {
        PendingWriters(self.0.relay.write().unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Reserves places for those of the events that may go through the queue, all or none. The lease counts from here, before
    /// the insert: the database can only count from later.
    pub(crate) fn reserve(&self, envelopes: &[Envelope]) -> Option<Reservation> {
        let relay = self.0.relay.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        // A relay that was dropped has not closed its queue.
        if self.0.messages.is_closed() {
            return None;
        }
        let keyed = relay.shards.is_some()
            && envelopes.iter().filter(|it| it.is_ordered()).count() <= MOST_KEYED;
        let (count, bytes) = needs(relay.hot(keyed), envelopes);
        if count == 0 {
            return None;
        }
        let (Some(places), Some(bytes)) = (take(&self.0.places, count), take(&self.0.bytes, bytes))
        else {
            relay.observers.on_event(&RelayEvent::LocalQueueFull { events: count });
            return None;
        };
        let deadline = Deadline::after(&*relay.clock, relay.lease);
        Some(Reservation { relay, keyed, deadline, places, bytes })
    }

    /// A relay that has ended leaves the rows to whoever reads them.
    fn post(&self, messages: Message) {
        let _ = self.0.messages.send(messages);
    }
}

impl LocalRelay {
    fn hot(&self, keyed: bool) -> LocalLease<'_> {
        LocalLease { owner: &self.owner, length: self.lease, keyed }
    }
}

impl Reservation {
    /// What the insert is to do for it.
    pub(crate) fn hot(&self) -> LocalLease<'_> {
        self.relay.hot(self.keyed)
    }

    /// The permit of one event.
    fn room(&mut self, envelope: &Envelope) -> Permit {
        Permit { _place: self.places.split(1), _bytes: self.bytes.split(envelope.size()) }
    }
}

impl LocalReceiver {
    /// The next message, when there is one.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.0.recv().await
    }

    /// The next message, if there is one already.
    pub(crate) fn try_next(&mut self) -> Option<Message> {
        self.0.try_recv().ok()
    }
}

/// Writers that had a place in the queue when it was closed: each shares the relay until it has committed.
#[derive(Debug, Default)]
pub(crate) struct PendingWriters(Option<Arc<LocalRelay>>);

impl PendingWriters {
    /// Whether they have messages to send, or have sent some that were not taken.
    pub(crate) fn are_awaited(&self, events: &LocalReceiver) -> bool {
        let is_writing = |relay: &Arc<LocalRelay>| Arc::strong_count(relay) > 1;
        let are_writing = self.0.as_ref().is_some_and(is_writing);
        // A writer sends first and then lets go: what the last of them has sent is seen below.
        fence(Ordering::Acquire);
        are_writing || !events.0.is_empty()
    }
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueue").field("room", &self.0.places.available_permits()).finish()
    }
}

/// How many places, and how many bytes.
fn needs(hot: LocalLease<'_>, envelopes: &[Envelope]) -> (usize, usize) {
    let sizes =
        envelopes.iter().filter(|envelope| hot.wants_position(envelope)).map(Envelope::size);
    sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
}

fn take(from: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(from).try_acquire_many_owned(u32::try_from(amount).ok()?).ok()
}
