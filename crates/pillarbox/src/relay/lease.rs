//! The lease: staying alive, taking shards, and knowing when both are over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tracing::{error, info, warn};

use super::handle::AbortOnDrop;
use crate::clock::{Clock, Deadline};
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{Join, Layout, Lease, Mode, Origin, Renewal, Store, Take};

/// What this relay holds, shared between the task that renews it and the one that relies on it.
#[derive(Debug)]
pub(super) struct Tenure {
    pub(super) owner: OwnerId,
    state: Mutex<Held>,
    changed: Notify,
}

#[derive(Debug, Default)]
struct Held {
    deadline: Option<Deadline>,
    shards: BTreeMap<ShardId, Epoch>,
}

impl Tenure {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self {
            owner: OwnerId::generate(),
            state: Mutex::default(),
            changed: Notify::new(),
        })
    }

    /// Whether the lease still runs for longer than `margin`.
    pub(super) fn is_live(&self, clock: &dyn Clock, margin: Duration) -> bool {
        self.held().deadline.is_some_and(|deadline| !deadline.has_passed(clock, margin))
    }

    /// Whether a delivery may start now; asked right before the listener is called.
    pub(super) fn may_start(&self, clock: &dyn Clock, shard: ShardId, margin: Duration) -> bool {
        self.is_live(clock, margin) && self.held().shards.contains_key(&shard)
    }

    pub(super) fn shards(&self) -> BTreeMap<ShardId, Epoch> {
        self.held().shards.clone()
    }

    /// A settle was refused: the shard is another's, unless it was taken again since.
    pub(super) fn drop_shard(&self, shard: ShardId, refused: Epoch) {
        let mut held = self.held();
        if held.shards.get(&shard) == Some(&refused) {
            held.shards.remove(&shard);
        }
    }

    /// Waits until other shards are held than before.
    ///
    /// # Cancel safety
    /// A dropped wait loses no change.
    pub(super) async fn changed(&self) {
        self.changed.notified().await;
    }

    fn held(&self) -> MutexGuard<'_, Held> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Renews the lease and takes shards, for as long as it runs.
#[derive(Debug)]
pub(super) struct Heartbeat {
    pub(super) store: Arc<dyn Store>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) tenure: Arc<Tenure>,
    pub(super) layout: Layout,
    pub(super) length: Duration,
    pub(super) poll: Duration,
}

impl Heartbeat {
    /// Enters this owner.
    pub(super) async fn join(&self) -> Result<()> {
        let deadline = Deadline::after(&*self.clock, self.length);
        self.store.join(&Join { lease: self.lease(), mode: Mode::default() }).await?;
        self.tenure.held().deadline = Some(deadline);
        Ok(())
    }

    /// Beats until it is dropped; a beat that panics is not the last one.
    pub(super) async fn run(self) {
        let heartbeat = Arc::new(self);
        loop {
            let beats = Arc::clone(&heartbeat);
            let mut beating = AbortOnDrop(tokio::spawn(async move { beats.keep_beating().await }));
            if let Err(panic) = (&mut beating.0).await {
                error!(error = %panic, "the heartbeat ended, starting it again");
            }
            tokio::time::sleep(heartbeat.length / 10).await;
        }
    }

    async fn keep_beating(&self) {
        loop {
            let pause = match tokio::time::timeout(self.length / 3, self.beat()).await {
                Ok(Ok(())) => self.pause(),
                Ok(Err(error)) => {
                    warn!(error = %error, cause = error.source_text(), "lease not renewed");
                    self.length / 10
                }
                Err(_) => {
                    warn!("lease not renewed, the database does not answer");
                    self.length / 10
                }
            };
            tokio::time::sleep(pause).await;
        }
    }

    /// Renews, then takes what is free.
    pub(super) async fn beat(&self) -> Result<()> {
        // Counted from before the request: the database can only count from later.
        let deadline = Deadline::after(&*self.clock, self.length);
        match self.store.renew(&self.lease()).await? {
            Renewal::Kept => self.tenure.held().deadline = Some(deadline),
            Renewal::Lost => return self.start_over().await,
        }
        self.take().await
    }

    async fn start_over(&self) -> Result<()> {
        warn!(owner = %self.tenure.owner, "lease lost, another relay may have taken over");
        *self.tenure.held() = Held::default();
        self.tenure.changed.notify_one();
        self.join().await?;
        self.take().await
    }

