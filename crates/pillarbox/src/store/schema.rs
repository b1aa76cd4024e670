//! The tables and their settings.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) mod check;

use std::{fmt, num::NonZeroU16};

use async_trait::async_trait;
use serde::{Deserialize, Serialize};

use super::arc::for_arc;
use crate::error::{Error, ErrorKind, Result};
use crate::table::TablePrefix;

/// Lays the tables down, checks them, and keeps their settings.
///
/// # Contract
/// - [`migrate`](Self::migrate) MUST be safe to run in many processes at once, and again after a
///   crash half-way.
/// - [`config`](Self::config) MUST refuse tables that this library cannot work on.
/// - `seq` MUST grow in order of insertion within one transaction, and MUST never be used twice.
///
/// # Examples
/// ```
/// use pillarbox::MemoryStore;
/// use pillarbox::store::{ClaimMode, DeliveryMode, Schema};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// store.migrate().await?;
/// store.configure(&DeliveryMode { claim: ClaimMode::Rows, ..Default::default() }).await?;
///
/// assert_eq!(store.config().await?.mode.claim, ClaimMode::Rows);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Schema: Send + Sync {
    /// The name of the database in logs and metrics: `postgres`, `mysql`, `sqlite`.
    fn name(&self) -> &'static str;

    /// The prefix of the table names; empty where there are no tables.
    fn prefix(&self) -> TablePrefix;

    /// Whether a connection pooler stands before the database, so that statements cannot be named.
    fn is_pooled(&self) -> bool;

    /// Creates or updates the tables.
    async fn migrate(&self) -> Result<()>;

    /// Reads the settings of the tables, and checks that the tables exist, fit this library and can
    /// be written.
    ///
    /// Also checks that `seq` is not behind what was [marked](Self::mark_seq), where the database
    /// tells how far it has counted. Otherwise returns
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) with the statement that repairs
    /// it.
    async fn config(&self) -> Result<OutboxConfig>;

    /// Persists how far `seq` has come, if that is further than before.
    ///
    /// The relay that purges calls it in every round; a writer never does.
    async fn mark_seq(&self) -> Result<()>;

    /// Sets how rows are claimed and ordered.
    ///
    /// Returns [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) while any owner's lease
    /// is valid. Removes owners whose lease has lapsed, so that none of them renews it in another
    /// mode.
    async fn configure(&self, mode: &DeliveryMode) -> Result<()>;
}

for_arc!(Schema {
    fn name(&self) -> &'static str;
    fn prefix(&self) -> TablePrefix;
    fn is_pooled(&self) -> bool;
    async fn migrate(&self) -> Result<()>;
    async fn config(&self) -> Result<OutboxConfig>;
    async fn mark_seq(&self) -> Result<()>;
    async fn configure(&self, mode: &DeliveryMode) -> Result<()>;
});

/// What `migrate` has laid down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OutboxConfig {
    /// How many shards keys are hashed into.
    pub shards: NonZeroU16,
    /// How rows are claimed and ordered.
    pub mode: DeliveryMode,
}

/// How rows are claimed and ordered; one setting for all relays of an outbox.
///
/// # Examples
/// ```
/// use pillarbox::store::{ClaimMode, DeliveryMode, Order};
///
/// let competing = DeliveryMode { claim: ClaimMode::Rows, order: Order::Key };
/// assert_eq!(competing.to_string(), "claim = rows, order = key");
/// assert_eq!(DeliveryMode::default(), DeliveryMode { claim: ClaimMode::Shards, order: Order::Key });
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct DeliveryMode {
    /// How a relay comes by rows.
    pub claim: ClaimMode,
    /// What is delivered in order.
    pub order: Order,
}

/// How a relay comes by rows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ClaimMode {
    /// It owns shards and reads them, with no write per event: the fast way.
    #[default]
    Shards,
    /// It leases row by row, and any relay takes any due row: for slow, uneven listeners.
    Rows,
    /// Nobody delivers from the tables; another program reads them, or the database's log.
    None,
}

/// What is delivered in order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Order {
    /// The events of a key, one after the other.
    #[default]
    Key,
    /// Nothing.
    None,
}

impl ClaimMode {
    /// The word in the `claim` column of `outbox_setting`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Shards => "shards",
            Self::Rows => "rows",
            Self::None => "none",
        }
    }

    /// The mode that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Shards, Self::Rows, Self::None].into_iter().find(|mode| mode.as_str() == word)
    }
}

impl Order {
    /// The word in the `ordered` column of `outbox_setting`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Key => "key",
            Self::None => "none",
        }
    }

    /// The order that a word stands for.
    pub fn from_word(word: &str) -> Option<Self> {
        [Self::Key, Self::None].into_iter().find(|order| order.as_str() == word)
    }
}

impl fmt::Display for DeliveryMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "claim = {}, order = {}", self.claim.as_str(), self.order.as_str())
    }
}

impl DeliveryMode {
    /// Two relays that claim in different ways would deliver the same events.
    pub(super) fn refuse_other(self, wanted: Self) -> Result<()> {
        if self == wanted {
            return Ok(());
        }
        let message = format!(
            "the tables are set to `{self}`, and this relay to `{wanted}`: change one of them \
             (`store.configure` changes the tables, once every relay is stopped)"
        );
        Err(Error::new(ErrorKind::Configuration, message))
    }
}

/// A mode is not changed under the hands of a relay.
pub(super) fn refuse_living(owners: u64) -> Result<()> {
    if owners == 0 {
        return Ok(());
    }
    let message = format!(
        "the mode cannot be changed while relays live ({owners} of them): stop them, or wait for \
         their leases to end"
    );
    Err(Error::new(ErrorKind::Configuration, message))
}
