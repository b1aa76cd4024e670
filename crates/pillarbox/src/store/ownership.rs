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
/// let shards = store.acquire_shards(&AcquireShards { owner, most: 8, held: vec![] }).await?;
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
    /// not in `held` counts as free: the answer to an earlier call was lost. Acquires nothing for an
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

/// A wish to be entered as an owner.
#[derive(Clone, Debug)]
pub struct Join {
    /// Who, and for how long at first.
    pub lease: Lease,
    /// How it means to claim and order rows.
    pub mode: DeliveryMode,
}

/// A claim on being alive.
#[derive(Clone, Debug)]
pub struct Lease {
    /// Who.
    pub owner: OwnerId,
    /// For how long from now, by the database's clock.
    pub length: Duration,
    /// How many shards the others should make free for it at most; 0 for one that takes none,
    /// because it only writes or is about to leave.
    pub wants: u16,
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It holds for its whole length again.
    Kept,
    /// The owner was removed, and its shards may be another's.
    Lost,
}

/// A living owner that wants shards.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Member {
    /// Who.
    pub owner: OwnerId,
    /// How many shards the others should make free for it at most.
    pub wants: u16,
    /// How many shards it holds.
    pub held: u16,
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl Member {
    /// The member that a row tells of.
    pub(super) fn stored((owner, wants, held): (String, i16, i64)) -> Self {
        Self {
            owner: OwnerId::stored(owner),
            wants: u16::try_from(wants).unwrap_or(0),
            held: u16::try_from(held).unwrap_or(u16::MAX),
        }
    }
}

/// A wish for shards.
#[derive(Clone, Debug)]
pub struct AcquireShards {
    /// For whom.
    pub owner: OwnerId,
    /// How many more at most.
    pub most: u16,
    /// What it knows to hold already.
    pub held: Vec<ShardId>,
}

/// A shard in someone's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OwnedShard {
    /// Which shard.
    pub shard: ShardId,
    /// Since which change of hands.
    pub epoch: Epoch,
    /// How it came to be free.
    pub origin: ShardOrigin,
}

/// How a shard came to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShardOrigin {
    /// Nobody had it, or its owner gave it back.
    Free,
    /// Its owner's lease lapsed: it was killed, paused or cut off.
    Lapsed,
}
