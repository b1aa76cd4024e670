//! The store contract: what a database must do for the relay, an operator and upkeep.

mod claim;
mod content;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod mark;
pub mod memory;
mod mode;
#[cfg(feature = "mysql")]
pub mod mysql;
mod operate;
#[cfg(feature = "postgres")]
pub mod postgres;
mod purge;
mod read;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod stats;

use std::{fmt, num::NonZeroU16, time::Duration};

/// What a [`Store`] is implemented with: `#[pillarbox::store::async_trait] impl Store for …`.
pub use async_trait::async_trait;

pub use self::claim::{Claim, RenewRows, RowLease, RowVerdict, SettleRows};
pub use self::content::{Budget, Content};
pub use self::mode::{ClaimMode, Mode, Order};
pub use self::operate::{
    Action, AuditEntry, Changed, Cursor, DeadLetter, Direction, FAILED_PERMANENT, Filter, List,
    MAX_BATCH, Operated, Operation, SEND_FAILED, Target,
};
pub use self::purge::{Purge, PurgeKind};
pub use self::read::{
    Before, Due, DueRow, Heads, HeadsCursor, KeyRead, Pending, Promote, Read, ReadHeads, ReadKeys,
    ShardRead,
};
pub use self::stats::{Breakdown, MAX_TYPES, ShardStats, Stats, TypeStats};
use crate::clock::Timestamp;
use crate::envelope::{BadRow, Envelope};
use crate::error::Result;
use crate::id::{Epoch, EventId, OwnerId, Seq, ShardId, Token};
use crate::table::TablePrefix;
use crate::verdict::Verdict;

