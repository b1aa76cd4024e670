//! The outbox: writes events into a caller's transaction.

mod hook;
mod savepoint;
mod transaction;

use std::{fmt, sync::Arc};

pub use self::hook::Hook;
pub use self::savepoint::Savepoint;
pub use self::transaction::OutboxTx;
use crate::context;
use crate::crash_point::crash_point;
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Event;
use crate::id::EventId;
use crate::local_queue::LocalQueue;
use crate::store::Store;
use crate::table::{TablePrefix, Tables};
use crate::tx::{Begin, Insert, Tx};
use crate::wake::Wake;

/// Writes events into database transactions. Cheap to clone.
///
/// An outbox made with [`Outbox::new`] only writes: relays in other processes find the rows by
/// polling. [`Relay::outbox`](crate::Relay::outbox) returns one that also wakes the relay of this
/// process, [`Relay::writer_only`](crate::Relay::writer_only) one for a process without a relay.
///
/// # Examples
/// ```
/// use pillarbox::{Event, MemoryStore, Outbox};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed", aggregate = "order")]
/// struct OrderPlaced { #[event(id)] order_id: i64 }
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let (store, outbox) = (MemoryStore::new(), Outbox::new());
///
/// let mut tx = outbox.begin(&store).await?;
/// let id = tx.emit(&OrderPlaced { order_id: 7 }).await?;
/// tx.commit().await?;
/// # use pillarbox::store::Operations as _;
/// # assert!(id.is_some() && store.event(&id.unwrap()).await?.is_some());
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Default)]
pub struct Outbox {
    tables: Tables,
    hooks: Arc<[Arc<dyn Hook>]>,
    wake: Wake,
    local_queue: Option<LocalQueue>,
}

impl Outbox {
    /// Creates an outbox on the tables without a prefix.
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the outbox of a process with a relay.
    pub(crate) fn for_relay(wake: Wake, local_queue: LocalQueue) -> Self {
        Self { wake, local_queue: Some(local_queue), ..Self::default() }
    }

    /// Creates the outbox of a process without a relay; commits notify the relays elsewhere.
    pub(crate) fn for_writer(wake: Wake) -> Self {
        Self { wake, ..Self::default() }
    }

