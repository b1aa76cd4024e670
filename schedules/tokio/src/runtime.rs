//! As many threads as the schedule is to have.

use std::cell::Cell;

thread_local! {
    static THREADS: Cell<usize> = const { Cell::new(1) };
}

/// The runtime, as far as it is asked.
#[derive(Debug)]
pub struct Handle;

/// What it tells of itself.
#[derive(Debug)]
pub struct RuntimeMetrics;

impl Handle {
    /// The only one.
    pub fn current() -> Self {
        Self
    }

    /// What it tells of itself.
    pub fn metrics(&self) -> RuntimeMetrics {
        RuntimeMetrics
    }
}

impl RuntimeMetrics {
    /// How many threads there are.
    pub fn num_workers(&self) -> usize {
        THREADS.get()
    }
}

pub(crate) fn begin(threads: usize) {
    THREADS.set(threads);
}
