//! What the memory store holds, and each operation on it as one step under the lock.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU16;

use crate::clock::Timestamp;
use crate::envelope::{Delivery, Envelope};
use crate::id::{Epoch, EventId, OwnerId, Seq, ShardId, Token};
use crate::store::{
    Holding, Lease, Origin, Pending, Purge, Read, ReadKey, Renewal, Settle, Settled, Settlement,
    Stats, Status, StoredEvent, Take,
};
use crate::tx::PayloadHash;
use crate::verdict::{ErrorText, Verdict};

pub(super) struct State {
    pub(super) events: BTreeMap<Seq, Event>,
    pub(super) ids: HashMap<EventId, Seq>,
    /// Keyed by consumer, source and event id.
    pub(super) inbox: HashMap<(String, String, String), PayloadHash>,
    owners: BTreeMap<OwnerId, Timestamp>,
    shards: Vec<Shard>,
    last_seq: i64,
}

#[derive(Clone)]
struct Shard {
    owner: Option<OwnerId>,
    epoch: Epoch,
}

#[derive(Clone)]
pub(super) struct Event {
    envelope: Envelope,
    key: Option<String>,
    shard: ShardId,
    status: Status,
    attempts: u32,
    token: Token,
    available_at: Timestamp,
    created_at: Timestamp,
    done_at: Option<Timestamp>,
    settled_by: Option<String>,
    last_error: Option<String>,
}

