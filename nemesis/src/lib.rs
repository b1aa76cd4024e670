//! Tries to break the promise: a workload whose every step can be checked afterwards, real relay
//! processes to kill, pause and restart, and a checker of what was delivered.

#![forbid(unsafe_code)]

pub mod actor;
pub mod audit;
pub mod bank;
pub mod bouncer;
pub mod chance;
pub mod check;
pub mod disk;
pub mod load;
pub mod log;
pub mod orders;
pub mod place;
pub mod process;
pub mod proxy;
pub mod relay;
pub mod settings;
pub mod show;
pub mod table;
pub mod transfer;
pub mod writer;

use pillarbox::Event;
use serde::{Deserialize, Serialize};

/// A failure is read by a person and by nothing else, so it needs no type of its own.
pub type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error + Send + Sync>>;

/// One step of one key; `n` counts the steps of the key in the order they were committed.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event("nemesis.step", aggregate = "account")]
pub struct Step {
    /// Which account.
    #[event(id)]
    pub account: i64,
    /// The account's own count.
    pub n: i64,
}

/// The same step told to whoever needs no order, so that it may go hot.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event("nemesis.glimpse", free, aggregate = "account")]
pub struct Glimpse {
    /// Which account.
    #[event(id)]
    pub account: i64,
    /// The account's own count.
    pub n: i64,
}

/// An event whose listener makes trouble, each of a key of its own.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, Event)]
#[event("nemesis.trouble", aggregate = "trouble")]
pub struct Trouble {
    /// Which.
    #[event(id)]
    pub id: i64,
}
