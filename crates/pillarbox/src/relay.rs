//! The relay: delivers committed events. The only room that spawns tasks.

mod board;
mod deliver;
mod engine;
mod handle;
mod job;
mod lease;
mod settings;
mod settle;

use std::{fmt, sync::Arc, time::Duration};

use tracing::{info, warn};

use self::board::{Board, Pages};
use self::deliver::Courier;
use self::engine::{Engine, Work};
use self::handle::AbortOnDrop;
pub use self::handle::RelayHandle;
use self::lease::{Heartbeat, Tenure};
pub use self::settings::Settings;
use crate::clock::{Clock, SystemClock};
use crate::emit::Outbox;
use crate::error::Result;
use crate::listen::Listeners;
use crate::retry::{Backoff, Judge, OnDone, RetryPolicy};
use crate::store::Store;
use crate::wake::Wake;

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
    settings: Settings,
    policy: Box<dyn RetryPolicy>,
    clock: Arc<dyn Clock>,
    wake: Wake,
}

impl Relay {
    /// A relay that reads from this store and tells these listeners.
    pub fn new(store: impl Store, listeners: Listeners) -> Self {
        Self::shared(Arc::new(store), listeners)
    }

    /// The same, on a store that is shared already, such as `connect` gives.
    pub fn shared(store: Arc<dyn Store>, listeners: Listeners) -> Self {
        Self {
            store,
            listeners,
            settings: Settings::default(),
            policy: Box::new(Backoff::default()),
            clock: Arc::new(SystemClock),
            wake: Wake::default(),
        }
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

    /// With this wall clock, for tests.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// An outbox on the store's tables, whose commits wake this relay.
    pub fn outbox(&self) -> Outbox {
        Outbox::waking(self.wake.clone()).prefix(self.store.prefix())
    }

    /// Delivers until `shutdown` is ready, then finishes what is under way and gives its shards
    /// back.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when settings contradict
    /// each other, [`ErrorKind::Schema`](crate::ErrorKind::Schema) when the tables do not fit,
    /// and what the database answers at the start. Once started, it copes with errors itself.
    ///
    /// # Cancel safety
    /// Dropped half-way it is like a killed process: what was not settled is delivered again,
    /// by whoever takes the shards when the lease has run out.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        self.start().await?.run_until(shutdown).await;
        Ok(())
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
    async fn start(self) -> Result<Started> {
        self.settings.check()?;
        let layout = self.store.layout().await?;
        let tenure = Tenure::new();
        let heartbeat = Heartbeat {
            store: Arc::clone(&self.store),
            clock: Arc::clone(&self.clock),
            tenure: Arc::clone(&tenure),
            layout,
            length: self.settings.lease,
            poll: self.settings.poll,
        };
        heartbeat.join().await?;
        info!(owner = %tenure.owner, store = self.store.name(), "relay started");
        Ok(Started { heartbeat, engine: self.engine(tenure) })
    }

    fn engine(self, tenure: Arc<Tenure>) -> Engine {
        let settings = self.settings;
        let courier = Courier {
            listeners: self.listeners,
            clock: self.clock,
            tenure: Arc::clone(&tenure),
            timeout: settings.delivery_timeout,
            margin: settings.margin,
        };
        let judge = Judge {
            policy: self.policy,
            max_attempts: settings.max_attempts.get(),
            on_dead: settings.on_dead,
            on_done: if settings.retention_done.is_zero() { OnDone::Delete } else { OnDone::Mark },
        };
        Engine {
            store: self.store,
            courier: Arc::new(courier),
            tenure,
            judge,
            board: Board::new(Pages { batch: settings.batch.get(), least: 16 }),
            settings,
            wake: self.wake,
            work: Work::new(),
        }
    }
}

/// A relay that has entered as an owner.
#[derive(Debug)]
struct Started {
    heartbeat: Heartbeat,
    engine: Engine,
}

impl Started {
    async fn run_until(self, shutdown: impl Future<Output = ()>) {
        let (store, owner) = (Arc::clone(&self.engine.store), self.engine.tenure.owner.clone());
        let patience = self.engine.settings.drain.max(SECOND);
        let beating = AbortOnDrop(tokio::spawn(self.heartbeat.run()));
        self.engine.run(shutdown).await;
        drop(beating);
        let left = tokio::time::timeout(patience, store.leave(&owner)).await;
        if !matches!(left, Ok(Ok(()))) {
            warn!(%owner, "shards not given back, they are free when the lease ends");
        }
        info!(%owner, "relay stopped");
    }
}

impl fmt::Debug for Relay {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Relay")
            .field("store", &self.store)
            .field("listeners", &self.listeners)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}
