//! Events of owned shards: which can be delivered, and what became of them.

use std::{fmt, sync::Arc, time::Duration};

use async_trait::async_trait;

use super::arc::for_arc;
use super::{Budget, Content, RowLease, Status};
use crate::envelope::Envelope;
use crate::error::Result;
use crate::id::{Epoch, OwnerId, Seq, ShardId, Token};
use crate::verdict::Verdict;

/// Reads events of owned shards, and writes what became of them.
///
/// # Contract
/// - [`settle`](Self::settle) MUST hold a lock on the shard's row while it changes events: a
///   takeover that commits in between must wait, or must be seen.
/// - A verdict MUST apply to a row only while its token is the one that was read, and MUST add 1 to
///   it, so that a repeated settle changes nothing.
/// - A verdict that is a failure MUST leave an audit row, `outbox-send-failed` or
///   `outbox-failed-permanent`, in the same transaction.
/// - Content comes within the [`Budget`] of a read.
/// - Rows that wait for their time, and rows whose key is held, MUST NOT add to the cost of a read.
/// - [`promote`](Self::promote) and [`postpone`](Self::postpone) MUST pass over a row that another
///   transaction has locked.
///
/// # Examples
/// ```
/// use pillarbox::store::{Budget, Events, Read, ShardRead};
/// use pillarbox::{Envelope, MemoryStore, Outbox, Seq, ShardId};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let mut tx = Outbox::new().begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
/// tx.commit().await?;
///
/// let shards = (0..64).map(|n| ShardRead { shard: ShardId(n), floor: Seq::START }).collect();
/// let rows = store.read(&Read { shards, limit: 10, budget: Budget::unlimited() }).await?;
/// assert_eq!(rows[0].event().unwrap().event_type().as_str(), "order.placed");
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Events: Send + Sync {
    /// Reads the new rows of shards, each shard's in order of `seq`.
    async fn read(&self, read: &Read) -> Result<Vec<Pending>>;

    /// Reads the new rows of keys, each key's from its head, in order of `seq`.
    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>>;

    /// Reads the oldest new row of each key of a shard in byte order of the keys, and then the new
    /// rows without a key.
    ///
    /// Rows behind the head of their key MUST NOT add to the cost.
    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads>;

    /// Makes waiting rows new whose time has come, and returns when the next one is due.
    ///
    /// The rows that have been due for longest come first. Tokens do not change. The cost MUST NOT
    /// grow with the rows that are not due.
    async fn promote(&self, promote: &Promote) -> Result<Due>;

    /// Makes new rows wait whose time has not come, each if its token still matches. Returns how many
    /// these were.
    ///
    /// Adds 1 to their tokens, and ends the leases on them.
    async fn postpone(&self, rows: &[RowLease]) -> Result<u64>;

    /// Writes verdicts, fenced by owner and epoch of the shard and by the token of each row.
    async fn settle(&self, settle: &Settle) -> Result<Settled>;

    /// Returns which of these rows another transaction has locked. Never waits.
    ///
    /// Called after a write failed with [`ErrorKind::Busy`](crate::ErrorKind::Busy).
    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>>;

    /// Subscribes to commits in other processes; `None` where the database cannot announce them and
    /// relays poll.
    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>>;

    /// Tells [subscribers](Self::subscribe) that there is something to read. A hint that may get lost.
    async fn notify(&self) -> Result<()>;
}

for_arc!(Events {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>>;
    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>>;
    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads>;
    async fn promote(&self, promote: &Promote) -> Result<Due>;
    async fn postpone(&self, rows: &[RowLease]) -> Result<u64>;
    async fn settle(&self, settle: &Settle) -> Result<Settled>;
    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>>;
    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>>;
    async fn notify(&self) -> Result<()>;
});

/// Which new rows to read.
#[derive(Clone, Debug)]
pub struct Read {
    /// From which shards, each above its floor; content comes for the first ones first.
    pub shards: Vec<ShardRead>,
    /// How many rows of each shard at most.
    pub limit: u32,
    /// How much content at most.
    pub budget: Budget,
}

impl Read {
    /// How many rows at most.
    pub(crate) fn rows(&self) -> usize {
        self.shards.len().saturating_mul(self.limit as usize)
    }

    /// Which of the shards a row is of.
    pub(crate) fn line(&self, row: &Pending) -> usize {
        self.shards.iter().position(|want| want.shard == row.shard).unwrap_or(self.shards.len())
    }
}

/// One shard to read.
#[derive(Clone, Copy, Debug)]
pub struct ShardRead {
    /// The shard.
    pub shard: ShardId,
    /// Only rows above this; [`Seq::START`] reads from the head.
    pub floor: Seq,
}

/// Which keys to read.
#[derive(Clone, Debug)]
pub struct ReadKeys {
    /// The keys, each once; content comes for the first ones first.
    pub keys: Vec<KeyRead>,
    /// How many rows of each key at most.
    pub limit: u32,
    /// How much content at most.
    pub budget: Budget,
}

impl ReadKeys {
    /// How many rows at most.
    pub(crate) fn rows(&self) -> usize {
        self.keys.len().saturating_mul(self.limit as usize)
    }

    /// Which of the keys a row is of.
    pub(crate) fn line(&self, row: &Pending) -> usize {
        let is_of = |want: &KeyRead| want.shard == row.shard && Some(&want.key) == row.key.as_ref();
        self.keys.iter().position(is_of).unwrap_or(self.keys.len())
    }
}

/// One key to read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct KeyRead {
    /// The shard the key belongs to.
    pub shard: ShardId,
    /// The key, as a row's `ordering_key` has it.
    pub key: Arc<str>,
}