    async fn take(&self) -> Result<()> {
        let held = self.tenure.held().shards.len();
        let most = usize::from(self.layout.shards.get()).saturating_sub(held);
        let Ok(most @ 1..) = u16::try_from(most) else { return Ok(()) };
        let held = self.tenure.held().shards.keys().copied().collect();
        let take = Take { owner: self.tenure.owner.clone(), most, held };
        let taken = self.store.take(&take).await?;
        if taken.is_empty() {
            return Ok(());
        }
        let lapsed = taken.iter().filter(|holding| holding.origin == Origin::Lapsed).count();
        info!(owner = %self.tenure.owner, shards = taken.len(), lapsed, "shards taken");
        let taken = taken.iter().map(|holding| (holding.shard, holding.epoch));
        self.tenure.held().shards.extend(taken);
        self.tenure.changed.notify_one();
        Ok(())
    }

    /// A third of the lease; shorter while shards are missing, so that a lapse is noticed soon.
    fn pause(&self) -> Duration {
        let missing = self.tenure.held().shards.len() < usize::from(self.layout.shards.get());
        if missing { self.poll.min(self.length / 3) } else { self.length / 3 }
    }

    fn lease(&self) -> Lease {
        Lease {
            owner: self.tenure.owner.clone(),
            length: self.length,
            wants: self.layout.shards.get(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::num::NonZeroU16;

    use super::*;
    use crate::clock::{SystemClock, Timestamp};
    use crate::store::memory::MemoryStore;

    /// A database whose clock a test turns.
    #[derive(Clone, Debug)]
    struct Turned(Arc<Mutex<Timestamp>>);

    impl Clock for Turned {
        fn now(&self) -> Timestamp {
            *self.0.lock().unwrap()
        }
    }

    fn relay(store: &MemoryStore) -> Heartbeat {
        Heartbeat {
            store: Arc::new(store.clone()),
            clock: Arc::new(SystemClock),
            tenure: Tenure::new(),
            layout: Layout { shards: NonZeroU16::new(64).unwrap(), mode: Mode::default() },
            length: Duration::from_secs(15),
            poll: Duration::from_millis(500),
        }
    }

    #[tokio::test]
    async fn a_relay_that_was_overslept_gives_up_and_starts_over() {
        let clock = Turned(Arc::new(Mutex::new(SystemClock.now())));
        let store = MemoryStore::with_clock(clock.clone());
        let (sleeper, heir) = (relay(&store), relay(&store));
        sleeper.join().await.unwrap();
        sleeper.beat().await.unwrap();
        assert_eq!(sleeper.tenure.shards().len(), 64);

        let later = clock.now().saturating_add(Duration::from_secs(16));
        *clock.0.lock().unwrap() = later;
        heir.join().await.unwrap();
        heir.beat().await.unwrap();
        sleeper.beat().await.unwrap();

        assert_eq!(heir.tenure.shards().len(), 64);
        assert!(sleeper.tenure.shards().is_empty(), "what it held is another's now");
        store.leave(&heir.tenure.owner).await.unwrap();
        sleeper.beat().await.unwrap();
        let epochs: Vec<_> = sleeper.tenure.shards().into_values().collect();
        assert_eq!(epochs, vec![Epoch(3); 64], "each change of hands has an epoch of its own");
    }

    #[tokio::test]
    async fn a_shard_taken_again_is_not_dropped_by_an_old_refusal() {
        let tenure = Tenure::new();
        tenure.held().shards.insert(ShardId(1), Epoch(7));

        tenure.drop_shard(ShardId(1), Epoch(6));
        assert_eq!(tenure.shards().len(), 1);
        tenure.drop_shard(ShardId(1), Epoch(7));
        assert!(tenure.shards().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn nothing_starts_once_the_lease_may_have_run_out() {
        let store = MemoryStore::new();
        let heartbeat = relay(&store);
        let may_start = || heartbeat.tenure.may_start(&SystemClock, ShardId(0), SECOND);
        assert!(!may_start(), "there is no lease yet");
        heartbeat.join().await.unwrap();
        heartbeat.beat().await.unwrap();
        assert!(may_start());

        tokio::time::advance(Duration::from_millis(14_500)).await;

        assert!(!may_start(), "less than the margin is left");
    }

    const SECOND: Duration = Duration::from_secs(1);
}
