//! The heartbeat: renews the lease, takes shards, and gives back what was drained.

use std::{
    borrow::Cow,
    mem,
    sync::{Arc, Mutex, PoisonError},
    time::Duration,
};

use crate::clock::{Clock, Deadline, instant};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::OwnerId;
use crate::relay::handle::AbortOnDrop;
use crate::relay::ownership::Ownership;
use crate::relay::ownership::balance::{Balance, Move, View};
use crate::scheduler::guarded;
use crate::store::{AcquireShards, Join, Lease, Member, OutboxConfig, Renewal, ShardOrigin, Store};
use crate::telemetry::{Component, Observers, RelayEvent};

/// Renews the lease and takes shards, for as long as it runs.
#[derive(Debug)]
pub(crate) struct Heartbeat {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) clock: Arc<dyn Clock>,
    pub(crate) ownership: Arc<Ownership>,
    pub(crate) config: OutboxConfig,
    pub(crate) length: Duration,
    pub(crate) poll: Duration,
    pub(crate) balance: Mutex<Balance>,
    pub(crate) observers: Observers,
}

impl Heartbeat {
    /// Enters this owner, as a newcomer.
    pub(crate) async fn join(&self) -> Result<()> {
        self.with_balance(|balance| *balance = Balance::new(self.length / 3, instant()));
        let deadline = Deadline::after(&*self.clock, self.length);
        crash_point!("join.before"?);
        self.store.join(&Join { lease: self.lease(), mode: self.config.mode }).await?;
        crash_point!("join.after"?);
        self.ownership.renewed(deadline, self.length / 3);
        Ok(())
    }

    /// Takes shards before anything else happens, so that the first commits are delivered from
    /// memory. If the database does not answer, or the store panics, the next beat tries again.
    pub(crate) async fn take_first(&self) {
        let beat = guarded("the store", self.beat());
        let first = tokio::time::timeout(self.length / 3, beat).await;
        if let Ok(Err(error)) = first {
            self.observers.on_event(&RelayEvent::failed(Component::Lease, &error));
        }
    }

    /// Beats until it is dropped; a beat that panics is not the last one.
    pub(crate) async fn run(self) {
        let heartbeat = Arc::new(self);
        loop {
            let beats = Arc::clone(&heartbeat);
            let mut beating = AbortOnDrop(tokio::spawn(async move { beats.keep_beating().await }));
            if let Err(panic) = (&mut beating.0).await {
                let text = format!("the heartbeat ended, starting it again: {panic}");
                heartbeat.observers.on_event(&RelayEvent::failed_with(Component::Lease, text));
            }
            tokio::time::sleep(heartbeat.length / 10).await;
        }
    }

    async fn keep_beating(&self) {
        loop {
            match tokio::time::timeout(self.length / 3, self.beat()).await {
                Ok(Ok(())) => {
                    // What was drained does not wait for the next beat.
                    let given = self.ownership.given.notified();
                    let _ = tokio::time::timeout(self.pause(), given).await;
                    continue;
                }
                Ok(Err(error)) => {
                    self.observers.on_event(&RelayEvent::failed(Component::Lease, &error));
                }
                Err(_) => {
                    let text = "lease not renewed, the database does not answer";
                    self.observers.on_event(&RelayEvent::failed_with(Component::Lease, text));
                }
            }
            tokio::time::sleep(self.length / 10).await;
        }
    }

    /// Renews when it is time, gives back what was drained, then takes or sheds what is fair.
    pub(crate) async fn beat(&self) -> Result<()> {
        if self.ownership.is_renewal_due() {
            self.renew().await?;
        }
        self.give_back().await?;
        if self.ownership.held().is_stopping {
            return Ok(());
        }
        let mut members = self.store.members().await?;
        if !members.iter().any(|member| member.owner == self.ownership.owner) {
            // Removed, most likely: a renewal says so.
            self.renew().await?;
            members = self.store.members().await?;
        }
        match self.next_move(&members) {
            Move::Take(most) => self.take(most).await,
            Move::Shed(count) => {
                self.shed(count);
                Ok(())
            }
            Move::Stay => Ok(()),
        }
    }

