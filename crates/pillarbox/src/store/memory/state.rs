//! What the memory store holds. Each operation on it is one step under the lock.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU16;

use super::event::Event;
use super::ownership::Entry;
use crate::clock::Timestamp;
use crate::envelope::Envelope;
use crate::id::{Epoch, EventId, OwnerId, Seq, ShardId};
use crate::store::{AuditEntry, DeliveryMode};
use crate::tx::PayloadHash;

pub(super) struct State {
    pub(super) events: BTreeMap<Seq, Event>,
    pub(super) ids: HashMap<EventId, Seq>,
    /// Keyed by consumer, source and event id.
    pub(super) inbox: HashMap<(String, String, String), Noted>,
    pub(super) audit: Vec<(EventId, AuditEntry)>,
    pub(super) mode: DeliveryMode,
    pub(super) owners: BTreeMap<OwnerId, Entry>,
    pub(super) shards: Vec<Shard>,
    last_seq: i64,
}

#[derive(Clone)]
pub(super) struct Shard {
    pub(super) owner: Option<OwnerId>,
    pub(super) epoch: Epoch,
}

/// An event that an inbox has taken in.
#[derive(Clone, Copy)]
pub(super) struct Noted {
    pub(super) hash: PayloadHash,
    pub(super) at: Timestamp,
}

impl State {
    pub(super) fn new(shards: NonZeroU16) -> Self {
        let shard = Shard { owner: None, epoch: Epoch(0) };
        Self {
            events: BTreeMap::new(),
            ids: HashMap::new(),
            inbox: HashMap::new(),
            audit: Vec::new(),
            mode: DeliveryMode::default(),
            owners: BTreeMap::new(),
            shards: vec![shard; usize::from(shards.get())],
            last_seq: 0,
        }
    }

    /// The next place in the table; used up even when its transaction rolls back.
    pub(super) fn next_seq(&mut self) -> Seq {
        self.last_seq += 1;
        Seq(self.last_seq)
    }

    pub(super) fn seal(&self, envelope: &Envelope, now: Timestamp) -> Event {
        let key = envelope.ordering_key();
        let hashed = key.as_deref().unwrap_or(envelope.event_id().as_str());
        let shard = shard_of(hashed, self.shards.len());
        Event::new(envelope, key.map(Into::into), shard, now)
    }

    /// Whether an event of the key is pending or held.
    pub(super) fn is_pending(&self, key: &str) -> bool {
        let mut events = self.events.values();
        events.any(|event| event.is_pending() && event.key.as_deref() == Some(key))
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        if let Some(event) = self.events.remove(&seq) {
            self.ids.remove(event.envelope.event_id());
        }
    }
}

/// FNV-1a: spreads keys evenly and is the same in every process.
fn shard_of(text: &str, shards: usize) -> ShardId {
    let hash = text.bytes().fold(0xcbf2_9ce4_8422_2325_u64, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    });
    let shard = hash % u64::try_from(shards).unwrap_or(1);
    ShardId(i16::try_from(shard).unwrap_or(0))
}
