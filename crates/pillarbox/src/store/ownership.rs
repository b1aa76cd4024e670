//! Leases of relays, and the shards that they own.

use std::time::Duration;

use async_trait::async_trait;

use super::DeliveryMode;
use super::arc::for_arc;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, ShardId};

/// Leases of relays, and the shards that they own.
///
/// # Contract
/// - A shard MUST have at most one owner, and its epoch MUST grow by one with every acquisition.
/// - A takeover MUST be one transaction, and MUST wait for a settle that has locked the shard.
/// - An owner whose lease has lapsed MUST NOT be listed, and MUST lose its shards to the next relay
///   that acquires some.
/// - A lease that ends later than twice its length from now was written by a clock that was ahead. It
///   MUST count as lapsed.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::store::{AcquireShards, DeliveryMode, Join, Lease, Ownership};
/// use pillarbox::{MemoryStore, OwnerId};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let lease = Lease { owner: OwnerId::generate(), length: Duration::from_secs(15), wants: 64 };
/// let owner = lease.owner.clone();
/// store.join(&Join { lease, mode: DeliveryMode::default() }).await?;
///
/// let shards = store.acquire_shards(&AcquireShards { owner, most: 8, owned: vec![] }).await?;
/// assert_eq!(shards.len(), 8);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Ownership: Send + Sync {
    /// Registers an owner with its first lease.
    ///
    /// Returns [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) if the tables are set to
    /// another mode than the owner's.
    async fn join(&self, join: &Join) -> Result<()>;

    /// Extends an owner's lease, unless the owner was removed.
    async fn renew(&self, lease: &Lease) -> Result<Renewal>;

    /// Lists the live owners that want shards, those that own most first; [`MAX_MEMBERS`] at most.
    async fn members(&self) -> Result<Vec<Member>>;

    /// Removes owners whose lease has lapsed, and acquires shards that have no owner.
    ///
    /// The leases on rows of an owner whose clock was ahead end with it. A shard of this owner that is
    /// not in `owned` counts as free: the answer to an earlier call was lost. Acquires nothing for an
    /// owner that is not registered.
    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>>;

    /// Releases shards that are still owned at these epochs. Returns how many these were.
    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64>;

    /// Releases all shards of an owner, and removes the owner.
    async fn leave(&self, owner: &OwnerId) -> Result<()>;
}

for_arc!(Ownership {
    async fn join(&self, join: &Join) -> Result<()>;
    async fn renew(&self, lease: &Lease) -> Result<Renewal>;
    async fn members(&self) -> Result<Vec<Member>>;
    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>>;
    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64>;
    async fn leave(&self, owner: &OwnerId) -> Result<()>;
});

/// Most members that [`Ownership::members`] lists.
pub const MAX_MEMBERS: u16 = 1000;

/// An owner to register.
#[derive(Clone, Debug)]
pub struct Join {
    /// Its first lease.
    pub lease: Lease,
    /// How it claims and orders rows.
    pub mode: DeliveryMode,
}

/// The lease of an owner: while it is valid, the owner is alive.
#[derive(Clone, Debug)]
pub struct Lease {
    /// The owner.
    pub owner: OwnerId,
    /// How long it is valid from now on, by the database's clock.
    pub length: Duration,
    /// The most shards that others should release for it; 0 for an owner that wants none, because it
    /// only writes or is about to leave.
    pub wants: u16,
}

/// The outcome of a renewal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// The lease is valid for its whole length again.
    Kept,
    /// The owner was removed, and its shards may have another owner.
    Lost,
}

/// A living owner that wants shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// The owner.
    pub owner: OwnerId,
    /// The most shards that others should release for it.
    pub wants: u16,
    /// How many shards it owns.
    pub owned: u16,
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl Member {
    /// The member that a row tells of.
    pub(super) fn stored((owner, wants, owned): (String, i16, i64)) -> Self {
        Self {
            owner: OwnerId::stored(owner),
            wants: u16::try_from(wants).unwrap_or(0),
            owned: u16::try_from(owned).unwrap_or(u16::MAX),
        }
    }
}

/// Shards to acquire.
#[derive(Clone, Debug)]
pub struct AcquireShards {
    /// The new owner.
    pub owner: OwnerId,
    /// The most shards to acquire.
    pub most: u16,
    /// The shards that it knows to own already.
    pub owned: Vec<ShardId>,
}

/// A shard and its ownership.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedShard {
    /// The shard.
    pub shard: ShardId,
    /// The epoch of this ownership.
    pub epoch: Epoch,
    /// How it became free.
    pub origin: ShardOrigin,
}

/// How a shard became free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardOrigin {
    /// It had no owner, or its owner released it.
    Free,
    /// Its owner's lease lapsed: it was killed, paused or cut off.
    Lapsed,
}
