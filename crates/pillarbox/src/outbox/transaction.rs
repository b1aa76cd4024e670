//! A transaction that buffers events and inserts them right before the commit.

use std::{
    collections::BTreeSet,
    fmt, mem,
    ops::{Deref, DerefMut},
};

use super::{Outbox, Savepoint, hook};
use crate::crash_point::crash_point;
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::event::Event;
use crate::id::EventId;
use crate::local_queue::{Handover, Reservation};
use crate::tx::{Insert, OpenTx};

/// An open transaction that can emit events.
///
/// It derefs to the connection. [`emit`](Self::emit) checks and buffers events; they are inserted
/// in one statement directly before `COMMIT`. That statement succeeds only in a transaction that is
/// still open, so a successful commit is proven. Use [`savepoint`](Self::savepoint) for savepoints:
/// rolling one back also drops its events.
///
/// Dropping the transaction rolls it back.
///
/// # Examples
/// ```
/// # use pillarbox::{Envelope, MemoryStore, Outbox};
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// # let (store, outbox) = (MemoryStore::new(), Outbox::new());
/// let mut tx = outbox.begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
///
/// let mut optional = tx.savepoint().await?;
/// optional.emit_envelope(Envelope::json("coupon.used", &1)?).await?;
/// optional.rollback().await?;                        // also drops `coupon.used`
///
/// tx.after_commit(|| println!("placed"));
/// tx.commit().await?;
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[must_use = "a transaction that is dropped is rolled back"]
pub struct OutboxTx<T: OpenTx> {
    outbox: Outbox,
    /// `None` only while the transaction ends.
    tx: Option<T>,
    pub(super) buffer: Vec<Envelope>,
    /// Keys to lock before the events are written.
    locks: BTreeSet<String>,
    /// Whether a savepoint's call was dropped, so that the content of the transaction is unknown.
    pub(super) savepoint_unknown: bool,
    pub(super) after_commit: Vec<Callback>,
    pub(super) after_rollback: Vec<Callback>,
    /// The events for the local queue, once they are committed.
    handover: Option<Handover>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl<T: OpenTx> OutboxTx<T> {
    pub(super) fn new(outbox: Outbox, tx: T) -> Self {
        Self {
            outbox,
            tx: Some(tx),
            buffer: Vec::new(),
            locks: BTreeSet::new(),
            savepoint_unknown: false,
            after_commit: Vec::new(),
            after_rollback: Vec::new(),
            handover: None,
        }
    }

    /// Emits an event in this transaction.
    ///
    /// Returns the event's id, or `None` if a hook dropped it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a part exceeds its limit; nothing is buffered then.
    ///
    /// # Cancel safety
    /// Completes without waiting.
    pub async fn emit<E: Event>(&mut self, event: &E) -> Result<Option<EventId>> {
        self.emit_envelope(Envelope::of(event)?).await
    }

    /// Emits many events in this transaction, in order.
    ///
    /// # Errors
    /// As [`emit`](Self::emit). If one event is invalid, none is buffered.
    ///
    /// # Cancel safety
    /// Completes without waiting.
    #[expect(clippy::unused_async, reason = "reads like the call on a caller's own transaction")]
    pub async fn emit_all<E: Event>(&mut self, events: &[E]) -> Result<Vec<EventId>> {
        let envelopes = events.iter().map(Envelope::of).collect::<Result<_>>()?;
        self.buffer(envelopes)
    }

    /// Emits an envelope in this transaction.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Completes without waiting.
    #[expect(clippy::unused_async, reason = "reads like the call on a caller's own transaction")]
    pub async fn emit_envelope(&mut self, envelope: Envelope) -> Result<Option<EventId>> {
        Ok(self.buffer(vec![envelope])?.pop())
    }

    /// Emits an event and locks its key, so that the events of the key are ordered by commit.
    ///
    /// Order per key is the order in which writers take a lock before they emit: usually a lock on
    /// the row that the event is about, by `update` or `select … for update`. Use this method if
    /// there is no such row. It takes a lock on the key right before the commit, which waits for
    /// other transactions that hold it.
    ///
    /// # Examples
    /// ```
    /// # use pillarbox::{Envelope, MemoryStore, Outbox};
    /// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
    /// # let (store, outbox) = (MemoryStore::new(), Outbox::new());
    /// let mut tx = outbox.begin(&store).await?;
    /// let level = Envelope::json("stock.counted", &12)?.aggregate("item", "7")?;
    /// tx.emit_envelope_ordered(level).await?; // or, with a type: tx.emit_ordered(&StockCounted { .. })
    /// tx.commit().await?;
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when the event has no key; otherwise as [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Completes without waiting.
    pub async fn emit_ordered<E: Event>(&mut self, event: &E) -> Result<Option<EventId>> {
        self.emit_envelope_ordered(Envelope::of(event)?).await
    }

    /// Emits an envelope and locks its key; see [`emit_ordered`](Self::emit_ordered).
    ///
    /// # Errors
    /// As [`emit_ordered`](Self::emit_ordered).
    ///
    /// # Cancel safety
    /// Completes without waiting.
    #[expect(clippy::unused_async, reason = "reads like the call on a caller's own transaction")]
    pub async fn emit_envelope_ordered(&mut self, envelope: Envelope) -> Result<Option<EventId>> {
        super::require_key(&envelope)?;
        let id = self.buffer(vec![envelope])?.pop();
        let written = self.buffer.last().filter(|_| id.is_some());
        self.locks.extend(written.and_then(Envelope::ordering_key));
        Ok(id)
    }

    /// Runs a closure after the commit. A panic in it is caught and logged.
    ///
    /// A closure that was registered on a savepoint does not run if the savepoint is rolled back.
    pub fn after_commit(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.after_commit.push(Box::new(callback));
    }

    /// Runs a closure after a rollback, explicit or by drop. A panic in it is caught and logged.
    ///
    /// A closure that was registered on a savepoint runs when the savepoint is rolled back. It also
    /// runs if the transaction had ended before its commit ([`TxFate::Ended`]).
    pub fn after_rollback(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.after_rollback.push(Box::new(callback));
    }

    /// Opens a savepoint. Dropping it rolls back what was done and emitted in it.
    ///
    /// # Errors
    /// Returns the database's error.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction can only be rolled back.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_, T>> {
        self.savepoint_unknown = true;
        self.inner().savepoint().await?;
        self.savepoint_unknown = false;
        Ok(Savepoint::new(self))
    }

    /// Inserts the events and commits.
    ///
    /// # Errors
    /// [`ErrorKind::Duplicate`] when an event with an id of the caller's exists already.
    /// [`ErrorKind::CommitUnknown`] when `COMMIT` was sent and no answer came.
    /// [`ErrorKind::NoTransaction`] when a statement sent over the connection, or the database, has
    /// ended the transaction; [`Error::transaction`] is [`TxFate::Ended`] then, and what was done
    /// before that statement may be committed. On every other error the transaction was rolled
    /// back.
    ///
    /// # Cancel safety
    /// If the future is dropped before `COMMIT` is sent, the transaction is rolled back; after that
    /// the outcome is unknown.
    pub async fn commit(mut self) -> Result<()> {
        let ready = self.write().await;
        let Some(tx) = self.tx.take() else { return ready };
        let committed = match ready {
            Ok(()) => tx.commit().await,
            Err(error) => {
                drop(tx);
                let has_ended = error.transaction() == Some(TxFate::Ended);
                Err(if has_ended { error } else { error.leaving(TxFate::RolledBack) })
            }
        };
        match &committed {
            Ok(()) => self.committed(),
            Err(error) if error.kind() == ErrorKind::CommitUnknown => {}
            Err(_) => self.rolled_back(),
        }
        committed
    }

    /// Rolls the transaction back.
    ///
    /// # Errors
    /// Returns the database's error; the transaction is rolled back even then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction is still rolled back.
    pub async fn rollback(mut self) -> Result<()> {
        let Some(tx) = self.tx.take() else { return Ok(()) };
        let result = tx.rollback().await;
        self.rolled_back();
        result
    }

    fn buffer(&mut self, envelopes: Vec<Envelope>) -> Result<Vec<EventId>> {
        crash_point!("emit.before"?);
        let envelopes = self.outbox.prepare(envelopes)?;
        let ids = envelopes.iter().map(|envelope| envelope.event_id().clone()).collect();
        self.buffer.extend(envelopes);
        Ok(ids)
    }

    /// Runs the last statement before `COMMIT`, whose success proves that the transaction is open.
    async fn write(&mut self) -> Result<()> {
        let Self { outbox, tx: Some(tx), buffer, locks, handover, savepoint_unknown, .. } = self
        else {
            return Ok(());
        };
        if *savepoint_unknown {
            tx.prove().await?;
            let message = "a savepoint call was cancelled, so the content of the transaction is \
                           unknown";
            return Err(Error::new(ErrorKind::NoTransaction, message));
        }
        if buffer.is_empty() {
            return tx.prove().await;
        }
        let queue = outbox.local_queue.clone();
        let reservation = queue.as_ref().and_then(|queue| queue.reserve(buffer));
        let lease = reservation.as_ref().map(Reservation::hot);
        let locks: Vec<String> = mem::take(locks).into_iter().collect();
        let insert =
            Insert { tables: &outbox.tables, envelopes: buffer, locks: &locks, hot: lease };
        crash_point!("emit.insert.before"?);
        let rows = tx.insert(&insert).await?;
        crash_point!("emit.insert.after"?);
        *handover = reservation
            .zip(queue)
            .map(|(reservation, queue)| Handover::new(queue, reservation, rows, buffer));
        crash_point!("emit.registered"?);
        hook::after_write(&outbox.hooks, buffer);
        crash_point!("emit.commit.before"?);
        Ok(())
    }

    fn committed(&mut self) {
        crash_point!("emit.commit.after");
        if !self.buffer.is_empty() {
            self.wake();
            crash_point!("emit.hook");
            hook::after_commit(&self.outbox.hooks, &self.buffer);
        }
        for callback in mem::take(&mut self.after_commit) {
            hook::guard("after_commit", callback);
        }
    }

    /// Hands committed events to the relay of this process, or wakes it to read the table.
    fn wake(&mut self) {
        let all = self.handover.take().is_some_and(|handover| handover.keep(&self.buffer));
        if !all {
            self.outbox.wake();
        }
    }

    fn rolled_back(&mut self) {
        if !self.buffer.is_empty() {
            hook::after_rollback(&self.outbox.hooks, &self.buffer);
        }
        for callback in mem::take(&mut self.after_rollback) {
            hook::guard("after_rollback", callback);
        }
    }

    pub(super) fn inner(&mut self) -> &mut T {
        self.tx.as_mut().expect("only `commit`, `rollback` and `drop` take it, and they own it")
    }
}

impl<T: OpenTx> Drop for OutboxTx<T> {
    fn drop(&mut self) {
        if let Some(tx) = self.tx.take() {
            drop(tx);
            self.rolled_back();
        }
    }
}

impl<T: OpenTx> Deref for OutboxTx<T> {
    type Target = T::Connection;

    fn deref(&self) -> &T::Connection {
        let tx = self.tx.as_ref();
        tx.expect("only `commit`, `rollback` and `drop` take it, and they own it").connection()
    }
}

impl<T: OpenTx> DerefMut for OutboxTx<T> {
    fn deref_mut(&mut self) -> &mut T::Connection {
        self.inner().connection_mut()
    }
}

impl<T: OpenTx> fmt::Debug for OutboxTx<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("OutboxTx").field("buffered", &self.buffer.len()).finish_non_exhaustive()
    }
}
