//! What the memory store holds, and each operation on it as one step under the lock.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU16;
use std::time::Duration;

use super::event::Event;
use crate::clock::Timestamp;
use crate::envelope::Envelope;
use crate::error::Result;
use crate::id::{Epoch, EventId, OwnerId, Seq, ShardId};
use crate::store::schema::refuse_living;
use crate::store::{
    AcquireShards, AuditEntry, DeliveryMode, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Renewal,
    Settle, Settled, Settlement, ShardOrigin,
};
use crate::tx::PayloadHash;
use crate::verdict::Verdict;

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

/// An owner's lease.
#[derive(Clone, Copy)]
pub(super) struct Entry {
    until: Timestamp,
    length: Duration,
    wants: u16,
}

impl Entry {
    fn of(lease: &Lease, now: Timestamp) -> Self {
        let Lease { length, wants, .. } = *lease;
        Self { until: now.saturating_add(length), length, wants }
    }

    pub(super) fn is_alive(&self, now: Timestamp) -> bool {
        self.until > now && !self.is_ahead(now)
    }

    /// Whether it was written by a clock that was ahead.
    fn is_ahead(&self, now: Timestamp) -> bool {
        self.until > now.saturating_add(self.length.saturating_mul(2))
    }
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

    pub(super) fn configure(&mut self, mode: DeliveryMode, now: Timestamp) -> Result<()> {
        // One that lapsed would renew, and live on in a mode that is not its own.
        self.remove_lapsed(now);
        refuse_living(self.owners.len() as u64)?;
        self.mode = mode;
        Ok(())
    }

    fn remove_lapsed(&mut self, now: Timestamp) {
        let owners = &self.owners;
        let is_ahead = |owner: &OwnerId| owners.get(owner).is_some_and(|entry| entry.is_ahead(now));
        for event in self.events.values_mut() {
            if let Some((_, until)) = event.lease.as_mut().filter(|(owner, _)| is_ahead(owner)) {
                *until = Timestamp::from_unix_micros(0);
            }
        }
        self.owners.retain(|_, entry| entry.is_alive(now));
    }

    pub(super) fn living_owners(&self, now: Timestamp) -> u64 {
        self.owners.values().filter(|entry| entry.is_alive(now)).count() as u64
    }

    pub(super) fn join(&mut self, join: &Join, now: Timestamp) -> Result<()> {
        self.mode.refuse_other(join.mode)?;
        self.owners.insert(join.lease.owner.clone(), Entry::of(&join.lease, now));
        Ok(())
    }

    pub(super) fn renew(&mut self, lease: &Lease, now: Timestamp) -> Renewal {
        let Some(entry) = self.owners.get_mut(&lease.owner) else { return Renewal::Lost };
        *entry = Entry::of(lease, now);
        Renewal::Kept
    }

    pub(super) fn members(&self, now: Timestamp) -> Vec<Member> {
        let wanting = |(_, entry): &(&OwnerId, &Entry)| entry.is_alive(now) && entry.wants > 0;
        let member = |(owner, entry): (&OwnerId, &Entry)| {
            let held = self.shards.iter().filter(|shard| shard.owner.as_ref() == Some(owner));
            let held = u16::try_from(held.count()).unwrap_or(u16::MAX);
            Member { owner: owner.clone(), wants: entry.wants, held }
        };
        let mut members: Vec<Member> = self.owners.iter().filter(wanting).map(member).collect();
        members.sort_by(|a, b| b.held.cmp(&a.held).then_with(|| a.owner.cmp(&b.owner)));
        members.truncate(usize::from(MAX_MEMBERS));
        members
    }