    /// Sets the prefix of the table names.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = self.tables.with_prefix(prefix);
        self
    }

    /// Uses the table prefix and the pooler mode of this store.
    pub(crate) fn on(self, store: &dyn Store) -> Self {
        let outbox = self.prefix(store.prefix());
        if store.is_pooled() { outbox.pooler() } else { outbox }
    }

    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Uses unnamed statements, for a connection pooler in transaction mode such as PgBouncer.
    ///
    /// This costs one more round trip per transaction on PostgreSQL and changes nothing on other
    /// databases. PgBouncer 1.21 and later does not need it if `max_prepared_statements` is set.
    #[must_use]
    pub fn pooler(mut self) -> Self {
        self.tables = self.tables.pooler();
        self
    }

    /// Adds a hook that inspects, changes or drops events. Hooks run in the order they were added.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        let hook: Arc<dyn Hook> = Arc::new(hook);
        self.hooks = self.hooks.iter().cloned().chain([hook]).collect();
        self
    }

    /// Wakes the relay of this process.
    ///
    /// Call it after you commit a transaction of your own, which the outbox does not see end.
    pub fn wake(&self) {
        self.wake.now();
    }

    /// Begins a transaction that can emit events.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the database cannot be reached.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is rolled back.
    pub async fn begin<B: Begin>(&self, pool: B) -> Result<OutboxTx<B::Tx>> {
        Ok(OutboxTx::new(self.clone(), pool.begin().await?))
    }

    /// Runs a closure in a transaction: commits if it returns `Ok`, otherwise rolls back.
    ///
    /// The closure runs once. It is not run again when the outcome of the commit is unknown
    /// ([`ErrorKind::CommitUnknown`]).
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Envelope, MemoryStore, Outbox};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let (store, outbox) = (MemoryStore::new(), Outbox::new());
    /// let total = outbox
    ///     .transaction(&store, async |tx| {
    ///         tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
    ///         Ok::<_, pillarbox::Error>(1999)
    ///     })
    ///     .await?;
    /// # assert_eq!(total, 1999);
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// Returns the closure's error, or the error of the begin or the commit.
    ///
    /// # Cancel safety
    /// If the future is dropped before the commit is sent, the transaction is rolled back.
    pub async fn transaction<B, F, R, E>(&self, pool: B, work: F) -> Result<R, E>
    where
        B: Begin,
        F: AsyncFnOnce(&mut OutboxTx<B::Tx>) -> Result<R, E>,
        E: From<Error>,
    {
        let mut tx = self.begin(pool).await?;
        match work(&mut tx).await {
            Ok(value) => {
                tx.commit().await?;
                Ok(value)
            }
            Err(error) => {
                // The caller's error matters more: the drop rolls back as well.
                if let Err(failed) = tx.rollback().await {
                    tracing::warn!(error = %failed, "rollback failed, the connection will be closed");
                }
                Err(error)
            }
        }
    }

    /// Emits an event into a transaction that the caller began. The row is inserted immediately.
    ///
    /// Returns the event's id, or `None` if a hook dropped it. The outbox does not see such a
    /// transaction commit: call [`wake`](Self::wake) after it. Otherwise the relay checks for the
    /// event after 2, 4, 8 … milliseconds for two seconds, and finds it by polling after that.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a part exceeds its limit; nothing is written then.
    /// [`ErrorKind::NoTransaction`] on a connection without a transaction.
    /// [`ErrorKind::Duplicate`] when the id exists.
    ///
    /// # Cancel safety
    /// If the future is dropped, the event may or may not be in the transaction: roll it back.
    pub async fn emit<E: Event>(&self, tx: impl Tx, event: &E) -> Result<Option<EventId>> {
        self.emit_envelope(tx, Envelope::of(event)?).await
    }

    /// Emits many events in one statement, in order.
    ///
    /// # Errors
    /// As [`emit`](Self::emit). All events are checked before any is written.
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_all<E: Event>(&self, tx: impl Tx, events: &[E]) -> Result<Vec<EventId>> {
        let envelopes = events.iter().map(Envelope::of).collect::<Result<_>>()?;
        self.write(tx, envelopes, KeyLocks::None).await
    }

    /// Emits an event and locks its key, so that the events of the key are ordered by commit.
    ///
    /// Use it if the writers of a key hold no common lock of their own; see
    /// [`OutboxTx::emit_ordered`]. The lock is held until the caller's transaction ends. MySQL and
    /// MariaDB have 256 locks for all keys: two transactions with two such events each can deadlock
    /// although their keys differ. The database then ends one of them, which can be retried.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the event has no key; otherwise as
    /// [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_ordered<E: Event>(&self, tx: impl Tx, event: &E) -> Result<Option<EventId>> {
        let envelope = Envelope::of(event)?;
        require_key(&envelope)?;
        Ok(self.write(tx, vec![envelope], KeyLocks::Take).await?.pop())
    }

    /// Emits an envelope into a transaction that the caller began.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_envelope(&self, tx: impl Tx, envelope: Envelope) -> Result<Option<EventId>> {
        Ok(self.write(tx, vec![envelope], KeyLocks::None).await?.pop())
    }

    async fn write(
        &self,
        tx: impl Tx,
        envelopes: Vec<Envelope>,
        key_locks: KeyLocks,
    ) -> Result<Vec<EventId>> {
        let envelopes = self.prepare(envelopes)?;
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        let keys = envelopes.iter().filter(|_| key_locks == KeyLocks::Take);
        let locks: Vec<String> = keys.filter_map(Envelope::ordering_key).collect();
        let tables = &self.tables;
        crash_point!("emit.own.before"?);
        tx.insert(&Insert { tables, envelopes: &envelopes, locks: &locks, hot: None }).await?;
        crash_point!("emit.own.after"?);
        self.wake.soon();
        hook::after_write(&self.hooks, &envelopes);
        Ok(envelopes.iter().map(|envelope| envelope.event_id().clone()).collect())
    }

    /// Adds the current context and runs the hooks, which may change or drop events.
    fn prepare(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        let envelopes = match context::current() {
            None => envelopes,
            Some(context) => envelopes
                .into_iter()
                .map(|envelope| context.fill(envelope))
                .collect::<Result<_>>()?,
        };
        self.hooks.iter().try_fold(envelopes, |envelopes, hook| {
            if envelopes.is_empty() { Ok(envelopes) } else { hook.before_write(envelopes) }
        })
    }
}

/// Whether the keys of events are locked before the insert.
#[derive(Clone, Copy, PartialEq, Eq)]
enum KeyLocks {
    /// The caller orders the writers of a key, for example by a row lock.
    None,
    /// The insert locks the keys.
    Take,
}

fn require_key(envelope: &Envelope) -> Result<()> {
    if envelope.is_ordered() {
        return Ok(());
    }
    let message = format!(
        "`emit_ordered` needs a key: give `{}` an aggregate id or a key, or emit it with `emit` \
         (event={})",
        envelope.event_type(),
        envelope.event_id()
    );
    Err(Error::new(ErrorKind::Invalid, message))
}

impl fmt::Debug for Outbox {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Outbox")
            .field("tables", &self.tables)
            .field("hooks", &self.hooks.len())
            .finish()
    }
}
