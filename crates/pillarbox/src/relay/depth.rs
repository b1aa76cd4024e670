//! How many events wait in memory for a worker: told by the engine, asked by the gauges.

use std::sync::atomic::{AtomicU64, Ordering};

#[derive(Debug, Default)]
pub(super) struct Depths {
    hot: AtomicU64,
    cold: AtomicU64,
}

impl Depths {
    /// So many came from writers of this process, and so many from the table.
    pub(super) fn tell(&self, hot: usize, cold: usize) {
        self.hot.store(hot as u64, Ordering::Relaxed);
        self.cold.store(cold as u64, Ordering::Relaxed);
    }

    pub(super) fn hot(&self) -> u64 {
        self.hot.load(Ordering::Relaxed)
    }

    pub(super) fn cold(&self) -> u64 {
        self.cold.load(Ordering::Relaxed)
    }
}
