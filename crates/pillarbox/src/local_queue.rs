//! The local queue passes events from a commit to the relay of the same process, without a read.
//!
//! A writer reserves capacity before its insert. With a reservation, a row is inserted with a lease
//! for the relay, or registered with the relay that owns its shard. Without one it is an ordinary
//! row.

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
use crate::tx::{Inserted, LocalLease};

/// The maximum size of payloads and headers in the queue, in bytes.
const MAX_BYTES: usize = 32 * 1024 * 1024;

/// The maximum number of events with a key per transaction. With more, they are read from the
/// table, because the predecessor of each is looked up separately.
const MAX_KEYED: usize = 64;

/// The writers' side of the queue.
#[derive(Clone)]
pub(crate) struct LocalQueue(Arc<Shared>);

struct Shared {
    permits: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    messages: mpsc::UnboundedSender<Message>,
    /// `None` while no relay receives events.
    relay: RwLock<Option<Arc<LocalRelay>>>,
}

/// The relay that receives the events.
#[derive(Debug)]
pub(crate) struct LocalRelay {
    pub(crate) owner: OwnerId,
    /// The length of its leases on rows.
    pub(crate) lease: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
    /// The shards that it owns; `None` with row claims.
    pub(crate) shards: Option<Arc<dyn OwnedShards>>,
}

/// The shards that a relay owns.
pub(crate) trait OwnedShards: fmt::Debug + Send + Sync {
    /// Returns the epoch of a shard, if it is owned and is not being released.
    fn epoch(&self, shard: ShardId) -> Option<Epoch>;
}

/// The relay's side of the queue.
#[derive(Debug)]
pub(crate) struct LocalReceiver(mpsc::UnboundedReceiver<Message>);

/// A message from a writer to the relay.
#[derive(Debug)]
pub(crate) enum Message {
    /// An event with a leased row was committed.
    Leased(Box<LocalEvent>),
    /// Events with a key were inserted and are about to be committed.
    Registered(Vec<Registration>),
    /// Registered events were committed.
    Committed(Vec<KeyedEvent>),
    /// Registered events were not committed, or their outcome is unknown.
    Withdrawn(Vec<Registration>),
}

/// An event that is the next one of its key.
///
/// It counts as in flight from before its commit, so that no read can return it a second time. It is
/// valid only for the epoch at which its shard was owned when it was inserted.
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

/// A committed event whose row is leased to the local relay.
#[derive(Debug)]
pub(crate) struct LocalEvent {
    pub(crate) envelope: Envelope,
    pub(crate) inserted: Inserted,
    /// The end of the lease on its row, counted from before the insert.
    pub(crate) deadline: Deadline,
    /// Its capacity in the queue, released when this is dropped.
    pub(crate) room: Permit,
}

/// Capacity in the queue for one event.
#[derive(Debug)]
pub(crate) struct Permit {
    _event: Option<OwnedSemaphorePermit>,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// Capacity for all eligible events of a transaction.
#[derive(Debug)]
pub(crate) struct Reservation {
    relay: Arc<LocalRelay>,
    keyed: bool,
    deadline: Deadline,
    permits: OwnedSemaphorePermit,
    bytes: OwnedSemaphorePermit,
}

impl LocalQueue {
    /// Creates a queue for this many events. It is closed at first.
    pub(crate) fn new(most: u32) -> (Self, LocalReceiver) {
        let (messages, receiver) = mpsc::unbounded_channel();
        let shared = Shared {
            permits: Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX >> 3))),
            bytes: Arc::new(Semaphore::new(MAX_BYTES)),
            messages,
            relay: RwLock::default(),
        };
        (Self(Arc::new(shared)), LocalReceiver(receiver))
    }

    pub(crate) fn open(&self, relay: LocalRelay) {
        *self.0.relay.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(relay));
    }

    /// Closes the queue for new reservations. Writers that have one still use it.
    pub(crate) fn close(&self) -> PendingWriters {
        PendingWriters(self.0.relay.write().unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Reserves capacity for the eligible events, for all or none. The lease starts here, before the
    /// insert: the database counts from later.
    pub(crate) fn reserve(&self, envelopes: &[Envelope]) -> Option<Reservation> {
        let relay = self.0.relay.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        // A relay that was dropped has not closed the queue.
        if self.0.messages.is_closed() {
            return None;
        }
        let keyed = relay.shards.is_some()
            && envelopes.iter().filter(|it| it.is_ordered()).count() <= MAX_KEYED;
        let (count, bytes) = needs(relay.hot(keyed), envelopes);
        if count == 0 {
            return None;
        }
        let reserved = (acquire(&self.0.permits, count), acquire(&self.0.bytes, bytes));
        let (Some(permits), Some(bytes)) = reserved else {
            relay.observers.on_event(&RelayEvent::LocalQueueFull { events: count });
            return None;
        };
        let deadline = Deadline::after(&*relay.clock, relay.lease);
        Some(Reservation { relay, keyed, deadline, permits, bytes })
    }

    /// Sends a message. If the relay has ended, another one reads the rows.
    fn send(&self, message: Message) {
        let _ = self.0.messages.send(message);
    }
}

impl LocalRelay {
    fn hot(&self, keyed: bool) -> LocalLease<'_> {
        LocalLease { owner: &self.owner, length: self.lease, keyed }
    }
}

impl Reservation {
    /// Returns the lease that the insert writes.
    pub(crate) fn hot(&self) -> LocalLease<'_> {
        self.relay.hot(self.keyed)
    }

    /// Returns the permit of one event.
    fn permit(&mut self, envelope: &Envelope) -> Permit {
        Permit { _event: self.permits.split(1), _bytes: self.bytes.split(envelope.size()) }
    }
}

impl LocalReceiver {
    /// Waits for the next message.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.0.recv().await
    }

    /// Returns the next message, if there is one.
    pub(crate) fn try_next(&mut self) -> Option<Message> {
        self.0.try_recv().ok()
    }
}

/// Writers that had a reservation when the queue was closed. Each shares the relay until its commit.
#[derive(Debug, Default)]
pub(crate) struct PendingWriters(Option<Arc<LocalRelay>>);

impl PendingWriters {
    /// Returns whether writers may still send messages, or messages were not received yet.
    pub(crate) fn are_awaited(&self, events: &LocalReceiver) -> bool {
        let is_writing = |relay: &Arc<LocalRelay>| Arc::strong_count(relay) > 1;
        let are_writing = self.0.as_ref().is_some_and(is_writing);
        // A writer sends before it drops its reference, so the last message is seen below.
        fence(Ordering::Acquire);
        are_writing || !events.0.is_empty()
    }
}

impl fmt::Debug for LocalQueue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LocalQueue").field("free", &self.0.permits.available_permits()).finish()
    }
}

/// Returns the number and the size in bytes of the eligible events.
fn needs(lease: LocalLease<'_>, envelopes: &[Envelope]) -> (usize, usize) {
    let sizes =
        envelopes.iter().filter(|envelope| lease.wants_position(envelope)).map(Envelope::size);
    sizes.fold((0, 0), |(count, bytes), size| (count + 1, bytes + size))
}

fn acquire(from: &Arc<Semaphore>, amount: usize) -> Option<OwnedSemaphorePermit> {
    Arc::clone(from).try_acquire_many_owned(u32::try_from(amount).ok()?).ok()
}
