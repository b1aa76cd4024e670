//! The relay: delivers committed events. The only room that spawns tasks.

mod dispatch;
mod fetch;
mod handle;
mod maintenance;
mod notify;
mod number_map;
mod ownership;
mod row_loop;
mod running;
#[cfg(shuttle)]
pub mod schedules;
mod settings;
mod settle;
mod shard_loop;
mod store_tasks;
mod writer_only;

use std::{
    borrow::Cow,
    fmt,
    sync::{Arc, Mutex},
    time::Duration,
};

use self::dispatch::deliverer::Deliverer;
use self::dispatch::fair_share::FairShare;
pub use self::handle::RelayHandle;
pub use self::maintenance::Maintenance;
use self::maintenance::{Depths, Watch};
use self::ownership::balance::Balance;
use self::ownership::{Heartbeat, Ownership};
pub use self::running::StopSummary;
use self::running::{Parts, RunningRelay};
pub use self::settings::Settings;
pub use self::writer_only::{WriterHandle, WriterOnly};
use crate::clock::{Clock, SystemClock, instant};
use crate::error::Result;
use crate::layer::{Layer, Layers};
use crate::listener::Listeners;
use crate::local_queue::{LocalQueue, LocalReceiver, LocalRelay, OwnedShards};
use crate::outbox::Outbox;
use crate::retry::{Backoff, OnDone, RetryPolicy, RetryRules};
use crate::scheduler::Scheduler;
use crate::store::{self, ClaimMode, OutboxConfig, Store};
use crate::telemetry::{Observer, Observers, RelayEvent};
use crate::wake::Wake;

/// How many events may wait for a worker on their way from a commit.
const LOCAL_EVENTS: u32 = 1000;

/// The least time to give the shards back in.
const SECOND: Duration = Duration::from_secs(1);

/// Delivers events after their commit: in order per key, with retries, at least once.
///
/// # Examples
/// ```
/// use pillarbox::{Cx, Envelope, Failure, Listeners, MemoryStore, Relay};
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let (heard, mut hears) = tokio::sync::mpsc::channel(1);
/// let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
///     let heard = heard.clone();
///     async move { heard.send(event).await.map_err(Failure::retry) }
/// });
///
/// let relay = Relay::new(store.clone(), listeners);
/// let outbox = relay.outbox();
/// let handle = relay.spawn().await?;
///
/// let mut tx = outbox.begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
/// tx.commit().await?;
///
/// assert_eq!(hears.recv().await.map(|event| event.payload().as_json() == Some("7")), Some(true));
/// handle.stop().await?;
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Relay {
    store: Arc<dyn Store>,
    listeners: Listeners,
    layers: Layers,
    settings: Settings,
    policy: Box<dyn RetryPolicy>,
    clock: Arc<dyn Clock>,
    wake: Wake,
    local: (LocalQueue, LocalReceiver),
    observers: Observers,
    depths: Arc<Depths>,
}

impl Relay {
    /// A relay that reads from this store and tells these listeners.
    pub fn new(store: impl Store, listeners: Listeners) -> Self {
        Self {
            store: store::share(store),
            listeners,
            layers: Layers::default(),
            settings: Settings::default(),
            policy: Box::new(Backoff::default()),
            clock: Arc::new(SystemClock),
            wake: Wake::default(),
            local: LocalQueue::new(LOCAL_EVENTS),
            observers: Observers::default(),
            depths: Arc::default(),
        }
    }

    /// With this layer around every delivery, inside those registered before.
    #[must_use]
    pub fn layer(mut self, layer: impl Layer) -> Self {
        self.layers.push(layer);
        self
    }

    /// With these numbers.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// With this retry policy; 200 ms doubling up to 60 s unless said.
    #[must_use]
    pub fn retry(mut self, policy: impl RetryPolicy) -> Self {
        self.policy = Box::new(policy);
        self
    }

