//! Shuttle's tokio under tokio's name, and what it does not have.
//!
//! Channels, locks, notifications, `select!` and tasks are Shuttle's. Here are a set of tasks that
//! knows their ids, a number of threads that is not 0, and a time that belongs to the schedule.

#![forbid(unsafe_code)]

pub mod runtime;
pub mod task;
pub mod time;

pub use shuttle_tokio::*;

/// Before each schedule: so many threads, and the time at its beginning.
pub fn begin(threads: usize) {
    runtime::begin(threads);
    time::begin();
}