/// Which heads of keys to read.
#[derive(Clone, Debug)]
pub struct ReadHeads {
    /// The shard.
    pub shard: ShardId,
    /// Where to go on.
    pub after: HeadsCursor,
    /// Without a key, only rows up to this one.
    pub up_to: Seq,
    /// How many rows at most.
    pub limit: u32,
    /// How much content at most.
    pub budget: Budget,
}

/// How far the heads of a shard have been read.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum HeadsCursor {
    /// Up to this key, byte by byte; before all keys, the empty one.
    Key(Arc<str>),
    /// All keys, and what has none up to this row.
    Keyless(Seq),
}

impl HeadsCursor {
    /// In front of all keys.
    pub fn start() -> Self {
        Self::Key(Arc::from(""))
    }

    /// Behind this row, which a page of heads has shown.
    pub(crate) fn at(row: &Pending) -> Self {
        row.key.clone().map_or(Self::Keyless(row.seq), Self::Key)
    }
}

/// Heads of keys.
#[derive(Clone, Debug)]
pub struct Heads {
    /// The oldest new row of each key, blocked or not; behind the last key, rows without one. A page
    /// has either.
    pub rows: Vec<Pending>,
    /// Where to go on; `None` at the end.
    pub next: Option<HeadsCursor>,
    /// The newest new row that the shard had when the read began.
    pub newest: Seq,
}

impl Heads {
    /// Rows as a page of that read brought them, before which the shard had this newest row.
    pub(crate) fn of(read: &ReadHeads, rows: Vec<Pending>, newest: Seq) -> Self {
        let is_full = u32::try_from(rows.len()).is_ok_and(|count| count >= read.limit);
        let last = rows.last().filter(|_| is_full);
        let next = match (&read.after, last) {
            (HeadsCursor::Key(_), Some(last)) => last.key.clone().map(HeadsCursor::Key),
            (HeadsCursor::Key(_), None) => Some(HeadsCursor::Keyless(Seq::START)),
            (HeadsCursor::Keyless(_), last) => last.map(|row| HeadsCursor::Keyless(row.seq)),
        };
        Self { rows, next, newest }
    }
}

/// Which waiting rows to make new.
#[derive(Clone, Debug)]
pub struct Promote {
    /// The shards.
    pub shards: Vec<ShardId>,
    /// The most rows to promote.
    pub limit: u32,
}

/// Waiting rows whose time had come.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Due {
    /// Those that are new now.
    pub rows: Vec<DueRow>,
    /// How long until the next one is due: zero where there are more now, `None` where none waits.
    pub next: Option<Duration>,
}

/// A row that was made new.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DueRow {
    /// Its shard.
    pub shard: ShardId,
    /// Its place in the table.
    pub seq: Seq,
    /// What it is ordered by; `None` = nothing.
    pub key: Option<Arc<str>>,
}

/// A new row, or one that was claimed.
#[derive(Clone, Debug)]
pub struct Pending {
    /// Its place in the table.
    pub seq: Seq,
    /// Its shard.
    pub shard: ShardId,
    /// What it is ordered by; `None` = nothing.
    pub key: Option<Arc<str>>,
    /// How often its state was decided.
    pub token: Token,
    /// New, unless somebody changed that while it was read.
    pub status: Status,
    /// How many attempts have failed.
    pub attempts: u32,
    /// How long until it may be delivered: its time has come, and nobody's lease is on it. Zero
    /// when it is due. A claim gives a lease, and counts none.
    pub due_in: Duration,
    /// Its time has not come, and nobody has a lease on it: it was written as if it had come, and is
    /// to be [postponed](super::Store::postpone).
    pub is_early: bool,
    /// Whether a lease on it has run out. Read, it must be [reclaimed](super::Store::reclaim) first;
    /// claimed, its last owner may have died of it, or an owner before that was counted.
    pub lapsed: bool,
    /// Whether an older row of its key comes first, in the same snapshot: then this one must not be
    /// started.
    pub before: Predecessor,
    /// What it holds, as far as it was read.
    pub content: Content,
}

impl Pending {
    /// The event, if it was read and is valid.
    pub fn event(&self) -> Option<&Envelope> {
        self.content.event()
    }
}

/// What comes before a row, of its key.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Predecessor {
    /// Nothing that this read does not bring: the row may start, after the older ones of its key that
    /// came with it.
    #[default]
    Nothing,
    /// An older row that waits for its time or for an operator.
    Waiting,
    /// An older new row, at or below the floor of the read.
    Unread,
}

/// Verdicts to write, all of one owner.
#[derive(Clone, Debug)]
pub struct Settle {
    /// The owner.
    pub owner: OwnerId,
    /// The verdicts.
    pub settlements: Vec<Settlement>,
}

/// One verdict and its fences.
#[derive(Clone, Debug)]
pub struct Settlement {
    /// The shard of the event.
    pub shard: ShardId,
    /// The epoch at which the shard was held when the event was read.
    pub epoch: Epoch,
    /// The position of the event in the table.
    pub seq: Seq,
    /// The token as it was read.
    pub token: Token,
    /// The verdict to write.
    pub verdict: Verdict,
    /// The route that delivered it; 256 characters at most.
    pub settled_by: Option<String>,
}

/// What a settle came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Settled {
    /// Events whose verdict was written. The others were settled before, or overtaken.
    pub applied: Vec<Seq>,
    /// Shards that are not held at the newest epoch given for them in this call; drop them.
    pub refused: Vec<ShardId>,
}

/// Announces commits of other processes.
#[async_trait]
pub trait Notifications: Send + fmt::Debug {
    /// Waits for the next notification; several may arrive as one. A lost connection is opened again,
    /// and counts as a notification, since some may have been missed.
    ///
    /// # Cancel safety
    /// A dropped wait may lose a notification; polling finds the events.
    async fn recv(&mut self) -> Result<()>;
}
