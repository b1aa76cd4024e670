//! What a person would write by hand: the limit that ours is measured against.

#[macro_use]
mod transaction;
pub(crate) mod mysql;
pub(crate) mod postgres;
pub(crate) mod sqlite;

use std::{any::Any, sync::Arc, time::Instant};

use pillarbox::store::Order;
use pillarbox::tx::OpenTx;
use pillarbox::{Envelope, EventId, Key, Outbox, OutboxTx, OwnerId, ShardId, Store, Verdict};

use crate::{
    Result,
    event::{KEYS, OrderPlaced},
    measure::ResourceUse,
};

/// Rows of one page, and of one settle.
pub(crate) const BATCH: u32 = 1000;

/// Tables are told apart by their prefix; all of them are made by our migrations, so that they
/// have the same columns and indexes.
pub(crate) type Prefix = &'static str;

/// The tables that ours works on.
pub(crate) const OURS: Prefix = "";
/// The tables that hand-written statements work on.
pub(crate) const BASELINE: Prefix = "baseline_";

/// A database with an outbox in a place of its own, and the hand-written statements for it. Cheap
/// to clone.
pub(crate) trait Database: Clone + Send + Sync + 'static {
    const NAME: &'static str;
    /// With how many connections transactions are measured.
    const CONNECTIONS: &'static [usize];
    /// With how many readers a drain is measured.
    const READERS: &'static [usize];
    /// With how many claimers row claims are measured.
    const CLAIMERS: &'static [usize];

    /// Whether transactions and claims can get in each other's way.
    const HAS_CONTENTION: bool;

    /// The server, in its own words.
    fn server(&self) -> &str;

    /// The store on the tables with this prefix.
    fn store(&self, prefix: Prefix) -> Result<Arc<dyn Store>>;

    /// What the server has used so far.
    fn used(&self) -> impl Future<Output = Result<ResourceUse>> + Send;

    /// The same database with a pool of this many connections for stores and loops: each gets its
    /// statements planned once and for all.
    fn workers(&self, connections: usize) -> impl Future<Output = Result<Self>> + Send;

    /// Empties the table of events, and begins to count anew.
    fn empty(&self, prefix: Prefix) -> impl Future<Output = Result> + Send;

    /// Adds events to the table.
    fn load(&self, prefix: Prefix, load: Load) -> impl Future<Output = Result> + Send;

    /// Lets the database see what is in the table.
    fn analyze_table(&self, prefix: Prefix) -> impl Future<Output = Result> + Send;

    /// How many rows have this status.
    fn count(&self, prefix: Prefix, status: i16) -> impl Future<Output = Result<u64>> + Send;

    /// Empties what transactions write into.
    fn clear(&self) -> impl Future<Output = Result> + Send;

    /// One business transaction: a small insert, and perhaps an event.
    fn transact(&self, order: i64, emit: Emit) -> impl Future<Output = Result> + Send;

    /// One business transaction with an event through this outbox, with a key or without; returns
    /// its id, and when the commit was answered.
    fn emit(
        &self,
        outbox: &Outbox,
        order: i64,
        keyed: bool,
    ) -> impl Future<Output = Result<(EventId, Instant)>> + Send;

    /// One transaction with this many events and nothing else.
    fn transact_many(
        &self,
        first: i64,
        count: u32,
        emit: Emit,
    ) -> impl Future<Output = Result> + Send;

    /// Reads and settles all that is pending in these shards; returns how many that were.
    fn drain(
        &self,
        shards: Vec<ShardId>,
        mode: SettleMode,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Claims a batch for an owner, the shards in this order, and deletes it; returns its size.
    fn claim(
        &self,
        owner: &OwnerId,
        shards: &[ShardId],
        order: Order,
    ) -> impl Future<Output = Result<u64>> + Send;

    /// Deletes every event, row by row.
    fn delete(&self, prefix: Prefix) -> impl Future<Output = Result> + Send {
        async move { self.execute(&format!("delete from {prefix}outbox_event")).await }
    }

    /// Holds a snapshot until it is dropped; `None` where that keeps no dead rows in the table.
    fn hold_snapshot(&self) -> impl Future<Output = Result<Option<HeldSnapshot>>> + Send;

    /// The indexes of the table of events that can be dropped.
    fn indexes(&self, prefix: Prefix) -> impl Future<Output = Result<Vec<Index>>> + Send;

    /// Runs statements without arguments.
    fn execute(&self, sql: &str) -> impl Future<Output = Result> + Send;
}

/// Empties the table of events and fills it with ones that are due.
pub(crate) async fn fill<D: Database>(database: &D, prefix: Prefix, count: u32) -> Result {
    fill_keys(database, prefix, count, KEYS).await
}

/// The same, spread over this many keys.
pub(crate) async fn fill_keys<D: Database>(
    database: &D,
    prefix: Prefix,
    count: u32,
    keys: u32,
) -> Result {
    database.empty(prefix).await?;
    database.load(prefix, Load { first: 1, count, keys, status: 0 }).await?;
    database.analyze_table(prefix).await
}

/// Emits an order with a transaction, ordered by itself or by nothing.
async fn emit_order<T: OpenTx>(tx: &mut OutboxTx<T>, order: i64, keyed: bool) -> Result<EventId> {
    let event = OrderPlaced::new(order);
    let id = if keyed {
        tx.emit(&event).await?
    } else {
        tx.emit_envelope(Envelope::of(&event)?.key(Key::Free)?).await?
    };
    Ok(id.ok_or("the event was dropped")?)
}

/// A snapshot held elsewhere.
pub(crate) type HeldSnapshot = Box<dyn Any + Send>;

/// Events to add to a table.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    /// The number of the first, for the ids.
    pub(crate) first: u32,
    pub(crate) count: u32,
    /// How many keys they are spread over; with none they are ordered by nothing.
    pub(crate) keys: u32,
    pub(crate) status: i16,
}

/// An index, and how to take it away and bring it back.
#[derive(Clone, Debug)]
pub(crate) struct Index {
    pub(crate) name: String,
    pub(crate) drop: String,
    pub(crate) create: String,
}

/// How a transaction's event is written.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Emit {
    /// Through the library.
    Ours,
    /// By a hand-written INSERT into a table like ours.
    Baseline,
    /// By a hand-written INSERT into a table that has a primary key and no other index.
    Slim,
    /// Not at all.
    Nothing,
}

/// What becomes of an event that was delivered.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum SettleMode {
    Delete,
    Mark,
}

impl SettleMode {
    pub(crate) const fn verdict(self) -> Verdict {
        match self {
            Self::Delete => Verdict::Delete,
            Self::Mark => Verdict::Done,
        }
    }
}
