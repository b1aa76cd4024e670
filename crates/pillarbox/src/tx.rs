//! The transaction contracts: how rows get into a transaction that the caller opened.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub mod sqlx;

use std::{fmt, time::Duration};

use sha2::{Digest, Sha256};

use crate::clock::Timestamp;
use crate::envelope::{Delivery, Envelope};
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::table::Tables;

/// A borrowed, open transaction that takes outbox rows with it.
///
/// Implemented for `&mut sqlx::Transaction` and for `&mut` connections on which sqlx has a
/// transaction open. A pool is none: there would be nothing to commit with.
///
/// # Contract
/// - [`insert`](Self::insert) MUST write all rows or none, in the order given, and MUST fail with
///   [`ErrorKind::NoTransaction`](crate::ErrorKind::NoTransaction) when no transaction is open:
///   a row that commits by itself is a ghost.
/// - `insert` MUST wait while another transaction holds one of [`Insert::locks`], and see its events
///   then: of two that lock a key, the second's events have the larger `seq`.
/// - With [`Insert::hot`], every event that [`LocalLease::leases`] is born under the lease with
///   [`LocalLease::TOKEN`], and `insert` MUST say of each event, in order, where it was written: of those
///   that `LocalLease::leases` always, of others that [`LocalLease::wants_position`] for if it can tell whether it
///   [`is_next`](Inserted::is_next), and of no others. Without, it may say nothing at all.
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an open transaction",
    label = "expected something like `&mut sqlx::Transaction<'_, _>`",
    note = "pass `&mut tx`, not a pool: begin one with `outbox.begin(&pool)` or `pool.begin()`",
    note = "an `OutboxTx` emits by itself: `tx.emit(&event)`; for an inbox pass `&mut *tx`"
)]
pub trait Tx: Send + Sized {
    /// Writes events into the transaction, and says where those are that may go hot.
    fn insert(
        self,
        insert: &Insert<'_>,
    ) -> impl Future<Output = Result<Vec<Option<Inserted>>>> + Send;

    /// Notes in the transaction that a consumer has taken an event in.
    fn accept(self, accept: &Accept<'_>) -> impl Future<Output = Result<Accepted>> + Send;
}

/// Events to write.
#[derive(Clone, Copy, Debug)]
pub struct Insert<'a> {
    /// Into which tables.
    pub tables: &'a Tables,
    /// The events, in order.
    pub envelopes: &'a [Envelope],
    /// Keys to lock before anything is written, until the transaction ends; in order, each once.
    pub locks: &'a [String],
    /// Who delivers some of them straight from memory after the commit; these are born leased.
    pub hot: Option<LocalLease<'a>>,
}

/// A lease that rows are born under: their writer delivers them, and nobody else reads them before
/// it has run out.
#[derive(Clone, Copy, Debug)]
pub struct LocalLease<'a> {
    /// Whose.
    pub owner: &'a OwnerId,
    /// For how long from the statement on, by the database's clock.
    pub length: Duration,
    /// Whether events with a key are asked for, too: they are not leased, and go hot only if
    /// nothing of their key is before them.
    pub keyed: bool,
}

impl LocalLease<'_> {
    /// The token that a row is born with under a lease.
    pub const TOKEN: Token = Token(1);

    /// Whether an event is born leased: one that waits for nothing, neither for a time nor for
    /// others of its key.
    pub fn leases(envelope: &Envelope) -> bool {
        envelope.delivery() == Delivery::AtOnce && !envelope.is_ordered()
    }

    /// Whether it matters where an event is written.
    pub fn wants_position(&self, envelope: &Envelope) -> bool {
        envelope.delivery() == Delivery::AtOnce && (self.keyed || !envelope.is_ordered())
    }
}

/// A row that an insert has written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inserted {
    /// Its place in the table.
    pub seq: Seq,
    /// Its shard.
    pub shard: ShardId,
    /// When it happened, as the row has it.
    pub occurred_at: Timestamp,
    /// Whether nothing of its key was pending or held before it, as seen by a statement that sees
    /// every commit before it. Without a key, it always is.
    pub is_next: bool,
}

