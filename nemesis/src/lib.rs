//! Tries to break the promise: a workload whose every step can be checked afterwards, real relay
//! processes to kill, and a checker of what was delivered.

#![forbid(unsafe_code)]

pub mod check;
pub mod settings;
pub mod writer;

use pillarbox::Event;
use serde::{Deserialize, Serialize};

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