    async fn renew(&self) -> Result<()> {
        // Counted from before the request: the database can only count from later.
        let deadline = Deadline::after(&*self.clock, self.length);
        crash_point!("renew.before"?);
        let renewal = self.store.renew(&self.lease()).await?;
        crash_point!("renew.after"?);
        match renewal {
            Renewal::Kept => {
                self.ownership.renewed(deadline, self.length / 3);
                self.observers.on_event(&RelayEvent::LeaseRenewed { owner: self.owner() });
            }
            Renewal::Lost => {
                self.ownership.lose_everything();
                self.observers.on_event(&RelayEvent::LeaseLost { owner: self.owner() });
                // One that leaves may have left meanwhile, and would be back for a whole lease.
                if !self.ownership.held().is_stopping {
                    self.join().await?;
                }
            }
        }
        Ok(())
    }

    /// The epochs fence it: said twice, or too late, it changes nothing.
    async fn give_back(&self) -> Result<()> {
        let drained = self.ownership.held().drained.clone();
        if drained.is_empty() {
            return Ok(());
        }
        crash_point!("release.before"?);
        self.store.release(&self.ownership.owner, &drained).await?;
        crash_point!("release.after"?);
        self.ownership.held().drained.retain(|holding| !drained.contains(holding));
        let (owner, shards) = (self.owner(), drained.len());
        self.observers.on_event(&RelayEvent::ShardsReleased { owner, shards });
        Ok(())
    }

    fn next_move(&self, members: &[Member]) -> Move {
        let (owner, shards) = (&self.ownership.owner, self.config.shards.get());
        let kept = self.ownership.held().kept();
        let owned = self.ownership.held().owned().len();
        let own = members.iter().find(|member| member.owner == *owner);
        let unknown = own.map_or(0, |member| usize::from(member.owned).saturating_sub(owned));
        if let Some(unknown) = u16::try_from(unknown).ok().filter(|unknown| *unknown > 0) {
            // The answer to a take was lost, and everybody else believes that they are served.
            return Move::Take(unknown);
        }
        self.with_balance(|balance| balance.next(View { owner, members, shards, kept }, instant()))
    }

    async fn take(&self, most: u16) -> Result<()> {
        let owned = self.ownership.held().owned();
        let take = AcquireShards { owner: self.ownership.owner.clone(), most, owned };
        let was_unsure = mem::replace(&mut self.ownership.held().is_unsure, true);
        crash_point!("take.before"?);
        let mut taken = self.store.acquire_shards(&take).await?;
        crash_point!("take.after"?);
        // With as many as were asked for, there may be more of those that the lost answer was about.
        self.ownership.held().is_unsure = was_unsure && taken.len() >= usize::from(most);
        if taken.is_empty() {
            return Ok(());
        }
        if was_unsure {
            // Taken already, perhaps, by the call whose answer was lost, and from whom it did not say.
            taken.iter_mut().for_each(|holding| holding.origin = ShardOrigin::Lapsed);
        }
        let (shards, lapsed) = (taken.len(), self.ownership.took(&taken));
        self.observers.on_event(&RelayEvent::ShardsTaken { owner: self.owner(), shards, lapsed });
        Ok(())
    }

    fn owner(&self) -> Cow<'_, OwnerId> {
        Cow::Borrowed(&self.ownership.owner)
    }

    fn shed(&self, count: u16) {
        self.ownership.shed(usize::from(count));
    }

    /// A third of the lease for one that has everything; shorter beside others, so that what one
    /// of them leaves behind is noticed soon.
    fn pause(&self) -> Duration {
        let has_all = self.ownership.held().kept() == self.config.shards.get();
        if has_all { self.length / 3 } else { self.poll.min(self.length / 3) }
    }

    fn lease(&self) -> Lease {
        let is_stopping = self.ownership.held().is_stopping;
        let shards = self.config.shards.get();
        let wants = self.with_balance(|balance| balance.wants(shards, instant()));
        Lease {
            owner: self.ownership.owner.clone(),
            length: self.length,
            wants: if is_stopping { 0 } else { wants },
        }
    }

    fn with_balance<T>(&self, work: impl FnOnce(&mut Balance) -> T) -> T {
        work(&mut self.balance.lock().unwrap_or_else(PoisonError::into_inner))
    }
}
