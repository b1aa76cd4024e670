//! What a process is told on its command line, as JSON.

use std::path::PathBuf;

use pillarbox::RelaySettings;
use serde::{Deserialize, Serialize};

/// The orders of one life of a relay, or of a writer.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct Orders {
    /// The database.
    pub url: String,
    /// The log to append to.
    pub log: PathBuf,
    /// Its name in the log.
    pub life: String,
    /// The relay's numbers.
    pub settings: RelaySettings,
    /// What its listener does.
    pub listener: Manner,
    /// What the listener of troubles does.
    pub trouble: Trouble,
    /// What it writes itself; its glimpses go hot.
    pub writing: Option<Writing>,
    /// How many milliseconds an event waits for its next attempt at most.
    pub backoff: u64,
    /// How many hours its clock is ahead.
    pub ahead: i64,
}

/// What goes wrong beside the other keys and routes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Trouble {
    /// Nothing.
    None,
    /// One account's steps fail, time after time.
    PoisonedKey,
    /// A route takes a fifth of a second for each event.
    SlowRoute,
    /// The same, one at a time.
    SlowRouteLimited,
    /// A route's listener panics, time after time.
    Panics,
    /// A route's listener blocks its thread for a fifth of a second, one at a time.
    Blocks,
}

impl Trouble {
    /// How it is called in a table.
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

    /// Whether its events wait for a place of which there is one.
    pub const fn is_limited(self) -> bool {
        matches!(self, Self::SlowRouteLimited | Self::Blocks)
    }
}

/// How a listener behaves.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Manner {
    /// Notes the delivery and is done.
    Plain,
    /// Takes this many microseconds first.
    Slow(u64),
    /// After so many milliseconds it has an effect on the account, once by way of an inbox; every other
    /// glimpse of an account fails for good as long as nothing is [healed](crate::place::healed), or
    /// none.
    Scripted {
        /// How long it takes first.
        rest: u64,
        /// Whether some fail.
        fails: bool,
    },
}

/// What a process writes.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub struct Writing {
    /// Over how many accounts.
    pub accounts: i64,
    /// How many transactions, those that are taken back included.
    pub transactions: u64,
    /// By how many writers at a time.
    pub writers: u64,
    /// How many accounts one transaction changes.
    pub batch: i64,
    /// How many milliseconds a writer rests after each.
    pub rest: u64,
    /// Where the numbering of turns begins, so that processes take different accounts.
    pub first: u64,
    /// What a transaction does.
    pub load: Load,
}

/// What a transaction does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub enum Load {
    /// Accounts in turn, of each a step and a glimpse.
    Even,
    /// Whatever a [plan](crate::load::Plan) says; one of a hundred stays open for up to so many
    /// milliseconds.
    Varied(u64),
}