/// The minimum a database must do for the relay.
///
/// The store owns its connections and never writes into a caller's transaction. Prove an
/// implementation with `pillarbox_testkit::store_conformance!`.
///
/// # Contract
/// - Every time that is written or compared is the **database's** clock; callers send durations.
/// - A shard has at most one owner, and its epoch grows by one with every acquisition.
/// - [`settle`](Self::settle) MUST hold a lock on the shard's row while it changes events: a
///   takeover that commits in between must wait, or must be seen. A look is not a fence.
/// - A verdict MUST apply to a row only while its token is the one that was read, and MUST add 1
///   to it, so that a repeated settle changes nothing. A claim and every operation of an operator
///   MUST add 1 too, so that a verdict under way cannot undo them.
/// - A verdict that is a failure MUST leave an audit row, `outbox-send-failed` or
///   `outbox-failed-permanent`, in the same transaction; so MUST every operation.
/// - An index MUST keep the cost of reads and claims from growing with the rows that are done.
/// - `seq` MUST grow in order of insertion within one transaction and MUST never be used twice.
/// - A future that is dropped half-way MUST leave all of a call's writes or none of them.
/// - Errors that may pass by themselves MUST be
///   [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), or
///   [`ErrorKind::Busy`](crate::ErrorKind::Busy) where a lock or a time limit stopped the statement.
/// - A call MUST NOT wait for a lock on a row for longer than a few seconds.
#[async_trait]
pub trait Store: Send + Sync + fmt::Debug + 'static {
    /// What the database is called in logs and metrics: `postgres`, `mysql`, `sqlite`.
    fn name(&self) -> &'static str;

    /// What its tables' names begin with; empty where there are none.
    fn prefix(&self) -> TablePrefix;

    /// Whether a pooler stands before the database, in whose sessions no statement has a name.
    fn is_pooled(&self) -> bool {
        false
    }

    /// Creates or updates the tables. Safe from many processes at once, and after a kill.
    async fn migrate(&self) -> Result<()>;

    /// Checks that the tables are there, fit this library, and can be written, and that `seq` is
    /// not behind what was [marked](Self::mark_seq): then it is refused with
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration), and the message has the
    /// statement that sets it right. Where the database does not tell how far it has counted, that
    /// is not checked.
    async fn layout(&self) -> Result<Layout>;

    /// Persists how far `seq` has come, if that is further than before. The relay that purges calls
    /// it with every round; a writer never does.
    async fn mark_seq(&self) -> Result<()>;

    /// Sets how rows are claimed and ordered. Refused with
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) while an owner's lease lives;
    /// one that has lapsed is removed, so that it cannot renew into a mode that is not its own.
    async fn configure(&self, mode: &Mode) -> Result<()>;

    /// Enters an owner with its first lease. Refused with
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when the tables are set to
    /// another mode than the owner's.
    async fn join(&self, join: &Join) -> Result<()>;

    /// Prolongs an owner's lease, unless it was removed.
    async fn renew(&self, lease: &Lease) -> Result<Renewal>;

    /// Lists the living owners that want shards, those that hold most first, [`MAX_MEMBERS`] at
    /// most. One whose lease has lapsed MUST NOT be listed, nor one that wants none.
    async fn members(&self) -> Result<Vec<Member>>;

    /// Removes owners whose lease has lapsed and takes shards without an owner, all in one
    /// transaction. A lease that ends later than twice its length from now was written by a clock
    /// that was ahead: it counts as lapsed, and the leases that its owner has on rows end. A shard that is this owner's and not in `held` counts as free: the answer to
    /// an earlier take was lost. Takes nothing for an owner that is not entered.
    async fn take(&self, take: &Take) -> Result<Vec<Holding>>;

    /// Gives shards back that are still held at these epochs.
    async fn release(&self, owner: &OwnerId, holdings: &[Holding]) -> Result<u64>;

    /// Gives every shard back and removes the owner.
    async fn leave(&self, owner: &OwnerId) -> Result<()>;

    /// Reads the new rows of shards, each shard's in order of `seq`. Rows that wait for their time and
    /// held rows are not read, and MUST cost nothing. Content comes within the read's [`Budget`].
    async fn read(&self, read: &Read) -> Result<Vec<Pending>>;

    /// Reads the new rows of keys, each key's from its head, in order of `seq`. Content comes within
    /// the read's [`Budget`].
    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>>;

    /// Reads the oldest new row of each key of a shard, in order of the keys' bytes, and after the
    /// keys the new rows without one. What waits behind the oldest row of a key MUST cost nothing.
    /// Content comes within the read's [`Budget`].
    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads>;

    /// Makes waiting rows new whose time has come, those first that have been due for longest, and
    /// says when the next one is due. Tokens stay, for nothing is decided. A row that another
    /// transaction has locked is left alone, and the cost MUST NOT grow with what is not due.
    async fn promote(&self, promote: &Promote) -> Result<Due>;

    /// Makes new rows wait whose time has not come, each if it still has this token, which moves on.
    /// Leases on them end. Says how many these were. A row that another transaction has locked is left
    /// alone.
    async fn postpone(&self, rows: &[RowLease]) -> Result<u64>;

    /// Writes verdicts, fenced by owner and epoch of the shard and by each row's token.
    async fn settle(&self, settle: &Settle) -> Result<Settled>;

    /// Leases new rows to an owner, one by one: [`ClaimMode::Rows`]. A row whose lease has lapsed
    /// can be had again. Ordered, a key's oldest row that is not final is the only one to be had.
    /// A new row whose time has not come is leased too, for its claimer to
    /// [postpone](Self::postpone).
    /// Claims MUST pass each other, not wait for each other. Whether the owner is entered is not
    /// asked: one whose lease has lapsed claims and delivers nothing before it has renewed it.
    /// Rows beyond the claim's [`Budget`] are leased too, and come without their content.
    /// A row that is larger than any event MAY be left to a claim that finds nothing else, and to
    /// the owner of its shard. It MAY come without a lease, under the token that it has, and then
    /// comes again until its verdict is written, unless the budget skips it.
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>>;

    /// Prolongs the leases of rows that are still this owner's, and says which these are. This,
    /// [`reclaim`](Self::reclaim) and [`suspect`](Self::suspect) MUST NOT wait for a row that another
    /// transaction has locked: it is left as it is, and [`locked`](Self::locked) names it.
    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>>;

    /// Gives rows back, undelivered, that are still this owner's; they are due at once.
    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64>;

    /// Frees rows whose lease has run out by the database's clock, each if it still has this token,
    /// and moves the token on: a verdict of the one who held the lease comes too late then. Says
    /// how many these were.
    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64>;

    /// Counts that deliveries of these rows are about to begin which may end their process, as one
    /// before may have done: of rows that are new or wait, each if it still has this token,
    /// which stays, and was counted fewer times than said. Says of each that it counted how often
    /// that was since its last verdict. A verdict and a replay set it back.
    async fn suspect(&self, suspects: &Suspects) -> Result<Vec<(Seq, u32)>>;

    /// Writes verdicts on claimed rows, each fenced by the row's owner and token alone, and says
    /// which were written. Where a claim leases no row that is larger than any event, the token
    /// fences the verdict on such a row, as long as nobody has leased it.
    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>>;

    /// Which of these rows another transaction has locked, so that a write would have to wait. Asked
    /// after a write was [busy](crate::ErrorKind::Busy), and MUST NOT wait itself.
    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>>;

    /// Counts the rows of shards that can be delivered now, up to [`MAX_DUE`]: due, not leased, and
    /// not behind an older row of their key that waits for its time or for an operator. Looks at no
    /// more new rows than that.
    async fn count_due(&self, shards: &[ShardId]) -> Result<u64>;

    /// Hears of commits in other processes, where the database can tell; `None` where it cannot,
    /// and polling is all there is.
    async fn hear(&self) -> Result<Option<Box<dyn Bell>>>;

    /// Tells those who [hear](Self::hear) that there is something to read. A hint: it may get lost.
    async fn ring(&self) -> Result<()>;

    /// Lists dead letters and held events, without their payloads.
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>>;

    /// Counts dead letters and held events.
    async fn count_dead(&self, filter: &Filter) -> Result<u64>;

    /// Replays, skips or discards events, and says how many of them are dead letters or held, and
    /// which were changed. Those that are not in the state for it are left alone. A target that is
    /// a `seq` MUST be found whatever the id of its row looks like.
    ///
    /// The relay finds them at its next sweep, or at once after a wake.
    async fn operate(&self, operation: &Operation) -> Result<Operated>;

    /// What failed and was done about the event with this id, oldest first; the newest
    /// [`MAX_BATCH`] entries. The id is a text, for a row may have one that is no [`EventId`].
    async fn trail(&self, id: &str) -> Result<Vec<AuditEntry>>;

    /// Deletes up to `limit` rows that are done with. Never a pending or held one, except for
    /// [`PurgeKind::Any`], which is refused unless nobody delivers from the tables.
    async fn purge(&self, purge: &Purge) -> Result<u64>;

    /// Counts what is pending and what is dead, at a cost that does not grow with what is done.
    async fn stats(&self) -> Result<Stats>;

    /// Counts by shard and by event type; counts what is done too, and may take its time.
    async fn breakdown(&self) -> Result<Breakdown>;

    /// One event and its state.
    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>>;
}

