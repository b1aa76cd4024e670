//! Cases for Shuttle: each is run in many orders of its steps by `cargo xtask shuttle`.
//!
//! A case sets threads going and says what must hold; that they come to an end at all, Shuttle says.
//! All of the code is the real one, on Shuttle's tokio and with a time that belongs to the schedule.

mod crew;
mod lane;
mod wake;
mod whole;

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
    Case { name: "crew: what is started comes back once", run: crew::comes_back_once },
    Case { name: "crew: each route has its workers", run: crew::keeps_to_its_workers },
    Case { name: "crew: who waits passes the turn on", run: crew::passes_the_turn_on },
    Case { name: "crew: a panic is a failure", run: crew::fails_by_panic },
    Case { name: "crew: a dropped wait loses nothing", run: crew::loses_nothing },
    Case { name: "crew: who is too slow fails once", run: crew::is_too_slow },
    Case { name: "crew: dropped, its tasks end", run: crew::ends },
    Case { name: "lane: mail in order, places bounded", run: lane::is_in_order },
    Case { name: "lane: bytes bounded", run: lane::bounds_bytes },
    Case { name: "lane: closed, everything is given back", run: lane::gives_back },
    Case { name: "wake: none is lost", run: wake::is_not_lost },
    Case { name: "wake: many count as one", run: wake::counts_as_one },
    Case { name: "relay: shards, settled once", run: whole::by_shards },
    Case { name: "relay: rows, settled once", run: whole::by_rows },
    Case { name: "relay: shards, stopped at any time", run: whole::stopped_by_shards },
    Case { name: "relay: rows, stopped at any time", run: whole::stopped_by_rows },
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
