//! How much is measured: enough to trust, or enough to see that it works.

use std::time::Duration;

#[derive(Clone, Copy, Debug)]
pub(crate) struct Scale {
    /// Rounds that count; one more, before them, warms up.
    pub(crate) rounds: usize,
    /// How long a round of transactions goes on.
    pub(crate) slice: Duration,
    /// Events to drain.
    pub(crate) backlog: u32,
    /// Events to claim.
    pub(crate) claimed: u32,
    /// Looks of one round at a table with a crowd.
    pub(crate) looks: u32,
    /// Rows that are done and kept.
    pub(crate) kept: u32,
    /// Rows deleted under a held snapshot.
    pub(crate) dead: u32,
    /// Rows inserted to find the cost of an index.
    pub(crate) inserts: u32,
    /// Transactions beside claims.
    pub(crate) contended: u32,
    /// Events for a relay to deliver.
    pub(crate) delivered: u32,
    /// Events whose way is timed.
    pub(crate) timed: u32,
    /// Events to drain beside other systems.
    pub(crate) shared: u32,
    /// Events of a backlog that shows what grows with it.
    pub(crate) large: u32,
    /// Rows that wait while others are delivered.
    pub(crate) waiting: &'static [u32],
    /// How long a relay has nothing to do.
    pub(crate) idle: Duration,
}

impl Scale {
    pub(crate) const FULL: Self = Self {
        rounds: 5,
        slice: Duration::from_secs(1),
        backlog: 100_000,
        claimed: 40_000,
        looks: 5,
        kept: 1_000_000,
        dead: 300_000,
        inserts: 50_000,
        contended: 100_000,
        delivered: 200_000,
        timed: 1500,
        shared: 200_000,
        large: 1_000_000,
        waiting: &[0, 10_000, 100_000, 1_000_000],
        idle: Duration::from_secs(10),
    };

    pub(crate) const QUICK: Self = Self {
        rounds: 3,
        slice: Duration::from_millis(300),
        backlog: 20_000,
        claimed: 10_000,
        looks: 3,
        kept: 100_000,
        dead: 30_000,
        inserts: 10_000,
        contended: 10_000,
        delivered: 20_000,
        timed: 300,
        shared: 20_000,
        large: 100_000,
        waiting: &[0, 20_000],
        idle: Duration::from_secs(2),
    };
}
