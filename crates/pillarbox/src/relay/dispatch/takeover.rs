//! Which rows of shards that were taken over may have crashed the last owner.
//!
//! Only rows that were due at the takeover can have been in delivery, and these are the first of
//! each shard.

use std::collections::BTreeMap;

use crate::id::{Epoch, ShardId};
use crate::relay::dispatch::crash_guard::Suspect;
use crate::store::{Pending, RowLease};

/// Rows of each shard that are suspects, however many there are in others.
const AT_LEAST: u32 = 64;

/// One of the first rows of a shard whose last owner died.
#[derive(Debug)]
pub(crate) struct TakenOver {
    pub(crate) row: Pending,
    pub(crate) epoch: Epoch,
}

impl Suspect for TakenOver {
    fn row(&self) -> RowLease {
        RowLease::from(&self.row)
    }
}

/// Shards that were taken over from an owner that died.
#[derive(Debug, Default)]
pub(crate) struct Takeovers {
    /// How many more rows of a shard are suspects in any case.
    left: BTreeMap<ShardId, u32>,
    /// How many more are, of all these shards together.
    more: u32,
}

impl Takeovers {
    /// The owner of these shards has died, with at most so many events unsettled.
    pub(crate) fn add(&mut self, shards: Vec<ShardId>, most_unsettled: u32) {
        if !shards.is_empty() {
            self.left.extend(shards.into_iter().map(|shard| (shard, AT_LEAST)));
            self.more = most_unsettled.saturating_mul(2);
        }
    }

    /// Whether the next row of a shard is a suspect; if so, it is counted as one.
    pub(crate) fn takes(&mut self, shard: ShardId) -> bool {
        let Some(left) = self.left.get_mut(&shard) else { return false };
        if *left > 0 {
            *left -= 1;
        } else if self.more > 0 {
            self.more -= 1;
        } else {
            self.left.remove(&shard);
            return false;
        }
        true
    }

    /// A suspect was put back: the next row of the shard is one instead.
    pub(crate) fn put_back(&mut self, shard: ShardId) {
        *self.left.entry(shard).or_default() += 1;
    }

    pub(crate) fn retain(&mut self, is_ours: impl Fn(ShardId) -> bool) {
        self.left.retain(|shard, _| is_ours(*shard));
    }
}
