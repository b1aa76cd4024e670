//! Leases on rows: due rows, one by one.

use std::{sync::Arc, time::Duration};

use async_trait::async_trait;

use super::arc::for_arc;
use super::{Budget, Order, Pending, Settlement};
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::verdict::Verdict;

/// Leases rows one by one: [`ClaimMode::Rows`](super::ClaimMode::Rows).
///
/// # Contract
/// - Claims MUST pass each other, not wait for each other.
/// - A claim MUST add 1 to the token of a row, so that an earlier verdict under way cannot apply.
/// - Only the lease of a row counts: whether its owner is registered is not checked. An owner whose
///   own lease has lapsed claims and delivers nothing before it has renewed it.
/// - [`renew_rows`](Self::renew_rows), [`reclaim`](Self::reclaim) and
///   [`record_starts`](Self::record_starts) MUST NOT wait for a row that another transaction has
///   locked. Such a row stays as it is, and [`Events::locked`](super::Events::locked) returns it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::store::{Budget, Claim, Claims, Order};
/// use pillarbox::{Envelope, MemoryStore, Outbox, OwnerId, ShardId};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let mut tx = Outbox::new().begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
/// tx.commit().await?;
///
/// let claim = Claim {
///     owner: OwnerId::generate(),
///     length: Duration::from_secs(15),
///     shards: (0..64).map(ShardId).collect(),
///     after: None,
///     limit: 100,
///     budget: Budget::unlimited(),
///     order: Order::Key,
/// };
/// assert_eq!(store.claim(&claim).await?.len(), 1);
/// assert_eq!(store.claim(&claim).await?.len(), 0); // it is leased
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Claims: Send + Sync {
    /// Leases new rows to an owner, and rows whose lease has lapsed.
    ///
    /// In order of keys, only the oldest row of a key that is not final can be claimed. A new row
    /// whose time has not come is leased too, so that its claimer can
    /// [postpone](super::Events::postpone) it. Rows beyond the claim's [`Budget`] are leased too, and
    /// come without content.
    ///
    /// A row that is larger than any event MAY be left to the owner of its shard, and to a claim that
    /// finds nothing else. It MAY be returned without a lease, with the token that it has. Then every
    /// claim returns it until its verdict is written, unless the budget skips it.
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>>;

    /// Extends the leases of rows that are still this owner's. Returns which these are.
    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>>;

    /// Releases undelivered rows that are still this owner's; they are due at once. Returns how many
    /// these were.
    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64>;

    /// Ends leases that have lapsed by the database's clock, each if the row's token still matches.
    /// Returns how many these were.
    ///
    /// Adds 1 to the tokens, so that a verdict of the former owner cannot apply.
    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64>;

    /// Increments the crash counter of rows that are about to be delivered and may have crashed a
    /// previous relay. Returns the new counters.
    ///
    /// A row is counted only if it is new or waits for its retry, its token matches, and its counter
    /// is below [`Starts::below`]. The token does not change. A verdict and a replay reset the
    /// counter.
    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>>;

    /// Writes verdicts on claimed rows, fenced by owner and token of each row. Returns which were
    /// written.
    ///
    /// If claims do not lease rows that are larger than any event, the token alone fences the verdict
    /// on such a row while nobody has leased it.
    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>>;

    /// Counts the rows of shards that can be delivered now, up to [`MAX_DUE`]: due, not leased, and
    /// not behind an older row of their key that waits for its time or for an operator.
    ///
    /// Reads no more new rows than that.
    async fn count_due(&self, shards: &[ShardId]) -> Result<u64>;
}

for_arc!(Claims {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>>;
    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>>;
    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64>;
    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64>;
    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>>;
    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>>;
    async fn count_due(&self, shards: &[ShardId]) -> Result<u64>;
});

/// Most rows that [`Claims::count_due`] counts.
pub const MAX_DUE: u32 = 100_000;

/// A wish for due rows.
#[derive(Clone, Debug)]
pub struct Claim {
    /// The new owner of the leases.
    pub owner: OwnerId,
    /// For how long from now, by the database's clock.
    pub length: Duration,
    /// From which shards, the most wanted first; [`Claim::turn`] says which they are next.
    pub shards: Vec<ShardId>,
    /// In the first shard only keys after this one, byte by byte, are looked at. It has a meaning
    /// in the order of keys only.
    pub after: Option<Arc<str>>,
    /// How many rows at most, of all shards together.
    pub limit: u32,
    /// How much content at most.
    pub budget: Budget,
    /// Whether only the head of a key is to be had: its oldest row that is not final. A row that
    /// becomes the head later, by a replay or by a commit that came late, is to be had while a
    /// younger one of its key is still in someone's hands.
    ///
    /// A shard's keys are looked at one after the other, and then what has no key; without order
    /// its rows are, from the oldest on. What is given comes by shard and by age.
    pub order: Order,
}

