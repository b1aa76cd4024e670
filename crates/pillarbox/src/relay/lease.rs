//! The lease: staying alive, taking shards, and knowing when both are over.

use std::{
    collections::BTreeMap,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::sync::Notify;
use tracing::{info, warn};

use crate::clock::{Clock, Deadline};
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};
use crate::store::{Layout, Lease, Origin, Renewal, Store, Take};

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
        self.store.join(&self.lease()).await?;
        self.tenure.held().deadline = Some(deadline);
        Ok(())
    }

    /// Beats until it is aborted.
    pub(super) async fn run(self) {
        loop {
            if let Err(error) = self.beat().await {
                warn!(error = %error, "lease not renewed, trying again");
            }
            tokio::time::sleep(self.pause()).await;
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
        let Ok(most @ 1..) = u16::try_from(most) else {
            return Ok(());
        };
        let take = Take { owner: self.tenure.owner.clone(), most };
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
