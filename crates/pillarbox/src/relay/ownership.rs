//! The lease: what this relay holds, what it gives back, and when both are over.

pub(crate) mod balance;
mod heartbeat;
#[cfg(test)]
mod tests;

use std::{
    collections::{BTreeMap, BTreeSet},
    sync::{Arc, PoisonError},
    time::Duration,
};

use tokio::{sync::Notify, time::Instant};

use crate::clock::{Clock, Deadline, instant};
use crate::id::{Epoch, OwnerId, ShardId};
use crate::local_queue::OwnedShards;
pub(crate) use crate::relay::ownership::heartbeat::Heartbeat;
use crate::store::{OwnedShard, ShardOrigin};
use crate::sync::{Mutex, MutexGuard};

/// What this relay holds, shared between the task that renews it and the one that relies on it.
#[derive(Debug)]
pub(crate) struct Ownership {
    pub(crate) owner: OwnerId,
    state: Mutex<Held>,
    changed: Notify,
    /// There is something to give back.
    given: Notify,
}

#[derive(Debug, Default)]
struct Held {
    deadline: Option<Deadline>,
    /// When to renew; `None` = now.
    renew_at: Option<Instant>,
    shards: BTreeMap<ShardId, Epoch>,
    /// Shards whose owner died, until they are asked for.
    lapsed: Vec<ShardId>,
    /// How many shards are to be drained, and have not been chosen yet.
    to_drain: usize,
    /// Nothing new of these is started.
    draining: BTreeSet<ShardId>,
    /// Nothing of these is under way any more. Held until the database says that they are not.
    drained: Vec<OwnedShard>,
    /// It takes no more shards, and keeps those it has.
    is_stopping: bool,
    /// It gives its shards back.
    is_leaving: bool,
    /// Shards were asked for and no answer came: what the database calls ours may be a dead owner's.
    is_unsure: bool,
}

impl Ownership {
    pub(crate) fn new() -> Arc<Self> {
        Arc::new(Self {
            owner: OwnerId::generate(),
            state: Mutex::default(),
            changed: Notify::new(),
            given: Notify::new(),
        })
    }

    /// Whether the lease still runs for longer than `margin`.
    pub(crate) fn is_live(&self, clock: &dyn Clock, margin: Duration) -> bool {
        self.held().is_live(clock, margin)
    }

    /// The epoch that the shard is held at, by a lease that still runs for longer than `margin`.
    pub(crate) fn holds(
        &self,
        clock: &dyn Clock,
        shard: ShardId,
        margin: Duration,
    ) -> Option<Epoch> {
        let held = self.held();
        held.shards.get(&shard).copied().filter(|_| held.is_live(clock, margin))
    }

    pub(crate) fn shards(&self) -> BTreeMap<ShardId, Epoch> {
        self.held().shards.clone()
    }

    /// The shards that were taken over from an owner that died, since this was last asked.
    pub(crate) fn take_lapsed(&self) -> Vec<ShardId> {
        std::mem::take(&mut self.held().lapsed)
    }

    /// A settle was refused: the shard is another's, unless it was taken again since.
    pub(crate) fn drop_shard(&self, shard: ShardId, refused: Epoch) {
        let mut held = self.held();
        if held.shards.get(&shard) == Some(&refused) {
            held.shards.remove(&shard);
            held.draining.remove(&shard);
        }
    }

    /// Lets `choose` say which shards are drained, where some are to be.
    pub(crate) fn drain(&self, choose: impl FnOnce(usize) -> Vec<ShardId>) {
        let mut held = self.held();
        let count = std::mem::take(&mut held.to_drain);
        if count > 0 {
            held.draining.extend(choose(count));
        }
    }

    /// Nothing of these shards is under way any more: the heartbeat gives them back.
    pub(crate) fn drained(&self, shards: &[ShardId]) {
        let mut held = self.held();
        for shard in shards {
            held.draining.remove(shard);
            if let Some(epoch) = held.shards.remove(shard) {
                held.drained.push(OwnedShard { shard: *shard, epoch, origin: ShardOrigin::Free });
            }
        }
        self.given.notify_one();
    }

    /// From now on this relay takes no more shards.
    pub(crate) fn stop_taking(&self) {
        self.held().is_stopping = true;
    }

    /// From now on this relay gives back the shards it has.
    pub(crate) fn leave(&self) {
        let mut held = self.held();
        (held.is_stopping, held.is_leaving) = (true, true);
        (held.to_drain, held.renew_at) = (usize::MAX, None);
        self.given.notify_one();
    }

    /// Waits until other shards are held than before, or for longer, or some are to be drained.
    ///
    /// # Cancel safety
    /// A dropped wait loses no change.
    pub(crate) async fn changed(&self) {
        self.changed.notified().await;
    }

    /// Says of how many of them the owner died.
    fn took(&self, taken: &[OwnedShard]) -> usize {
        let lapsed = taken.iter().filter(|holding| holding.origin == ShardOrigin::Lapsed);
        let lapsed: Vec<ShardId> = lapsed.map(|holding| holding.shard).collect();
        let count = lapsed.len();
        let mut held = self.held();
        held.shards.extend(taken.iter().map(|holding| (holding.shard, holding.epoch)));
        held.lapsed.extend(lapsed);
        self.changed.notify_one();
        count
    }

    fn shed(&self, count: usize) {
        let mut held = self.held();
        held.to_drain = held.to_drain.saturating_add(count);
        self.changed.notify_one();
    }

    fn renewed(&self, deadline: Deadline, pause: Duration) {
        let mut held = self.held();
        (held.deadline, held.renew_at) = (Some(deadline), Some(instant() + pause));
        // It may have run out before, and what may not start without it waits for nothing else.
        self.changed.notify_one();
    }

    fn is_renewal_due(&self) -> bool {
        self.held().renew_at.is_none_or(|when| when <= instant())
    }

    fn lose_everything(&self) {
        let mut held = self.held();
        let Held { is_stopping, is_leaving, is_unsure, .. } = *held;
        *held = Held { is_stopping, is_leaving, is_unsure, ..Held::default() };
        self.changed.notify_one();
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl OwnedShards for Ownership {
    fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        let held = self.held();
        let stays = !held.is_leaving && !held.draining.contains(&shard);
        held.shards.get(&shard).copied().filter(|_| stays)
    }
}

impl Held {
    fn is_live(&self, clock: &dyn Clock, margin: Duration) -> bool {
        self.deadline.is_some_and(|deadline| !deadline.has_passed(clock, margin))
    }

    /// How many shards it means to keep.
    fn kept(&self) -> u16 {
        let going = self.draining.len().saturating_add(self.to_drain);
        u16::try_from(self.shards.len().saturating_sub(going)).unwrap_or(u16::MAX)
    }

    /// Every shard that the database knows as its own.
    fn owned(&self) -> Vec<ShardId> {
        let drained = self.drained.iter().map(|holding| holding.shard);
        self.shards.keys().copied().chain(drained).collect()
    }
}