/// An event to take in once.
#[derive(Clone, Copy, Debug)]
pub struct Accept<'a> {
    /// In which tables.
    pub tables: &'a Tables,
    /// Who takes it in.
    pub consumer: &'a str,
    /// Where it comes from.
    pub source: &'a str,
    /// Its id at the source.
    pub event_id: &'a str,
    /// Whose event it is.
    pub tenant_id: Option<&'a str>,
    /// What it carries.
    pub payload_hash: PayloadHash,
}

/// Whether an event may have its effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[must_use = "only the first time may have an effect"]
pub enum Accepted {
    /// It was not seen before: let it have its effect.
    FirstTime,
    /// It was seen before, the same: do nothing.
    Duplicate,
    /// Another payload came under this id before: someone reuses ids, do nothing and say so.
    Conflict,
}

/// The SHA-256 of a payload: tells a duplicate from a conflict.
///
/// # Examples
/// ```
/// use pillarbox::PayloadHash;
///
/// assert_eq!(PayloadHash::of(b"{}"), PayloadHash::of("{}".as_bytes()));
/// assert_ne!(PayloadHash::of(b"{}"), PayloadHash::of(b"[]"));
/// ```
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct PayloadHash([u8; 32]);

impl PayloadHash {
    /// The hash of these bytes.
    pub fn of(payload: impl AsRef<[u8]>) -> Self {
        Self(Sha256::digest(payload.as_ref()).into())
    }

    /// The hash's bytes.
    pub fn as_bytes(&self) -> &[u8; 32] {
        &self.0
    }
}

impl fmt::Debug for PayloadHash {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.0.iter().take(4).try_for_each(|byte| write!(f, "{byte:02x}"))?;
        f.write_str("…")
    }
}

/// Something that opens transactions: a pool, or the memory store.
#[diagnostic::on_unimplemented(
    message = "`{Self}` cannot begin a transaction",
    note = "pass `&pool` (a sqlx pool) or `&store` (a memory store)"
)]
pub trait Begin: Send {
    /// The transaction it opens.
    type Tx: OpenTx;

    /// Opens a transaction.
    fn begin(self) -> impl Future<Output = Result<Self::Tx>> + Send;
}

/// An owned transaction whose end we see.
///
/// # Contract
/// - [`prove`](Self::prove) MUST fail unless what was done since the begin can still be
///   committed; so MUST [`insert`](Self::insert). One of them is called, once, right before
///   [`commit`](Self::commit), while no savepoint is open.
/// - Where a statement on the connection has ended the transaction, each of them MUST fail with
///   [`ErrorKind::NoTransaction`](crate::ErrorKind::NoTransaction) and
///   [`TxFate::Ended`](crate::TxFate::Ended).
/// - [`commit`](Self::commit) MUST answer
///   [`ErrorKind::CommitUnknown`](crate::ErrorKind::CommitUnknown) when the database may have
///   committed without telling, and any other kind only when it has not.
/// - Dropping it MUST roll back.
pub trait OpenTx: Send + Sized {
    /// What the caller works with.
    type Connection: ?Sized;

    /// The connection, to read with.
    fn connection(&self) -> &Self::Connection;

    /// The connection, to work with.
    fn connection_mut(&mut self) -> &mut Self::Connection;

    /// Writes events into the transaction, and says where those are that may go hot.
    fn insert(
        &mut self,
        insert: &Insert<'_>,
    ) -> impl Future<Output = Result<Vec<Option<Inserted>>>> + Send;

    /// Checks that the transaction lives.
    fn prove(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Opens a savepoint inside the innermost one.
    fn savepoint(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Keeps what was done since the innermost savepoint.
    fn release(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// Undoes what was done since the innermost savepoint, and ends it.
    fn rollback_to(&mut self) -> impl Future<Output = Result<()>> + Send;

    /// The same without waiting: it happens before anything else does.
    fn abandon(&mut self);

    /// Commits.
    fn commit(self) -> impl Future<Output = Result<()>> + Send;

    /// Rolls back.
    fn rollback(self) -> impl Future<Output = Result<()>> + Send;
}
