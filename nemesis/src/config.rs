//! The configuration of a relay or writer process: JSON on its command line.

use std::path::PathBuf;

use pillarbox::RelaySettings;
use serde::{Deserialize, Serialize};

use crate::deployment::Deployment;

/// The configuration of one incarnation of a process.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct ProcessConfig {
    /// The database.
    pub url: String,
    /// The log to append to.
    pub log: PathBuf,
    /// The name of the incarnation in the log.
    pub incarnation: String,
    /// The relay's settings.
    pub settings: RelaySettings,
    /// What the listener does.
    pub listener: ListenerBehavior,
    /// What the listener of [`DisturbanceEvent`](crate::DisturbanceEvent)s does.
    pub disturbance: Disturbance,
    /// What the process writes.
    pub writes: Option<WriteLoad>,
    /// The longest backoff between attempts, in milliseconds.
    pub backoff: u64,
    /// How many hours the clock is ahead.
    pub ahead: i64,
}

impl ProcessConfig {
    /// A relay that only delivers.
    pub fn relay(deployment: &Deployment, incarnation: &str, settings: RelaySettings) -> Self {
        Self {
            url: deployment.url.clone(),
            log: deployment.log(),
            incarnation: incarnation.to_owned(),
            settings,
            listener: ListenerBehavior::Plain,
            disturbance: Disturbance::None,
            writes: None,
            backoff: 60_000,
            ahead: 0,
        }
    }
}

/// What goes wrong beside the other keys and routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Disturbance {
    /// Nothing.
    None,
    /// The events of one account fail on every attempt.
    PoisonedKey,
    /// A route takes 200 ms per event.
    SlowRoute,
    /// A route takes 200 ms per event, with a concurrency limit of one.
    SlowRouteLimited,
    /// A route's listener panics on every attempt.
    Panics,
    /// A route's listener blocks its thread for 200 ms, with a concurrency limit of one.
    Blocks,
}

impl Disturbance {
    /// Its name in a table.
    pub const fn name(self) -> &'static str {
        match self {
            Self::None => "none",
            Self::PoisonedKey => "a poisoned key",
            Self::SlowRoute => "a slow route",
            Self::SlowRouteLimited => "a slow route, limited to one",
            Self::Panics => "a panicking listener",
            Self::Blocks => "a blocking listener, limited to one",
        }
    }

    /// Whether its route has a concurrency limit of one.
    pub const fn is_limited(self) -> bool {
        matches!(self, Self::SlowRouteLimited | Self::Blocks)
    }
}

/// How a listener behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum ListenerBehavior {
    /// Logs the delivery.
    Plain,
    /// Sleeps for this many microseconds first.
    Slow(u64),
    /// Sleeps, then has an effect on the account, once by way of an inbox.
    Effect {
        /// How many milliseconds to sleep.
        rest: u64,
        /// Whether every other event without a key fails for good until the deployment is
        /// [healed](crate::deployment::healed).
        fails: bool,
    },
}

/// What a process writes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct WriteLoad {
    /// The number of accounts.
    pub accounts: i64,
    /// The number of transactions, including those that are rolled back.
    pub transactions: u64,
    /// The number of concurrent writers.
    pub writers: u64,
    /// How many accounts one transaction changes.
    pub batch: i64,
    /// How many milliseconds a writer sleeps after each transaction.
    pub rest: u64,
    /// Where the numbering begins, so that processes change different accounts.
    pub first: u64,
    /// What a transaction does.
    pub load: Load,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// Changes accounts in turn and emits two events for each, one ordered and one without a key.
    Even,
    /// Does what a random [plan](crate::load::Plan) says; one in a hundred stays open for up to this
    /// many milliseconds.
    Varied(u64),
}