/// What `migrate` has laid down.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// How many shards keys are hashed into.
    pub shards: NonZeroU16,
    /// How rows are claimed and ordered.
    pub mode: Mode,
}

/// A wish to be entered as an owner.
#[derive(Clone, Debug)]
pub struct Join {
    /// Who, and for how long at first.
    pub lease: Lease,
    /// How it means to claim and order rows.
    pub mode: Mode,
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

/// As many members as [`Store::members`] lists.
pub const MAX_MEMBERS: u16 = 1000;

/// As many rows as [`Store::count_due`] counts.
pub const MAX_DUE: u32 = 100_000;

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
    fn stored((owner, wants, held): (String, i16, i64)) -> Self {
        Self {
            owner: OwnerId::stored(owner),
            wants: u16::try_from(wants).unwrap_or(0),
            held: u16::try_from(held).unwrap_or(u16::MAX),
        }
    }
}

/// What became of a lease.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Renewal {
    /// It holds for its whole length again.
    Kept,
    /// The owner was removed, and its shards may be another's.
    Lost,
}

/// A wish for shards.
#[derive(Clone, Debug)]
pub struct Take {
    /// For whom.
    pub owner: OwnerId,
    /// How many more at most.
    pub most: u16,
    /// What it knows to hold already.
    pub held: Vec<ShardId>,
}

/// A shard in someone's hands.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Holding {
    /// Which shard.
    pub shard: ShardId,
    /// Since which change of hands.
    pub epoch: Epoch,
    /// How it came to be free.
    pub origin: Origin,
}

/// How a shard came to be free.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Origin {
    /// Nobody had it, or its owner gave it back.
    Free,
    /// Its owner's lease lapsed: it was killed, paused or cut off.
    Lapsed,
}

/// Rows that their last owner may have died of.
#[derive(Clone, Debug)]
pub struct Suspects {
    /// The rows, as they were read.
    pub rows: Vec<RowLease>,
    /// Only those that were counted fewer times than this.
    pub below: u32,
}

/// Rings when something was committed elsewhere.
#[async_trait]
pub trait Bell: Send + fmt::Debug {
    /// Waits for the next ring; many at once may count as one. A connection that was lost is made
    /// again, and counts as a ring, since nobody knows what was missed.
    ///
    /// # Cancel safety
    /// A dropped wait may lose a ring: polling finds what it was about.
    async fn rung(&mut self) -> Result<()>;
}

/// Where an event is in its life.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Status {
    /// Not delivered yet.
    New,
    /// Delivered.
    Done,
    /// Delayed, deferred, or to be retried: it waits for its time.
    Waiting,
    /// Given up.
    Dead,
    /// Given up, and its key waits for it.
    Held,
}

impl Status {
    /// The number in the `status` column.
    pub const fn code(self) -> i16 {
        match self {
            Self::New => 0,
            Self::Done => 1,
            Self::Waiting => 2,
            Self::Dead => 3,
            Self::Held => 4,
        }
    }

    /// The status that a number in the column stands for.
    pub const fn from_code(code: i16) -> Option<Self> {
        match code {
            0 => Some(Self::New),
            1 => Some(Self::Done),
            2 => Some(Self::Waiting),
            3 => Some(Self::Dead),
            4 => Some(Self::Held),
            _ => None,
        }
    }
}

/// Verdicts to write, all of one owner.
#[derive(Clone, Debug)]
pub struct Settle {
    /// Whose.
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
    /// Which event.
    pub seq: Seq,
    /// The token as it was read.
    pub token: Token,
    /// What to write.
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

/// An event as it stands in the table.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// Its place.
    pub seq: Seq,
    /// Its shard.
    pub shard: ShardId,
    /// What it is ordered by.
    pub key: Option<String>,
    /// How often its state was decided.
    pub token: Token,
    /// Where it is in its life.
    pub status: Status,
    /// How many attempts have failed.
    pub attempts: u32,
    /// When it may be delivered.
    pub available_at: Timestamp,
    /// When it was inserted, by the database's clock.
    pub created_at: Timestamp,
    /// When its last verdict was written, if it was a final one.
    pub done_at: Option<Timestamp>,
    /// The route that settled it.
    pub settled_by: Option<String>,
    /// Why its last attempt failed.
    pub last_error: Option<String>,
    /// The event, or why the row is none.
    pub event: Result<Envelope, BadRow>,
}
