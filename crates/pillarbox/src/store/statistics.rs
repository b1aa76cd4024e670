//! Counts of events.

use std::time::Duration;

use async_trait::async_trait;

use super::arc::for_arc;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};

/// Counts events.
///
/// # Contract
/// - The cost of [`stats`](Self::stats) MUST NOT grow with the events that are done.
///
/// # Examples
/// ```
/// use pillarbox::MemoryStore;
/// use pillarbox::store::Statistics;
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// assert_eq!(store.stats().await?.new, 0);
/// assert_eq!(store.breakdown().await?.shards.len(), 64);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Statistics: Send + Sync {
    /// Counts pending and dead events.
    async fn stats(&self) -> Result<Stats>;

    /// Counts events by shard and by event type. Counts done events too, and may take long.
    async fn breakdown(&self) -> Result<Breakdown>;
}

for_arc!(Statistics {
    async fn stats(&self) -> Result<Stats>;
    async fn breakdown(&self) -> Result<Breakdown>;
});

/// Counts of events.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Stats {
    /// Events that can be delivered, or are behind another of their key.
    pub new: u64,
    /// Events that wait for their time: delayed, deferred, or to be retried.
    pub waiting: u64,
    /// Events that hold their key.
    pub held: u64,
    /// Dead letters that block nobody.
    pub dead: u64,
    /// For how long the oldest due event has been waiting. A store MAY look at the first new rows of
    /// each shard only, so that counting a backlog does not read it.
    pub oldest_lag: Option<Duration>,
    /// Owners with a living lease.
    pub owners: u64,
    /// Shards that a living owner holds.
    pub owned_shards: u64,
}

/// Counts of events by shard and by event type.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Breakdown {
    /// Delivered events that are kept.
    pub done: u64,
    /// Every shard, in order.
    pub shards: Vec<ShardStats>,
    /// Event types with pending, held or dead events, those with most of them first; at most
    /// [`MAX_TYPES`].
    pub types: Vec<TypeStats>,
}

/// Most event types that a breakdown names.
pub const MAX_TYPES: usize = 100;

/// One shard.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ShardStats {
    /// The shard.
    pub shard: ShardId,
    /// Its owner, if it has one.
    pub owner: Option<OwnerId>,
    /// How often it has changed hands.
    pub epoch: Epoch,
    /// Events that can be delivered, or are behind another of their key.
    pub new: u64,
    /// Events that wait for their time: delayed, deferred, or to be retried.
    pub waiting: u64,
    /// Events that hold their key.
    pub held: u64,
    /// For how long its oldest due event has been waiting.
    pub oldest_lag: Option<Duration>,
}

/// One event type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TypeStats {
    /// The event type.
    pub event_type: String,
    /// Events that can be delivered, or are behind another of their key.
    pub new: u64,
    /// Events that wait for their time: delayed, deferred, or to be retried.
    pub waiting: u64,
    /// Events that hold their key.
    pub held: u64,
    /// Dead letters that block nobody.
    pub dead: u64,
}
