//! Row claims: due rows under a lease of their own.

use std::time::Duration;

use super::{Order, Pending};
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::verdict::Verdict;

/// A wish for due rows.
#[derive(Clone, Debug)]
pub struct Claim {
    /// For whom.
    pub owner: OwnerId,
    /// For how long from now, by the database's clock.
    pub length: Duration,
    /// From which shards, the most wanted first. Turn the order from claim to claim, so that no
    /// shard is always the last.
    pub shards: Vec<ShardId>,
    /// How many rows at most, of all shards together.
    pub limit: u32,
    /// Whether only the head of a key is to be had: its oldest row that is not final. A row that
    /// becomes the head later, by a replay or by a commit that came late, is to be had while a
    /// younger one of its key is still in someone's hands.
    pub order: Order,
}

/// A row that is leased to an owner, under the token that its claim gave it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RowLease {
    /// Its shard.
    pub shard: ShardId,
    /// Its place.
    pub seq: Seq,
    /// Its token since the claim.
    pub token: Token,
}

impl From<&Pending> for RowLease {
    fn from(row: &Pending) -> Self {
        Self { shard: row.shard, seq: row.seq, token: row.token }
    }
}

/// Leases to prolong.
#[derive(Clone, Debug)]
pub struct RenewRows {
    /// Whose.
    pub owner: OwnerId,
    /// For how long from now, by the database's clock.
    pub length: Duration,
    /// Which.
    pub rows: Vec<RowLease>,
}

/// Verdicts on claimed rows, all of one owner.
#[derive(Clone, Debug)]
pub struct SettleRows {
    /// Whose.
    pub owner: OwnerId,
    /// The verdicts.
    pub verdicts: Vec<RowVerdict>,
}

/// One verdict on a claimed row.
#[derive(Clone, Debug)]
pub struct RowVerdict {
    /// Which row, and its fence.
    pub row: RowLease,
    /// What to write.
    pub verdict: Verdict,
    /// The route that delivered it.
    pub settled_by: Option<String>,
}