    pub(super) fn acquire_shards(
        &mut self,
        take: &AcquireShards,
        now: Timestamp,
    ) -> Vec<OwnedShard> {
        self.remove_lapsed(now);
        if !self.owners.contains_key(&take.owner) {
            return Vec::new();
        }
        let (owners, mut taken) = (&self.owners, Vec::new());
        for (at, shard) in (0..).zip(&mut self.shards) {
            let origin = match &shard.owner {
                None => ShardOrigin::Free,
                Some(owner) if *owner == take.owner && !take.held.contains(&ShardId(at)) => {
                    ShardOrigin::Free
                }
                Some(owner) if !owners.contains_key(owner) => ShardOrigin::Lapsed,
                Some(_) => continue,
            };
            if taken.len() >= usize::from(take.most) {
                break;
            }
            shard.owner = Some(take.owner.clone());
            shard.epoch = Epoch(shard.epoch.0 + 1);
            taken.push(OwnedShard { shard: ShardId(at), epoch: shard.epoch, origin });
        }
        taken
    }

    pub(super) fn release(&mut self, owner: &OwnerId, holdings: &[OwnedShard]) -> u64 {
        let mut released = 0;
        for holding in holdings {
            if !self.is_held(owner, holding.shard, holding.epoch) {
                continue;
            }
            if let Some(shard) = self.shard_mut(holding.shard) {
                shard.owner = None;
                released += 1;
            }
        }
        released
    }

    pub(super) fn leave(&mut self, owner: &OwnerId) {
        self.owners.remove(owner);
        let theirs = self.shards.iter_mut().filter(|shard| shard.owner.as_ref() == Some(owner));
        theirs.for_each(|shard| shard.owner = None);
    }

    pub(super) fn settle(&mut self, settle: &Settle, now: Timestamp) -> Settled {
        let mut fences: BTreeMap<ShardId, Epoch> = BTreeMap::new();
        for settlement in &settle.settlements {
            let newest = fences.entry(settlement.shard).or_insert(settlement.epoch);
            *newest = settlement.epoch.max(*newest);
        }
        fences.retain(|shard, epoch| !self.is_held(&settle.owner, *shard, *epoch));
        let mut settled = Settled { refused: fences.into_keys().collect(), ..Settled::default() };
        for settlement in &settle.settlements {
            let held = self.is_held(&settle.owner, settlement.shard, settlement.epoch);
            if held && self.apply(settlement, now) {
                settled.applied.push(settlement.seq);
            }
        }
        settled
    }

    fn apply(&mut self, settlement: &Settlement, now: Timestamp) -> bool {
        let fits = self.events.get(&settlement.seq).is_some_and(|event| {
            event.is_open() && event.token == settlement.token && event.shard == settlement.shard
        });
        if fits {
            self.decide(settlement.seq, &settlement.verdict, settlement.settled_by.as_deref(), now);
        }
        fits
    }

    /// Writes a verdict on a row whose fences have been passed, and the audit row of a failure.
    pub(super) fn decide(
        &mut self,
        seq: Seq,
        verdict: &Verdict,
        settled_by: Option<&str>,
        now: Timestamp,
    ) {
        if *verdict == Verdict::Delete {
            self.remove(seq);
            return;
        }
        let Some(event) = self.events.get_mut(&seq) else { return };
        event.decide(verdict, settled_by, now);
        let entry = event.failure(verdict, now);
        let id = event.envelope.event_id().clone();
        self.audit.extend(entry.map(|entry| (id, entry)));
    }

    pub(super) fn remove(&mut self, seq: Seq) {
        if let Some(event) = self.events.remove(&seq) {
            self.ids.remove(event.envelope.event_id());
        }
    }

    fn is_held(&self, owner: &OwnerId, shard: ShardId, epoch: Epoch) -> bool {
        let row = usize::try_from(shard.0).ok().and_then(|at| self.shards.get(at));
        row.is_some_and(|row| row.owner.as_ref() == Some(owner) && row.epoch == epoch)
    }

    fn shard_mut(&mut self, shard: ShardId) -> Option<&mut Shard> {
        usize::try_from(shard.0).ok().and_then(|at| self.shards.get_mut(at))
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
