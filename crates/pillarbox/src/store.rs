//! The store contract: what a database must do for the relay, an operator and maintenance.

mod arc;
mod claims;
mod content;
mod events;
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
mod mark;
pub mod memory;
#[cfg(feature = "mysql")]
pub mod mysql;
mod operations;
mod ownership;
#[cfg(feature = "postgres")]
pub mod postgres;
mod schema;
#[cfg(feature = "sqlite")]
pub mod sqlite;
mod statistics;

use std::{any::Any, fmt, sync::Arc};

/// Stands before each `impl` of a facet: `#[pillarbox::store::async_trait] impl Events for …`.
pub use async_trait::async_trait;

pub use self::claims::{
    Claim, Claims, MAX_DUE, RenewRows, RowLease, RowVerdict, SettleRows, Starts,
};
pub use self::content::{Budget, Content};
pub use self::events::{
    Due, DueRow, Events, Heads, HeadsCursor, KeyRead, Notifications, Pending, Predecessor, Promote,
    Read, ReadHeads, ReadKeys, Settle, Settled, Settlement, ShardRead,
};
pub use self::operations::{
    Action, AuditEntry, Changed, Cursor, DeadLetter, Direction, FAILED_PERMANENT, Filter, List,
    MAX_BATCH, Operated, Operation, Operations, Purge, PurgeKind, SEND_FAILED, StoredEvent, Target,
};
pub use self::ownership::{
    AcquireShards, Join, Lease, MAX_MEMBERS, Member, OwnedShard, Ownership, Renewal, ShardOrigin,
};
pub use self::schema::{ClaimMode, DeliveryMode, Order, OutboxConfig, Schema};
pub use self::statistics::{Breakdown, MAX_TYPES, ShardStats, Statistics, Stats, TypeStats};
pub use crate::status::Status;

/// A database that keeps events: all facets of the contract together.
///
/// Every type that implements the facets is a store, and so is an `Arc` of one, such as
/// [`connect`](crate::connect) returns. The store owns its connections and never writes into a
/// caller's transaction. Test an implementation with `pillarbox_testkit::store_conformance!`.
///
/// The methods of a concrete store type come with the facets; [`migrate`](Schema::migrate) of the SQL
/// stores needs no import.
///
/// # Contract
/// - Every time that is written or compared is the **database's** clock; callers send durations.
/// - An index MUST keep the cost of reads and claims from growing with the rows that are done.
/// - A future that is dropped half-way MUST leave all of a call's writes or none of them.
/// - Errors that may pass by themselves MUST be
///   [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable), or
///   [`ErrorKind::Busy`](crate::ErrorKind::Busy) where a lock or a time limit stopped the statement.
/// - A call MUST NOT wait for a lock on a row for longer than a few seconds.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use pillarbox::{Admin, MemoryStore, Store};
///
/// async fn count_dead(store: &dyn Store) -> pillarbox::Result<u64> {
///     Ok(store.stats().await?.dead)
/// }
///
/// let store: Arc<dyn Store> = Arc::new(MemoryStore::new());
/// let admin = Admin::new(Arc::clone(&store)); // one that is shared, or one of its own
/// let other = Admin::new(MemoryStore::new());
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a store",
    note = "pass a store such as `PostgresStore`, or what `pillarbox::connect` returned"
)]
pub trait Store:
    Schema + Ownership + Events + Claims + Operations + Statistics + fmt::Debug + 'static
{
}

impl<S> Store for S where
    S: Schema + Ownership + Events + Claims + Operations + Statistics + fmt::Debug + 'static
{
}

/// Shares a store. One that is shared already stays as it is, so that no call goes through two
/// pointers.
pub(crate) fn share(store: impl Store) -> Arc<dyn Store> {
    let shared = (&store as &dyn Any).downcast_ref::<Arc<dyn Store>>().cloned();
    shared.unwrap_or_else(|| Arc::new(store))
}
