//! Cases for Shuttle: each is run in many orders of its steps by `cargo xtask shuttle`.
//!
//! A case sets threads going and says what must hold; that they come to an end at all, Shuttle says.
//! All of the code is the real one, on Shuttle's tokio and with a time that belongs to the schedule.

mod local_queue;
mod relay;
mod wake;
mod worker_pool;

use shuttle::rand::{Rng, thread_rng};

/// What a listener says that panics because it is told to.
pub const ON_PURPOSE: &str = "on purpose";

/// Something that must hold in every order of its steps.
#[derive(Debug)]
pub struct Case {
    /// What it is asked for by, and what must hold.
    pub name: &'static str,
    /// One run of it, in the order that Shuttle says.
    pub run: fn(),
}

/// All of them.
pub const CASES: [Case; 16] = [
    Case { name: "pool: what is started comes back once", run: worker_pool::comes_back_once },
    Case { name: "pool: each route has its workers", run: worker_pool::keeps_to_its_workers },
    Case { name: "pool: who waits passes the turn on", run: worker_pool::passes_the_turn_on },
    Case { name: "pool: a panic is a failure", run: worker_pool::fails_by_panic },
    Case { name: "pool: a dropped wait loses nothing", run: worker_pool::loses_nothing },
    Case { name: "pool: who is too slow fails once", run: worker_pool::is_too_slow },
    Case { name: "pool: dropped, its tasks end", run: worker_pool::ends },
    Case { name: "local queue: messages in order, places bounded", run: local_queue::is_in_order },
    Case { name: "local queue: bytes bounded", run: local_queue::bounds_bytes },
    Case { name: "local queue: closed, everything is given back", run: local_queue::gives_back },
    Case { name: "wake: none is lost", run: wake::is_not_lost },
    Case { name: "wake: many count as one", run: wake::counts_as_one },
    Case { name: "relay: shards, settled once", run: relay::by_shards },
    Case { name: "relay: rows, settled once", run: relay::by_rows },
    Case { name: "relay: shards, stopped at any time", run: relay::stopped_by_shards },
    Case { name: "relay: rows, stopped at any time", run: relay::stopped_by_rows },
];

/// Runs what a case does, on so many threads.
fn play(threads: usize, case: impl Future<Output = ()>) {
    tokio::begin(threads);
    shuttle::future::block_on(case);
}

/// One of so many, as the schedule says.
fn chance(of: usize) -> usize {
    thread_rng().gen_range(0..of)
}
