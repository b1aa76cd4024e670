//! Leases of relays, and the shards that they own.

use std::time::Duration;

use async_trait::async_trait;

use super::MemoryStore;
use super::state::{Shard, State};
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Ownership, Renewal, ShardOrigin,
};

#[async_trait]
impl Ownership for MemoryStore {
    async fn join(&self, join: &Join) -> Result<()> {
        self.state().join(join, self.clock.now())
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        Ok(self.state().renew(lease, self.clock.now()))
    }

    async fn members(&self) -> Result<Vec<Member>> {
        Ok(self.state().members(self.clock.now()))
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        Ok(self.state().acquire_shards(acquire, self.clock.now()))
    }

    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64> {
        Ok(self.state().release(owner, shards))
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        self.state().leave(owner);
        Ok(())
    }
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

impl State {
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
            Member { owner: owner.clone(), wants: entry.wants, owned: held }
        };
        let mut members: Vec<Member> = self.owners.iter().filter(wanting).map(member).collect();
        members.sort_by(|a, b| b.owned.cmp(&a.owned).then_with(|| a.owner.cmp(&b.owner)));
        members.truncate(usize::from(MAX_MEMBERS));
        members
    }

    pub(super) fn acquire_shards(
        &mut self,
        acquire: &AcquireShards,
        now: Timestamp,
    ) -> Vec<OwnedShard> {
        self.remove_lapsed(now);
        if !self.owners.contains_key(&acquire.owner) {
            return Vec::new();
        }
        let (owners, mut taken) = (&self.owners, Vec::new());
        for (at, shard) in (0..).zip(&mut self.shards) {
            let origin = match &shard.owner {
                None => ShardOrigin::Free,
                Some(owner) if *owner == acquire.owner && !acquire.owned.contains(&ShardId(at)) => {
                    ShardOrigin::Free
                }
                Some(owner) if !owners.contains_key(owner) => ShardOrigin::Lapsed,
                Some(_) => continue,
            };
            if taken.len() >= usize::from(acquire.most) {
                break;
            }
            shard.owner = Some(acquire.owner.clone());
            shard.epoch = Epoch(shard.epoch.0 + 1);
            taken.push(OwnedShard { shard: ShardId(at), epoch: shard.epoch, origin });
        }
        taken
    }

    pub(super) fn remove_lapsed(&mut self, now: Timestamp) {
        let owners = &self.owners;
        let is_ahead = |owner: &OwnerId| owners.get(owner).is_some_and(|entry| entry.is_ahead(now));
        for event in self.events.values_mut() {
            if let Some((_, until)) = event.lease.as_mut().filter(|(owner, _)| is_ahead(owner)) {
                *until = Timestamp::from_unix_micros(0);
            }
        }
        self.owners.retain(|_, entry| entry.is_alive(now));
    }

    pub(super) fn release(&mut self, owner: &OwnerId, shards: &[OwnedShard]) -> u64 {
        let mut released = 0;
        for owned in shards {
            if !self.is_owned(owner, owned.shard, owned.epoch) {
                continue;
            }
            if let Some(shard) = self.shard_mut(owned.shard) {
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

    pub(super) fn living_owners(&self, now: Timestamp) -> u64 {
        self.owners.values().filter(|entry| entry.is_alive(now)).count() as u64
    }

    pub(super) fn is_owned(&self, owner: &OwnerId, shard: ShardId, epoch: Epoch) -> bool {
        let row = usize::try_from(shard.0).ok().and_then(|at| self.shards.get(at));
        row.is_some_and(|row| row.owner.as_ref() == Some(owner) && row.epoch == epoch)
    }

    fn shard_mut(&mut self, shard: ShardId) -> Option<&mut Shard> {
        usize::try_from(shard.0).ok().and_then(|at| self.shards.get_mut(at))
    }
}
