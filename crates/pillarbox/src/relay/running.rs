//! A relay at work, from its entering as an owner to its leaving.

use std::{borrow::Cow, sync::Arc, time::Duration};

use super::Settings;
use super::dispatch::deliverer::Deliverer;
use super::dispatch::fair_share::FairShare;
use super::dispatch::pause::Pauses;
use super::handle::AbortOnDrop;
use super::maintenance::Depths;
use super::notify;
use super::ownership::{Heartbeat, Ownership};
use super::row_loop::RowLoop;
use super::shard_loop::ShardLoop;
use super::stop::{Ended, StopSummary};
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Epoch;
use crate::local_queue::{LocalQueue, LocalReceiver};
use crate::retry::RetryRules;
use crate::scheduler::Scheduler;
use crate::store::{ClaimMode, DeliveryMode, OutboxConfig, Store};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::wake::Wake;

/// What a loop is made of.
#[derive(Debug)]
pub(super) struct Parts {
    pub(super) store: Arc<dyn Store>,
    pub(super) config: OutboxConfig,
    pub(super) settings: Settings,
    pub(super) ownership: Arc<Ownership>,
    pub(super) deliverer: Arc<Deliverer>,
    pub(super) workers: FairShare,
    pub(super) rules: RetryRules,
    pub(super) local: (LocalQueue, LocalReceiver),
    pub(super) wake: Wake,
    pub(super) observers: Observers,
    pub(super) depths: Arc<Depths>,
}

/// What delivers, by the way that rows are claimed.
#[derive(Debug)]
enum Loop {
    Shards(Box<ShardLoop>),
    Rows(Box<RowLoop>),
}

impl Loop {
    async fn run(self, stop: impl Future<Output = ()>) -> Ended {
        match self {
            Self::Shards(shards) => shards.run(stop).await,
            Self::Rows(rows) => rows.run(stop).await,
        }
    }
}

/// A relay that has entered as an owner.
#[derive(Debug)]
pub(super) struct RunningRelay {
    heartbeat: Heartbeat,
    maintenance: Scheduler,
    work: Loop,
    pauses: Arc<Pauses>,
    wake: Wake,
    /// How long to wait for the shards to be given back.
    leave_timeout: Duration,
}

impl RunningRelay {
    pub(super) fn new(heartbeat: Heartbeat, maintenance: Scheduler, parts: Parts) -> Self {
        let pauses = Arc::clone(&parts.deliverer.pauses);
        let leave_timeout = parts.settings.drain.max(super::SECOND);
        let wake = parts.wake.clone();
        let work = match parts.config.mode.claim {
            ClaimMode::Rows => Loop::Rows(Box::new(RowLoop::new(parts))),
            ClaimMode::Shards | ClaimMode::None => Loop::Shards(Box::new(ShardLoop::new(parts))),
        };
        Self { heartbeat, maintenance, work, pauses, wake, leave_timeout }
    }

    pub(super) fn pauses(&self) -> Arc<Pauses> {
        Arc::clone(&self.pauses)
    }

    pub(super) async fn run_until(self, shutdown: impl Future<Output = ()>) -> StopSummary {
        let (store, ownership) =
            (Arc::clone(&self.heartbeat.store), Arc::clone(&self.heartbeat.ownership));
        let (wake, observers) = (self.wake, self.heartbeat.observers.clone());
        let others = [
            AbortOnDrop(tokio::spawn(self.heartbeat.run())),
            AbortOnDrop(tokio::spawn(self.maintenance.run_until(std::future::pending()))),
            AbortOnDrop(tokio::spawn(notify::hear(Arc::clone(&store), wake.clone()))),
            AbortOnDrop(tokio::spawn(notify::look_again(wake.clone()))),
            AbortOnDrop(tokio::spawn(notify::ring(Arc::clone(&store), wake))),
        ];
        let ended = self.work.run(shutdown).await;
        let summary = ended.summary(&*store).await;
        drop(others);
        leave(&*store, &ownership, self.leave_timeout, &observers).await;
        notify::ring_last(&*store).await;
        observers.on_event(&RelayEvent::Stopped { owner: Cow::Borrowed(&ownership.owner) });
        summary
    }
}

async fn leave(store: &dyn Store, ownership: &Ownership, timeout: Duration, observers: &Observers) {
    let leaving = async {
        crash_point!("leave.before"?);
        let left = store.leave(&ownership.owner).await;
        crash_point!("leave.after"?);
        left
    };
    let left = tokio::time::timeout(timeout, leaving).await;
    let (owner, shards) = (Cow::Borrowed(&ownership.owner), ownership.shards().len());
    observers.on_event(&match left {
        Ok(Ok(())) => RelayEvent::ShardsReleased { owner, shards },
        Ok(Err(error)) => RelayEvent::failed(Component::Lease, &error),
        Err(_) => RelayEvent::failed_with(Component::Lease, "shards are free when the lease ends"),
    });
}

/// The tables as this relay means to work on them. The first relay ever sets their mode; entering as
/// an owner refuses tables of another mode.
pub(super) async fn agree(store: &dyn Store, settings: &Settings) -> Result<OutboxConfig> {
    let config = store.config().await?;
    let wanted = DeliveryMode { claim: settings.claim, order: settings.order };
    if [wanted, config.mode].iter().any(|mode| mode.claim == ClaimMode::None) {
        return Err(nobody_delivers());
    }
    let is_unset = config.mode == DeliveryMode::default() && wanted != config.mode;
    if is_unset && is_untouched(store).await? {
        match store.configure(&wanted).await {
            // Another relay came first; entering says whether it means the same.
            Err(error) if error.kind() == ErrorKind::Configuration => {}
            configured => configured?,
        }
    }
    Ok(OutboxConfig { mode: wanted, ..config })
}

/// Whether no relay has ever owned a shard here.
async fn is_untouched(store: &dyn Store) -> Result<bool> {
    let shards = store.breakdown().await?.shards;
    Ok(shards.iter().all(|shard| shard.epoch == Epoch(0)))
}

fn nobody_delivers() -> Error {
    Error::new(
        ErrorKind::Configuration,
        "with claim = none nobody delivers from the tables, and a relay does not start: write with \
         an `Outbox` alone, read the tables or the database's log with a program of your own, and \
         purge with `Maintenance`; to deliver with relays, set claim to shards or rows (here, and by \
         `store.configure`)",
    )
}
