//! Gauges: how much there is of what, now and then.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use tokio::time::Instant;

use crate::clock::instant;
use crate::error::Result;
use crate::relay::maintenance::{Lead, patiently};
use crate::scheduler::JobStatus;
use crate::store::{Stats, Store};
use crate::telemetry::{Gauges, Observers, RelayEvent};

/// CrashGuard takes at most one part in so many of a connection's time, however long the line is.
const SHARE: u32 = 20;

/// Counts, and tells.
#[derive(Debug)]
pub(super) struct Counter {
    store: Arc<dyn Store>,
    observers: Observers,
    lead: Lead,
    /// After a count that took long: not before.
    not_before: Mutex<Option<Instant>>,
}

impl Counter {
    pub(super) fn new(store: Arc<dyn Store>, observers: Observers, lead: Lead) -> Self {
        Self { store, observers, lead, not_before: Mutex::default() }
    }

    pub(super) async fn turn(&self) -> Result<JobStatus> {
        let start = instant();
        if self.not_before().is_some_and(|moment| start < moment) {
            return Ok(JobStatus::Idle);
        }
        let counted = patiently(self.store.stats()).await;
        let end = instant();
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner) =
            Some(end + (end - start) * SHARE);
        let mut gauges = gauges(&counted?);
        self.lead.tell(&mut gauges);
        self.observers.on_event(&RelayEvent::Counted(gauges));
        Ok(JobStatus::Idle)
    }

    fn not_before(&self) -> Option<Instant> {
        *self.not_before.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

fn gauges(stats: &Stats) -> Gauges {
    Gauges {
        pending: stats.new + stats.waiting + stats.held,
        waiting: stats.waiting,
        dead: stats.dead,
        // Only the head of a key can be held, so that each held event is a key.
        held_keys: stats.held,
        oldest_lag: stats.oldest_lag.unwrap_or_default(),
        owners: stats.owners,
        owned_shards: stats.owned_shards,
        ..Gauges::default()
    }
}

/// How many events wait in memory for a worker: written by the loop, read by the gauges.
#[derive(Debug, Default)]
pub(crate) struct Depths {
    local: AtomicU64,
    table: AtomicU64,
}

impl Depths {
    /// So many came from writers of this process, and so many from the table.
    pub(crate) fn tell(&self, local: usize, table: usize) {
        self.local.store(local as u64, Ordering::Relaxed);
        self.table.store(table as u64, Ordering::Relaxed);
    }

    pub(super) fn local(&self) -> u64 {
        self.local.load(Ordering::Relaxed)
    }

    pub(super) fn table(&self) -> u64 {
        self.table.load(Ordering::Relaxed)
    }
}
