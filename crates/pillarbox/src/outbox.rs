//! Emit: the door through which events enter a caller's transaction.

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

/// Writes events into transactions. Cheap to clone; give one to every handler.
///
/// [`Outbox::new`] only writes: a relay elsewhere finds the rows by polling.
/// [`Relay::outbox`](crate::Relay::outbox) gives one that also wakes the relay of this process,
/// [`Relay::writer_only`](crate::Relay::writer_only) one for a process without a relay.
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
    hot: Option<LocalQueue>,
}

impl Outbox {
    /// An outbox on the tables without a prefix.
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn waking(wake: Wake, hot: LocalQueue) -> Self {
        Self { wake, hot: Some(hot), ..Self::default() }
    }

    /// Where no relay delivers in this process: commits are told to those elsewhere.
    pub(crate) fn ringing(wake: Wake) -> Self {
        Self { wake, ..Self::default() }
    }

    /// On the tables whose names begin with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = self.tables.moved(prefix);
        self
    }

    /// On the tables of this store, the way that it is reached.
    pub(crate) fn on(self, store: &dyn Store) -> Self {
        let outbox = self.prefix(store.prefix());
        if store.is_pooled() { outbox.pooler() } else { outbox }
    }

    #[cfg(all(test, feature = "postgres"))]
    pub(crate) fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Behind a pooler in transaction mode, such as PgBouncer's: statements have no names.
    ///
    /// It costs a round trip more per transaction on PostgreSQL, and changes nothing elsewhere. A
    /// PgBouncer from 1.21 on that is told `max_prepared_statements` does not need it.
    #[must_use]
    pub fn pooler(mut self) -> Self {
        self.tables = self.tables.pooler();
        self
    }

    /// With a hook that sees, changes or drops events on their way; hooks run in order.
    #[must_use]
    pub fn hook(mut self, hook: impl Hook) -> Self {
        let hook: Arc<dyn Hook> = Arc::new(hook);
        self.hooks = self.hooks.iter().cloned().chain([hook]).collect();
        self
    }

    /// Tells the relay of this process to look; use it after committing a transaction of your
    /// own, whose end the outbox does not see.
    pub fn wake(&self) {
        self.wake.now();
    }

    /// Opens a transaction that takes events with it.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`](crate::ErrorKind::Unavailable) when the database is out of
    /// reach.
    ///
    /// # Cancel safety
    /// A transaction that was half begun is rolled back.
    pub async fn begin<B: Begin>(&self, pool: B) -> Result<OutboxTx<B::Tx>> {
        Ok(OutboxTx::new(self.clone(), pool.begin().await?))
    }

    /// Runs a closure in a transaction: commits when it returns `Ok`, else rolls back.
    ///
    /// The closure runs once. A commit whose outcome is unknown is an error of its own and is
    /// never run again.
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
    /// What the closure returned, or what the begin or the commit met.
    ///
    /// # Cancel safety
    /// Dropped before the commit is sent, it rolls back.
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
                // The caller's error matters more than a rollback that the drop repeats anyway.
                if let Err(failed) = tx.rollback().await {
                    tracing::warn!(error = %failed, "rollback failed, the connection is dropped");
                }
                Err(error)
            }
        }
    }

    /// Emits an event into a transaction of the caller's own, at once.
    ///
    /// Returns its id, or `None` when a hook dropped it. The outbox does not see such a
    /// transaction commit: call [`wake`](Self::wake) after it. Without that, the relay looks
    /// for it after 2, 4, 8 … milliseconds, for two seconds, and finds it later by a poll.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) before anything is written;
    /// [`ErrorKind::NoTransaction`](crate::ErrorKind::NoTransaction) on a connection without a
    /// transaction; [`ErrorKind::Duplicate`](crate::ErrorKind::Duplicate) when the id exists.
    ///
    /// # Cancel safety
    /// Dropped half-way, the event may or may not be in the transaction: roll it back.
    pub async fn emit<E: Event>(&self, tx: impl Tx, event: &E) -> Result<Option<EventId>> {
        self.emit_envelope(tx, Envelope::of(event)?).await
    }

    /// Emits many events in one statement, in order.
    ///
    /// # Errors
    /// As [`emit`](Self::emit); all of them are checked before one is written.
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_all<E: Event>(&self, tx: impl Tx, events: &[E]) -> Result<Vec<EventId>> {
        let envelopes = events.iter().map(Envelope::of).collect::<Result<_>>()?;
        self.write(tx, envelopes, Turn::Any).await
    }

    /// Emits an event whose place among those of its key is the order of the commits, for writers
    /// that hold no lock of their own; see [`OutboxTx::emit_ordered`].
    ///
    /// The lock on the key is held until the caller's transaction ends. On MySQL and MariaDB there are
    /// 256 locks for all keys, so that two transactions with two such events each may deadlock although
    /// their keys differ: the database ends one of them, which can be tried again.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the event has no key; else as
    /// [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_ordered<E: Event>(&self, tx: impl Tx, event: &E) -> Result<Option<EventId>> {
        let envelope = Envelope::of(event)?;
        require_key(&envelope)?;
        Ok(self.write(tx, vec![envelope], Turn::Ordered).await?.pop())
    }

    /// Emits an envelope into a transaction of the caller's own, at once.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// As [`emit`](Self::emit).
    pub async fn emit_envelope(&self, tx: impl Tx, envelope: Envelope) -> Result<Option<EventId>> {
        Ok(self.write(tx, vec![envelope], Turn::Any).await?.pop())
    }

    async fn write(
        &self,
        tx: impl Tx,
        envelopes: Vec<Envelope>,
        turn: Turn,
    ) -> Result<Vec<EventId>> {
        let envelopes = self.prepare(envelopes)?;
        if envelopes.is_empty() {
            return Ok(Vec::new());
        }
        let keys = envelopes.iter().filter(|_| turn == Turn::Ordered);
        let locks: Vec<String> = keys.filter_map(Envelope::ordering_key).collect();
        let tables = &self.tables;
        crash_point!("emit.own.before"?);
        tx.insert(&Insert { tables, envelopes: &envelopes, locks: &locks, hot: None }).await?;
        crash_point!("emit.own.after"?);
        self.wake.soon();
        hook::after_write(&self.hooks, &envelopes);
        Ok(envelopes.iter().map(|envelope| envelope.event_id().clone()).collect())
    }

    /// Fills in the context at hand and lets the hooks change or drop events.
    fn prepare(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        let envelopes = match context::current() {
            None => envelopes,
            Some(now) => {
                envelopes.into_iter().map(|envelope| now.fill(envelope)).collect::<Result<_>>()?
            }
        };
        self.hooks.iter().try_fold(envelopes, |envelopes, hook| {
            if envelopes.is_empty() { Ok(envelopes) } else { hook.before_write(envelopes) }
        })
    }
}

/// Whose turn it is among the writers of a key.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Turn {
    /// The caller has seen to it.
    Any,
    /// That of whoever locks the key first.
    Ordered,
}

fn require_key(envelope: &Envelope) -> Result<()> {
    if envelope.is_ordered() {
        return Ok(());
    }
    let message = format!(
        "an event without a key has no order: give `{}` an aggregate id or a key, or emit it with \
         `emit` (event={})",
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
