//! The hot lane: from a commit straight to a worker, without a look at the table.
//!
//! A place is taken before the insert, so that a row is born under its writer's lease, or registered
//! with the relay that holds its shard, only if there is room to deliver it from memory. Everything
//! else is an ordinary row.

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

/// Bytes of payload and headers that may be in the lane.
const MOST_BYTES: usize = 32 * 1024 * 1024;

/// With more events, those of a transaction that have a key go through the table: whether something
/// is before them is looked up one by one, and a crowd is in no such hurry.
const MOST_KEYED: usize = 64;

/// The writers' end.
#[derive(Clone)]
pub(crate) struct LocalQueue(Arc<Lane>);

struct Lane {
    places: Arc<Semaphore>,
    bytes: Arc<Semaphore>,
    mail: mpsc::UnboundedSender<Message>,
    /// Open while a relay delivers what comes.
    host: RwLock<Option<Arc<LocalRelay>>>,
}

/// Who delivers what comes through the lane.
#[derive(Debug)]
pub(crate) struct LocalRelay {
    pub(crate) owner: OwnerId,
    /// How long a row is leased to it.
    pub(crate) lease: Duration,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) observers: Observers,
    /// The shards it holds, where it delivers by shards.
    pub(crate) shards: Option<Arc<dyn OwnedShards>>,
}

/// Knows which shards are held.
pub(crate) trait OwnedShards: fmt::Debug + Send + Sync {
    /// Since when a shard is held, if it is, and is to stay so.
    fn epoch(&self, shard: ShardId) -> Option<Epoch>;
}

/// The relay's end.
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
/// only for the epoch at which its shard was held when it was written.
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
    pub(crate) place: Inserted,
    /// When the lease on its row runs out, counted from before the insert.
    pub(crate) deadline: Deadline,
    /// Its place in the lane, free again when this is dropped.
    pub(crate) room: Permit,
}

/// A place in the lane.
#[derive(Debug)]
pub(crate) struct Permit {
    _place: Option<OwnedSemaphorePermit>,
    _bytes: Option<OwnedSemaphorePermit>,
}

/// Places for all events of a transaction that go hot.
#[derive(Debug)]
pub(crate) struct Reservation {
    host: Arc<LocalRelay>,
    keyed: bool,
    deadline: Deadline,
    places: OwnedSemaphorePermit,
    bytes: OwnedSemaphorePermit,
}

impl LocalQueue {
    /// A lane for this many events; nothing goes through it before it is opened.
    pub(crate) fn new(most: u32) -> (Self, LocalReceiver) {
        let (mail, coming) = mpsc::unbounded_channel();
        let lane = Lane {
            places: Arc::new(Semaphore::new(usize::try_from(most).unwrap_or(usize::MAX >> 3))),
            bytes: Arc::new(Semaphore::new(MOST_BYTES)),
            mail,
            host: RwLock::default(),
        };
        (Self(Arc::new(lane)), LocalReceiver(coming))
    }

    pub(crate) fn open(&self, host: LocalRelay) {
        *self.0.host.write().unwrap_or_else(PoisonError::into_inner) = Some(Arc::new(host));
    }

    /// From now on every event is an ordinary row, but for those of writers who have a place.
    pub(crate) fn close(&self) -> PendingWriters {
        PendingWriters(self.0.host.write().unwrap_or_else(PoisonError::into_inner).take())
    }

    /// Places for those of the events that may go hot, all or none. The lease counts from here, before
    /// the insert: the database can only count from later.
    pub(crate) fn reserve(&self, envelopes: &[Envelope]) -> Option<Reservation> {
        let host = self.0.host.read().unwrap_or_else(PoisonError::into_inner).clone()?;
        // A relay that was dropped has not closed its lane.
        if self.0.mail.is_closed() {
            return None;
        }
        let keyed = host.shards.is_some()
            && envelopes.iter().filter(|it| it.is_ordered()).count() <= MOST_KEYED;
        let (count, bytes) = needs(host.hot(keyed), envelopes);
        if count == 0 {
            return None;
        }
        let (Some(places), Some(bytes)) = (take(&self.0.places, count), take(&self.0.bytes, bytes))
        else {
            host.observers.on_event(&RelayEvent::LocalQueueFull { events: count });
            return None;
        };
        let deadline = Deadline::after(&*host.clock, host.lease);
        Some(Reservation { host, keyed, deadline, places, bytes })
    }

    /// A relay that has ended leaves the rows to whoever reads them.
    fn post(&self, mail: Message) {
        let _ = self.0.mail.send(mail);
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
        self.host.hot(self.keyed)
    }

    /// Permit for one event.
    fn room(&mut self, envelope: &Envelope) -> Permit {
        Permit { _place: self.places.split(1), _bytes: self.bytes.split(envelope.size()) }
    }
}

impl LocalReceiver {
    /// The next piece of mail, when there is one.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn next(&mut self) -> Option<Message> {
        self.0.recv().await
    }

    /// The next piece of mail, if there is one already.
    pub(crate) fn try_next(&mut self) -> Option<Message> {
        self.0.try_recv().ok()
    }
}

/// Writers who had a place in the lane when it was closed: each shares the host until it has committed.
#[derive(Debug, Default)]
pub(crate) struct PendingWriters(Option<Arc<LocalRelay>>);

impl PendingWriters {
    /// Whether they have mail to send, or have sent some that was not taken.
    pub(crate) fn are_awaited(&self, events: &LocalReceiver) -> bool {
        let is_writing = |host: &Arc<LocalRelay>| Arc::strong_count(host) > 1;
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
