//! Maintenance: purges and gauges, as jobs of a [`Scheduler`].

mod gauges;
mod purge;

use std::{fmt, sync::Arc, time::Duration};

use self::gauges::Counter;
pub(super) use self::gauges::Depths;
use crate::clock::{Clock, SystemClock};
use crate::error::{Error, ErrorKind, Result};
use crate::id::ShardId;
use crate::relay::Settings;
use crate::relay::maintenance::purge::Purger;
use crate::relay::ownership::Ownership;
use crate::scheduler::Scheduler;
use crate::store::{self, Store};
use crate::telemetry::{Component, Gauges, Observer, Observers, RelayEvent};

/// How long one statement of maintenance may take; a purge that is dropped has deleted all or nothing.
const PATIENCE: Duration = Duration::from_secs(60);

/// Deletes what is done with after its retention, and counts what there is.
///
/// Every relay does this by itself. Use it alone where no relay runs: with `claim = none`, in a
/// process that only writes, or in a test that turns the clock.
///
/// Among many relays, the owner of the lowest shard purges: a shard has one owner at a time, so
/// one relay does, and the next owner goes on where a dead one stopped. Should a paused relay
/// wake up and purge beside its heir, both delete only what is past its retention: that costs
/// work, never a row. Every relay counts for its own gauges, because a gauge that is not renewed
/// lies.
///
/// # Examples
/// ```
/// use pillarbox::{MemoryStore, RelaySettings, Maintenance};
///
/// # tokio::runtime::Builder::new_current_thread().enable_all().build()?.block_on(async {
/// let mut scheduler = Maintenance::new(MemoryStore::new()).settings(RelaySettings::default()).tick()?;
///
/// assert_eq!(scheduler.run_due().await?, 2); // purge and gauges; or: scheduler.run_until(shutdown).await
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Maintenance {
    store: Arc<dyn Store>,
    settings: Settings,
    clock: Arc<dyn Clock>,
    observers: Observers,
    lead: Lead,
}

impl Maintenance {
    /// The maintenance of this store's tables.
    pub fn new(store: impl Store) -> Self {
        Self {
            store: store::share(store),
            settings: Settings::default(),
            clock: Arc::new(SystemClock),
            observers: Observers::default(),
            lead: Lead::Always,
        }
    }

    /// With these retentions and intervals; the other numbers do not matter here.
    #[must_use]
    pub fn settings(mut self, settings: Settings) -> Self {
        self.settings = settings;
        self
    }

    /// With this wall clock, which says what is due. How old a row is, the database's clock says.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    /// Seen by this one too.
    #[must_use]
    pub fn observer(mut self, observer: impl Observer) -> Self {
        self.observers = self.observers.with(observer);
        self
    }

    /// The jobs, `purge` and `gauges`, ready to run; jobs of your own can be added.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] when settings contradict each other.
    pub fn tick(self) -> Result<Scheduler> {
        self.settings.check()?;
        Ok(self.jobs())
    }

    /// A relay's own, which leads while it holds the lowest shard.
    pub(super) fn of_relay(
        store: Arc<dyn Store>,
        settings: Settings,
        watch: Watch,
        observers: Observers,
    ) -> Self {
        let clock = Arc::clone(&watch.clock);
        Self { store, settings, clock, observers, lead: Lead::LowestShard(watch) }
    }

    pub(super) fn jobs(self) -> Scheduler {
        let (purge_every, gauges_every) = (self.settings.purge_every, self.settings.gauges_every);
        let counter = Arc::new(Counter::new(
            Arc::clone(&self.store),
            self.observers.clone(),
            self.lead.clone(),
        ));
        let purger = Arc::new(Purger {
            store: self.store,
            settings: self.settings,
            observers: self.observers.clone(),
            lead: self.lead,
        });
        let observers = self.observers;
        Scheduler::new()
            .shared_clock(self.clock)
            .job("purge", purge_every, move || {
                let purger = Arc::clone(&purger);
                async move { purger.turn().await }
            })
            .job("gauges", gauges_every, move || {
                let counter = Arc::clone(&counter);
                async move { counter.turn().await }
            })
            .on_error(move |_, error| {
                observers.on_event(&RelayEvent::failed(Component::Maintenance, error))
            })
    }
}

impl fmt::Debug for Maintenance {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Maintenance")
            .field("store", &self.store)
            .field("settings", &self.settings)
            .finish_non_exhaustive()
    }
}

/// Who purges.
#[derive(Clone, Debug)]
enum Lead {
    /// Whoever asked for it.
    Always,
    /// The relay that holds the lowest shard.
    LowestShard(Watch),
}

/// What a relay knows of its own lease.
#[derive(Clone, Debug)]
pub(super) struct Watch {
    pub(super) ownership: Arc<Ownership>,
    pub(super) clock: Arc<dyn Clock>,
    pub(super) margin: Duration,
    pub(super) depths: Arc<Depths>,
}

impl Lead {
    fn is_ours(&self) -> bool {
        match self {
            Self::Always => true,
            Self::LowestShard(watch) => {
                watch.ownership.holds(&*watch.clock, ShardId(0), watch.margin).is_some()
            }
        }
    }

    /// What is known of a relay alone, in the gauges.
    fn tell(&self, gauges: &mut Gauges) {
        if let Self::LowestShard(watch) = self {
            gauges.own_shards = watch.ownership.shards().len() as u64;
            gauges.hot_depth = watch.depths.local();
            gauges.cold_depth = watch.depths.table();
        }
    }
}

/// Waits for the database, but not for ever.
async fn patiently<T>(asked: impl Future<Output = Result<T>>) -> Result<T> {
    tokio::time::timeout(PATIENCE, asked).await.unwrap_or_else(|_| {
        let message = format!("maintenance had no answer from the database within {PATIENCE:?}");
        Err(Error::new(ErrorKind::Unavailable, message))
    })
}
