//! Fault injection: real relay processes under a workload whose every event can be checked, and a
//! checker that compares what was committed with what was delivered.

#![forbid(unsafe_code)]

pub mod audit;
pub mod bank;
pub mod check;
pub mod config;
#[cfg(feature = "crash-points")]
pub mod crashing_store;
pub mod deployment;
pub mod disk;
pub mod finding;
pub mod load;
pub mod log;
pub mod pgbouncer;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod rng;
pub mod role;
pub mod scenario;
pub mod settings;
pub mod transfer;
pub mod writer;

use pillarbox::Event;
use serde::{Deserialize, Serialize};

/// Any failure: it is shown to a person and not matched on.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// An event ordered by its account; `n` counts the account's changes in commit order.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event("nemesis.ordered", aggregate = "account")]
pub struct OrderedEvent {
    /// The account.
    #[event(id)]
    pub account: i64,
    /// The account's count of changes.
    pub n: i64,
}

/// The same change as an event without a key, which may go through the local queue.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event("nemesis.unordered", free, aggregate = "account")]
pub struct UnorderedEvent {
    /// The account.
    #[event(id)]
    pub account: i64,
    /// The account's count of changes.
    pub n: i64,
}

/// An event whose listener fails, is slow or blocks; each has a key of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event("nemesis.disturbance", aggregate = "disturbance")]
pub struct DisturbanceEvent {
    /// Its number.
    #[event(id)]
    pub id: i64,
}
