//! The backend contract: what a database must offer so that the suites can test it.

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

use pillarbox::store::ShardRead;
use pillarbox::tx::{Begin, OpenTx};
use pillarbox::{
    Accepted, Envelope, EventId, Inbox, Outbox, OwnerId, PayloadHash, Result, Seq, ShardId, Store,
    TablePrefix,
};

/// Any error; a fixture's statements fail with it.
pub type BoxError = Box<dyn std::error::Error + Send + Sync>;

/// The target of a backend's `OutboxTx`.
pub type Connection<B> = <<B as Backend>::Open as OpenTx>::Connection;

/// A database as the suites see it: one of its own per test, and the tools to disturb it.
///
/// # Contract
/// - [`open`](Self::open) MUST give a database that no other test sees, migrated, with an empty
///   business table of orders. It MUST be possible to hold two transactions open at once; where
///   a second writer has to wait, [`Need::ConcurrentWriters`] is lacking.
/// - [`pool`](Self::pool) MUST have exactly [`POOL`](Self::POOL) connections, and the store
///   connections of its own.
/// - Time MUST move only by [`expire`](Self::expire) and [`age`](Self::age) as far as the cases
///   can tell: nothing in the suites sleeps.
/// - A method whose [`Need`] is lacking is never called.
#[expect(async_fn_in_trait, reason = "a case runs on one thread, on the runtime of its test")]
pub trait Backend: Sized + Send + Sync + 'static {
    /// The number of connections in the pool of transactions.
    const POOL: usize = 2;

    /// The type of transaction that `outbox.begin(backend.pool())` opens.
    type Open: OpenTx + 'static;

    /// A transaction that the caller began without the outbox.
    type Own: OwnTx;

    /// Opens the database of a test.
    async fn open(test: &str) -> Result<Self, Missing>;

    /// Removes the database. Only called after a success, so that a failure can be examined.
    async fn close(self);

    /// Why the backend cannot show something; `None` when it can.
    fn lacks(&self, need: Need) -> Option<&'static str>;

    /// The store under test.
    fn store(&self) -> Arc<dyn Store>;

    /// A store on connections of its own, on tables with this prefix, not migrated.
    async fn store_at(&self, prefix: TablePrefix) -> Arc<dyn Store>;

    /// Notes in the tables with this prefix that a newer library has migrated them.
    async fn pretend_newer(&self, prefix: &TablePrefix);

    /// The pool that opens transactions.
    fn pool(&self) -> impl Begin<Tx = Self::Open>;

    /// Opens a transaction of the caller's own.
    async fn own(&self) -> Self::Own;

    /// Emits on a connection that has no transaction open.
    async fn emit_bare(&self, outbox: &Outbox, envelope: Envelope) -> Result<Option<EventId>>;

    /// Accepts on a connection that has no transaction open.
    async fn accept_bare(&self, inbox: &Inbox, arrival: &Arrival) -> Result<Accepted>;

    /// Writes an order into the open transaction.
    async fn place_order(&self, tx: &mut Connection<Self>, order: i64) -> Result<(), BoxError>;

    /// Accepts an event in the open transaction.
    async fn accept(
        &self,
        tx: &mut Connection<Self>,
        inbox: &Inbox,
        arrival: &Arrival,
    ) -> Result<Accepted>;

    /// Runs a statement whose failure makes the database give the transaction up.
    async fn spoil(&self, tx: &mut Connection<Self>);

    /// Runs SQL on the open transaction's connection, past sqlx and the outbox. Needs
    /// [`Need::RawSql`].
    async fn raw(&self, tx: &mut Connection<Self>, sql: &'static str);

    /// Whether an order is there for everyone to see.
    async fn has_order(&self, order: i64) -> bool;

    /// Lets the lease of an owner lapse.
    async fn expire(&self, owner: &OwnerId);

    /// Moves the end of every lease, of owners and of rows, this far into the future: as if the
    /// database's clock had been ahead by so much when they were written, and is right again.
    async fn clock_was_ahead(&self, by: Duration);

    /// Removes every event and lets `seq` begin anew, as `truncate … restart identity` does. Needs
    /// [`Need::Tables`].
    async fn restart_seq(&self);

    /// Runs a statement on another connection, as another program would. Needs [`Need::Tables`].
    async fn run(&self, sql: &str) -> Result<(), BoxError>;

    /// Makes everything there is of an id older by moving its dates into the past: when the event
    /// was inserted, is due and was settled, how long its row is leased, its audit rows, and what
    /// inboxes have noted under the id. Other events MAY become older with it.
    async fn age(&self, id: &EventId, by: Duration);

    /// Moves the time of a new event this far into the future, as if another program had written the
    /// event as new before its time. Other events MAY be moved with it.
    async fn make_early(&self, id: &EventId, by: Duration);

    /// What the view `outbox_dead_letter` shows, as text: `id`, `event_id`, `event_name`,
    /// `event_version`, `aggregate_type`, `aggregate_id`, `partition_key`, `tenant_id`, `payload`,
    /// `status`, `retry_count`, `last_error`, `processor_name`, `consumer_name`, of each row that
    /// has `occurred_at`, `dead_at` and `created_at`. Needs [`Need::Tables`].
    async fn view(&self) -> Vec<Vec<Option<String>>>;

    /// Inserts a row as another program may do, past the library. Needs [`Need::Tables`].
    async fn insert_foreign(&self, row: &Foreign);

    /// Writes or locks something on another connection and holds it, uncommitted.
    async fn hold(&self, hold: Hold<'_>) -> Held;

    /// Waits until this many of the store's calls wait for a lock. Where the database cannot
    /// tell, it MAY return at once.
    async fn blocked(&self, count: usize);
}

/// A transaction of the caller's own.
#[expect(async_fn_in_trait, reason = "a case runs on one thread, on the runtime of its test")]
pub trait OwnTx: Send + Sized {
    /// Emits into the transaction.
    async fn emit(&mut self, outbox: &Outbox, envelope: Envelope) -> Result<Option<EventId>>;

    /// Emits on the connection that the transaction is open on.
    async fn emit_on_connection(
        &mut self,
        outbox: &Outbox,
        envelope: Envelope,
    ) -> Result<Option<EventId>>;

    /// Emits many events in one call.
    async fn insert(&mut self, envelopes: &[Envelope]) -> Result<()>;

    /// How many statements have written events so far in the session or the transaction; `None`
    /// where the database cannot tell.
    async fn inserts(&mut self) -> Option<u64>;

    /// Accepts an event.
    async fn accept(&mut self, inbox: &Inbox, arrival: &Arrival) -> Result<Accepted>;

    /// Writes an order.
    async fn place_order(&mut self, order: i64) -> Result<(), BoxError>;

    /// Runs a statement whose failure makes the database give the transaction up.
    async fn spoil(&mut self);

    /// Runs SQL on the transaction's connection, past sqlx. Needs [`Need::RawSql`].
    async fn raw(&mut self, sql: &'static str);

    /// Commits.
    async fn commit(self) -> Result<(), BoxError>;

    /// Rolls back.
    async fn rollback(self) -> Result<(), BoxError>;
}

/// A requirement of a case beyond the plain contract.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub enum Need {
    /// Tables with a prefix, which are missing until `migrate`.
    Tables,
    /// Two transactions that write at the same time.
    ConcurrentWriters,
    /// A failed statement that makes the database give the transaction up.
    SpoiledTransaction,
    /// A connection without a transaction.
    BareConnection,
    /// SQL that can end a transaction behind the outbox's back.
    RawSql,
    /// A transaction of the caller's own that may be dropped in the middle of a statement.
    DroppedStatement,
    /// Something held on another connection, while a call of the store waits.
    Waiting,
    /// A lock on one row, while other rows can be written.
    RowLocks,
}

/// What to hold on another connection.
#[derive(Clone, Copy, Debug)]
#[non_exhaustive]
pub enum Hold<'a> {
    /// A takeover of this shard by this owner, with the next epoch.
    Takeover(ShardId, &'a OwnerId),
    /// A lock on the row of this event. Needs [`Need::RowLocks`].
    Event(Seq),
    /// A replay of this dead letter.
    Replay(&'a EventId),
}

/// Something held on another connection; dropped, it is undone.
#[must_use = "dropped, it is undone"]
pub struct Held(Pin<Box<dyn Future<Output = ()> + Send>>);

impl Held {
    /// Held until the future, which commits it, is run.
    pub fn new(commit: impl Future<Output = ()> + Send + 'static) -> Self {
        Self(Box::pin(commit))
    }

    /// Commits what was written and lets go.
    pub async fn commit(self) {
        self.0.await;
    }
}

impl fmt::Debug for Held {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Held").finish_non_exhaustive()
    }
}

/// A row that the library did not write, of the event type `foreign.row`.
#[derive(Clone, Debug, Default)]
pub struct Foreign {
    /// Its event id.
    pub id: &'static str,
    /// Its payload as JSON text.
    pub payload: Option<String>,
    /// Its payload as bytes.
    pub payload_bytes: Option<Vec<u8>>,
    /// Its headers.
    pub headers: Option<String>,
    /// How long after the insert it is due; its status is the table's default.
    pub due_in: Duration,
}

/// An event that arrives at an inbox.
#[derive(Clone, Copy, Debug)]
pub struct Arrival {
    /// Its id at the source `shop`.
    pub id: &'static str,
    /// The hash of its payload.
    pub hash: PayloadHash,
}

/// A server that is not there, and how to bring it.
#[derive(Clone, Debug)]
pub struct Missing(pub String);

/// Reads a shard from its head.
pub(crate) fn from_head(shard: ShardId) -> ShardRead {
    ShardRead { shard, floor: Seq::START }
}