    /// Seen by this one too; observers are told in the order they were given.
    ///
    /// The [log](crate::telemetry::Log) is always among them.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers = self.observers.with(observer);
        self
    }

    /// With this wall clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// An outbox on the store's tables, whose commits wake this relay.
    pub fn outbox(&self) -> Outbox {
        let (queue, _) = &self.local;
        Outbox::for_relay(self.wake.clone(), queue.clone()).on(&*self.store)
    }

    /// Delivers until `shutdown` is ready, then stops as [`RelayHandle::stop`] does, and says what
    /// was left.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when settings contradict
    /// each other, [`ErrorKind::Schema`](crate::ErrorKind::Schema) when the tables do not fit,
    /// and what the database answers at the start. Once started, it copes with errors itself.
    ///
    /// # Cancel safety
    /// Dropped half-way it is like a killed process: what was not settled is delivered again,
    /// by whoever takes the shards when the lease has run out.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<StopSummary> {
        Ok(self.start().await?.run_until(shutdown).await)
    }

    /// Delivers in the background until the handle says stop.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), before anything is spawned.
    ///
    /// # Cancel safety
    /// Dropped before it returns, nothing runs.
    pub async fn spawn(self) -> Result<RelayHandle> {
        let wake = self.wake.clone();
        Ok(RelayHandle::spawn(wake, self.start().await?))
    }

    /// Everything that can be refused: settings, tables, entering as an owner.
    async fn start(self) -> Result<RunningRelay> {
        self.settings.check()?;
        self.settings.warn();
        let config = running::agree(&*self.store, &self.settings).await?;
        let ownership = Ownership::new();
        let heartbeat = self.heartbeat(&ownership, config);
        heartbeat.join().await?;
        let (owner, store) = (Cow::Borrowed(&ownership.owner), self.store.name().into());
        self.observers.on_event(&RelayEvent::Started { owner, store });
        heartbeat.take_first().await;
        let maintenance = self.maintenance(&ownership);
        self.open_queue(&ownership, config.mode.claim);
        Ok(RunningRelay::new(heartbeat, maintenance, self.parts(ownership, config)))
    }

    fn heartbeat(&self, ownership: &Arc<Ownership>, config: OutboxConfig) -> Heartbeat {
        Heartbeat {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            ownership: Arc::clone(ownership),
            config,
            length: self.settings.lease,
            poll: self.settings.poll,
            balance: Mutex::new(Balance::new(self.settings.lease / 3, instant())),
            observers: self.observers.clone(),
        }
    }

    fn maintenance(&self, ownership: &Arc<Ownership>) -> Scheduler {
        let watch = Watch {
            ownership: Arc::clone(ownership),
            clock: Arc::clone(&self.clock),
            margin: self.settings.margin,
            depths: Arc::clone(&self.depths),
        };
        let (store, settings) = (Arc::clone(&self.store), self.settings.clone());
        Maintenance::of_relay(store, settings, watch, self.observers.clone()).jobs()
    }

    /// From now on, commits of this process are handed over in memory.
    fn open_queue(&self, ownership: &Arc<Ownership>, claim: ClaimMode) {
        self.local.0.open(LocalRelay {
            owner: ownership.owner.clone(),
            lease: self.settings.lease,
            clock: Arc::clone(&self.clock),
            observers: self.observers.clone(),
            shards: (claim == ClaimMode::Shards)
                .then(|| Arc::clone(ownership) as Arc<dyn OwnedShards>),
        });
    }

    fn parts(self, ownership: Arc<Ownership>, config: OutboxConfig) -> Parts {
        let settings = self.settings;
        let are_many = config.mode.claim != ClaimMode::Rows && self.listeners.has_many_routes();
        let owned = Arc::clone(&ownership);
        let deliverer = Deliverer::new(self.listeners, self.layers, self.clock, owned, &settings);
        Parts {
            store: self.store,
            config,
            ownership,
            deliverer: Arc::new(deliverer),
            workers: FairShare::new(settings.workers.get() as usize, are_many),
            rules: RetryRules {
                policy: self.policy,
                max_attempts: settings.max_attempts.get(),
                on_dead: settings.on_dead,
                on_done: OnDone::after(settings.retention_done),
            },
            settings,
            local: self.local,
            wake: self.wake,
            observers: self.observers,
            depths: self.depths,
        }
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("store", &self.store)
            .field("listeners", &self.listeners)
            .field("layers", &self.layers)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