impl Claim {
    /// Turns to where this claim ended, so that the next one leaves no shard and no key out, however
    /// much there is in front of them.
    ///
    /// ```
    /// use std::time::Duration;
    /// use pillarbox::store::{Budget, Claim, Order};
    /// use pillarbox::{OwnerId, ShardId};
    ///
    /// let mut claim = Claim {
    ///     owner: OwnerId::generate(),
    ///     length: Duration::from_secs(15),
    ///     shards: vec![ShardId(0), ShardId(1), ShardId(2)],
    ///     after: None,
    ///     limit: 100,
    ///     budget: Budget::unlimited(),
    ///     order: Order::Key,
    /// };
    /// // `store.claim(&claim)` gave nothing, so the next one begins in the next shard.
    /// claim.turn(&[]);
    /// assert_eq!(claim.shards, [ShardId(1), ShardId(2), ShardId(0)]);
    /// ```
    pub fn turn(&mut self, claimed: &[Pending]) {
        self.after = None;
        if self.shards.is_empty() {
            return;
        }
        let is_full = u32::try_from(claimed.len()).is_ok_and(|count| count >= self.limit);
        let Some(last) = claimed.last().filter(|_| is_full && self.order == Order::Key) else {
            return self.shards.rotate_left(1);
        };
        let place = self.shards.iter().position(|shard| *shard == last.shard).unwrap_or_default();
        self.shards.rotate_left(place);
        let keys = claimed.iter().filter(|row| row.shard == last.shard).map(|row| &row.key);
        // What has no key comes last: then this shard was seen to its end.
        match keys.max_by_key(|key| (key.is_none(), *key)) {
            Some(Some(key)) => self.after = Some(Arc::clone(key)),
            _ => self.shards.rotate_left(1),
        }
    }
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

impl From<&Settlement> for RowLease {
    fn from(it: &Settlement) -> Self {
        Self { shard: it.shard, seq: it.seq, token: it.token }
    }
}

impl From<&Pending> for RowLease {
    fn from(row: &Pending) -> Self {
        Self { shard: row.shard, seq: row.seq, token: row.token }
    }
}

/// Leases to prolong.
#[derive(Clone, Debug)]
pub struct RenewRows {
    /// The owner.
    pub owner: OwnerId,
    /// For how long from now, by the database's clock.
    pub length: Duration,
    /// The rows.
    pub rows: Vec<RowLease>,
}

/// Rows that are about to be delivered and may have crashed their last owner.
#[derive(Clone, Debug)]
pub struct Starts {
    /// The rows, as they were read.
    pub rows: Vec<RowLease>,
    /// Only rows whose crash counter is below this.
    pub below: u32,
}

/// Verdicts on claimed rows, all of one owner.
#[derive(Clone, Debug)]
pub struct SettleRows {
    /// The owner.
    pub owner: OwnerId,
    /// The verdicts.
    pub verdicts: Vec<RowVerdict>,
}

/// One verdict on a claimed row.
#[derive(Clone, Debug)]
pub struct RowVerdict {
    /// The row and its fence.
    pub row: RowLease,
    /// The verdict to write.
    pub verdict: Verdict,
    /// The route that delivered it.
    pub settled_by: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::{Content, Predecessor, Status};

    fn claim(order: Order) -> Claim {
        Claim {
            owner: OwnerId::generate(),
            length: Duration::from_secs(1),
            shards: vec![ShardId(5), ShardId(6), ShardId(7)],
            after: Some("k".into()),
            limit: 3,
            budget: Budget::unlimited(),
            order,
        }
    }

    fn row(shard: i16, seq: i64, key: Option<&str>) -> Pending {
        Pending {
            seq: Seq(seq),
            shard: ShardId(shard),
            key: key.map(Into::into),
            token: Token(1),
            status: Status::New,
            attempts: 0,
            due_in: Duration::ZERO,
            is_early: false,
            lapsed: false,
            before: Predecessor::Nothing,
            content: Content::Unread { size: 1 },
        }
    }

    fn turned(order: Order, claimed: &[Pending]) -> (Vec<i16>, Option<String>) {
        let mut claim = claim(order);
        claim.turn(claimed);
        let after = claim.after.as_deref().map(str::to_owned);
        (claim.shards.iter().map(|shard| shard.0).collect(), after)
    }

    #[test]
    fn a_short_claim_turns_to_the_next_shard_from_its_first_key_on() {
        let rows = [row(6, 1, Some("x"))];

        assert_eq!(turned(Order::Key, &rows), (vec![6, 7, 5], None));
        assert_eq!(turned(Order::Key, &[]), (vec![6, 7, 5], None));
    }

    #[test]
    fn a_full_claim_turns_to_the_key_that_it_ended_with() {
        let rows = [row(5, 3, Some("z")), row(6, 1, Some("b")), row(6, 2, Some("a"))];

        assert_eq!(turned(Order::Key, &rows), (vec![6, 7, 5], Some("b".to_owned())));
    }

    #[test]
    fn a_full_claim_that_ended_without_a_key_turns_to_the_next_shard() {
        let rows = [row(5, 3, Some("z")), row(6, 1, None), row(6, 2, Some("a"))];

        assert_eq!(turned(Order::Key, &rows), (vec![7, 5, 6], None));
    }

    #[test]
    fn without_order_a_claim_turns_to_the_next_shard() {
        let rows = [row(6, 1, Some("a")), row(6, 2, Some("b")), row(6, 3, Some("c"))];

        assert_eq!(turned(Order::None, &rows), (vec![6, 7, 5], None));
    }
}