impl State {
    pub(super) fn new(shards: NonZeroU16) -> Self {
        let shard = Shard { owner: None, epoch: Epoch(0) };
        Self {
            events: BTreeMap::new(),
            ids: HashMap::new(),
            inbox: HashMap::new(),
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
        Event {
            shard: shard_of(hashed, self.shards.len()),
            key,
            status: Status::New,
            attempts: 0,
            token: Token(0),
            available_at: match envelope.delivery() {
                Delivery::AtOnce => now,
                Delivery::At(moment) => moment,
                Delivery::After(delay) => now.saturating_add(delay),
            },
            created_at: now,
            done_at: None,
            settled_by: None,
            last_error: None,
            envelope: envelope.clone().occurred_at(envelope.moment().unwrap_or(now)),
        }
    }

    pub(super) fn join(&mut self, lease: &Lease, now: Timestamp) {
        self.owners.insert(lease.owner.clone(), now.saturating_add(lease.length));
    }

    pub(super) fn renew(&mut self, lease: &Lease, now: Timestamp) -> Renewal {
        let Some(until) = self.owners.get_mut(&lease.owner) else { return Renewal::Lost };
        *until = now.saturating_add(lease.length);
        Renewal::Kept
    }

    pub(super) fn take(&mut self, take: &Take, now: Timestamp) -> Vec<Holding> {
        self.owners.retain(|_, until| *until > now);
        if !self.owners.contains_key(&take.owner) {
            return Vec::new();
        }
        let (owners, mut taken) = (&self.owners, Vec::new());
        for (at, shard) in (0..).zip(&mut self.shards) {
            let origin = match &shard.owner {
                None => Origin::Free,
                Some(owner) if *owner == take.owner && !take.held.contains(&ShardId(at)) => {
                    Origin::Free
                }
                Some(owner) if !owners.contains_key(owner) => Origin::Lapsed,
                Some(_) => continue,
            };
            if taken.len() >= usize::from(take.most) {
                break;
            }
            shard.owner = Some(take.owner.clone());
            shard.epoch = Epoch(shard.epoch.0 + 1);
            taken.push(Holding { shard: ShardId(at), epoch: shard.epoch, origin });
        }
        taken
    }

    pub(super) fn release(&mut self, owner: &OwnerId, holdings: &[Holding]) -> u64 {
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

    pub(super) fn read(&self, read: &Read, now: Timestamp) -> Vec<Pending> {
        let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        for want in &read.shards {
            let waiting = self.events.iter().filter(|(seq, event)| {
                event.is_pending() && event.shard == want.shard && **seq > want.floor
            });
            rows.extend(waiting.take(limit).map(|(seq, event)| Pending {
                behind: self.is_behind(event, want.floor),
                ..event.pending(*seq, now)
            }));
        }
        rows
    }

    pub(super) fn read_key(&self, read: &ReadKey, now: Timestamp) -> Vec<Pending> {
        let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
        let waiting = self.events.iter().filter(|(_, event)| {
            event.is_pending() && event.shard == read.shard && event.key.as_ref() == Some(&read.key)
        });
        waiting.take(limit).map(|(seq, event)| event.pending(*seq, now)).collect()
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
        let Some(event) = self.events.get_mut(&settlement.seq) else { return false };
        let open = matches!(event.status, Status::New | Status::Retry);
        if !open || event.token != settlement.token || event.shard != settlement.shard {
            return false;
        }
        if settlement.verdict == Verdict::Delete {
            self.ids.remove(event.envelope.event_id());
            self.events.remove(&settlement.seq);
        } else {
            event.decide(settlement, now);
        }
        true
    }

    pub(super) fn replay(&mut self, ids: &[EventId], now: Timestamp) -> u64 {
        let mut replayed = 0;
        for id in ids {
            let Some(event) = self.ids.get(id).and_then(|seq| self.events.get_mut(seq)) else {
                continue;
            };
            if matches!(event.status, Status::Dead | Status::Held) {
                event.renew(now);
                replayed += 1;
            }
        }
        replayed
    }

    pub(super) fn purge(&mut self, purge: &Purge, now: Timestamp) -> u64 {
        let old = |event: &Event| {
            event.status == purge.status
                && event.done_at.is_some_and(|at| at.saturating_add(purge.older_than) < now)
        };
        let limit = usize::try_from(purge.limit).unwrap_or(usize::MAX);
        let gone: Vec<Seq> = self
            .events
            .iter()
            .filter(|(_, event)| old(event))
            .map(|(seq, _)| *seq)
            .take(limit)
            .collect();
        for seq in &gone {
            if let Some(event) = self.events.remove(seq) {
                self.ids.remove(event.envelope.event_id());
            }
        }
        gone.len() as u64
    }

    pub(super) fn stats(&self, now: Timestamp) -> Stats {
        let count =
            |status| self.events.values().filter(|event| event.status == status).count() as u64;
        let due = self.events.values().filter(|event| {
            matches!(event.status, Status::New | Status::Retry) && event.available_at <= now
        });
        let living = |owner: &OwnerId| self.owners.get(owner).is_some_and(|until| *until > now);
        let owned = |shard: &&Shard| shard.owner.as_ref().is_some_and(living);
        Stats {
            new: count(Status::New),
            retry: count(Status::Retry),
            held: count(Status::Held),
            dead: count(Status::Dead),
            oldest_lag: due.map(|event| now.since(event.available_at)).max(),
            owners: self.owners.values().filter(|until| **until > now).count() as u64,
            owned_shards: self.shards.iter().filter(owned).count() as u64,
        }
    }

    pub(super) fn event(&self, id: &EventId) -> Option<StoredEvent> {
        let seq = *self.ids.get(id)?;
        let event = self.events.get(&seq)?;
        Some(StoredEvent {
            seq,
            shard: event.shard,
            key: event.key.clone(),
            token: event.token,
            status: event.status,
            attempts: event.attempts,
            available_at: event.available_at,
            created_at: event.created_at,
            done_at: event.done_at,
            settled_by: event.settled_by.clone(),
            last_error: event.last_error.clone(),
            event: Ok(event.envelope.clone()),
        })
    }

    fn is_held(&self, owner: &OwnerId, shard: ShardId, epoch: Epoch) -> bool {
        let row = usize::try_from(shard.0).ok().and_then(|at| self.shards.get(at));
        row.is_some_and(|row| row.owner.as_ref() == Some(owner) && row.epoch == epoch)
    }

    fn shard_mut(&mut self, shard: ShardId) -> Option<&mut Shard> {
        usize::try_from(shard.0).ok().and_then(|at| self.shards.get_mut(at))
    }

    fn is_behind(&self, event: &Event, floor: Seq) -> bool {
        event.key.is_some()
            && self
                .events
                .range(..=floor)
                .any(|(_, older)| older.is_pending() && older.key == event.key)
    }
}

impl Event {
    fn is_pending(&self) -> bool {
        matches!(self.status, Status::New | Status::Retry | Status::Held)
    }

    fn pending(&self, seq: Seq, now: Timestamp) -> Pending {
        Pending {
            seq,
            shard: self.shard,
            key: self.key.clone(),
            token: self.token,
            status: self.status,
            attempts: self.attempts,
            due_in: self.available_at.since(now),
            behind: false,
            event: Ok(self.envelope.clone()),
        }
    }

    fn decide(&mut self, settlement: &Settlement, now: Timestamp) {
        self.token = Token(self.token.0 % i32::MAX + 1);
        self.settled_by.clone_from(&settlement.settled_by);
        match &settlement.verdict {
            Verdict::Done | Verdict::Delete => self.finish(Status::Done, now),
            Verdict::Retry { delay, error } => {
                self.attempts = self.attempts.saturating_add(1);
                self.wait(now.saturating_add(*delay), error);
            }
            Verdict::Defer { delay, error } => self.wait(now.saturating_add(*delay), error),
            Verdict::Dead { error } => self.give_up(Status::Dead, now, error),
            Verdict::Held { error } => self.give_up(Status::Held, now, error),
        }
    }

    fn wait(&mut self, until: Timestamp, error: &ErrorText) {
        self.status = Status::Retry;
        self.available_at = until;
        self.last_error = Some(error.as_str().to_owned());
    }

    fn give_up(&mut self, status: Status, now: Timestamp, error: &ErrorText) {
        self.attempts = self.attempts.saturating_add(1);
        self.last_error = Some(error.as_str().to_owned());
        self.finish(status, now);
    }

    fn finish(&mut self, status: Status, now: Timestamp) {
        self.status = status;
        self.done_at = Some(now);
    }

    fn renew(&mut self, now: Timestamp) {
        self.status = Status::New;
        self.attempts = 0;
        self.token = Token(self.token.0 % i32::MAX + 1);
        self.available_at = now;
        self.done_at = None;
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
