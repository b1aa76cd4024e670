//! A relay at work, from its entering as an owner to its leaving.

use std::{borrow::Cow, sync::Arc, time::Duration};

use tokio::time::Instant;

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
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::{Epoch, ShardId};
use crate::local_queue::{LocalQueue, LocalReceiver};
use crate::retry::RetryRules;
use crate::scheduler::Scheduler;
use crate::store::{ClaimMode, DeliveryMode, OutboxConfig, Store};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::wake::Wake;

/// How long the count of what was left may take.
const COUNT: Duration = Duration::from_secs(1);

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

/// What a relay left behind when it stopped.
///
/// # Examples
/// ```
/// use pillarbox::{Listeners, MemoryStore, Relay, StopSummary};
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// let relay = Relay::new(MemoryStore::new(), Listeners::new()).spawn().await?;
/// let summary = relay.stop().await?;
///
/// assert_eq!(summary, StopSummary { abandoned: 0, left: Some(0) });
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSummary {
    /// Deliveries that had begun and were not finished and recorded within `drain`.
    ///
    /// Their events are delivered again.
    pub abandoned: u64,
    /// Due events that this relay could have delivered and did not, for lack of time.
    ///
    /// Counted up to 100,000; `None` if the database did not answer, or the relay had lost its lease,
    /// so that others have its shards. Events that are delayed, waiting for a retry, behind such an
    /// event of their key, or in another relay's shards are not among them.
    pub left: Option<u64>,
}

/// When the phases of a stop end.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopDeadlines {
    /// Deliveries may start until then.
    pub(super) start: Instant,
    /// Deliveries that have started may finish until then.
    pub(super) finish: Instant,
}

impl StopDeadlines {
    /// The last delivery to start has its whole timeout left, where `drain` is long enough.
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        let Settings { drain, delivery_timeout, .. } = *settings;
        let start = drain.checked_sub(delivery_timeout).filter(|start| !start.is_zero());
        Self { start: now + start.unwrap_or(drain / 2), finish: now + drain }
    }
}

/// How an loop ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) abandoned: usize,
    pub(super) unfinished: Unfinished,
}

/// The shards that may have due events left; `None` where the relay had lost them.
pub(super) type Unfinished = Option<Vec<ShardId>>;

impl Ended {
    /// Counts what is left, as long as it is worth waiting for.
    pub(super) async fn summary(self, store: &dyn Store) -> StopSummary {
        let left = match &self.unfinished {
            None => None,
            Some(shards) if shards.is_empty() => Some(0),
            Some(shards) => {
                let counting = tokio::time::timeout(COUNT, store.count_due(shards)).await;
                counting.ok().and_then(Result::ok)
            }
        };
        StopSummary { abandoned: self.abandoned as u64, left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    fn seconds(drain: u64, delivery_timeout: u64) -> [u64; 2] {
        let settings = Settings {
            drain: Duration::from_secs(drain),
            delivery_timeout: Duration::from_secs(delivery_timeout),
            ..Settings::default()
        };
        let now = instant();
        let StopDeadlines { start, finish } = StopDeadlines::new(&settings, now);
        [start, finish].map(|end| (end - now).as_secs())
    }

    #[test]
    fn the_last_delivery_to_start_has_its_timeout_left() {
        assert_eq!(seconds(15, 10), [5, 15]);
        assert_eq!(seconds(60, 10), [50, 60]);
    }

    #[test]
    fn a_short_drain_still_starts_deliveries() {
        assert_eq!(seconds(10, 10), [5, 10]);
        assert_eq!(seconds(4, 10), [2, 4]);
    }
}
