//! A transaction whose end the outbox sees: it buffers events and inserts them last.

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

/// An open transaction that takes events with it.
///
/// Work on it as on the connection it derefs to. Events are checked and buffered by
/// [`emit`](Self::emit) and inserted in one statement directly before `COMMIT`: that statement
/// only succeeds in a transaction that still lives, so a commit is believed only with proof.
/// Savepoints go through [`savepoint`](Self::savepoint), which takes events back with a rollback.
///
/// Dropping it rolls back.
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
/// optional.rollback().await?;                        // takes `coupon.used` back
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
    /// `None` only while it ends.
    tx: Option<T>,
    pub(super) buffer: Vec<Envelope>,
    /// Keys to lock before the events are written.
    locks: BTreeSet<String>,
    /// A savepoint's call was dropped half-way: nobody knows what the transaction holds.
    pub(super) doubtful: bool,
    pub(super) after_commit: Vec<Callback>,
    pub(super) after_rollback: Vec<Callback>,
    /// What goes from memory to a worker once it is committed.
    hot: Option<Handover>,
}

type Callback = Box<dyn FnOnce() + Send>;

impl<T: OpenTx> OutboxTx<T> {
    pub(super) fn new(outbox: Outbox, tx: T) -> Self {
        Self {
            outbox,
            tx: Some(tx),
            buffer: Vec::new(),
            locks: BTreeSet::new(),
            doubtful: false,
            after_commit: Vec::new(),
            after_rollback: Vec::new(),
            hot: None,
        }
    }

    /// Emits an event with this transaction.
    ///
    /// Returns its id, or `None` when a hook dropped it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when a part breaks its limit; nothing is buffered then.
    ///
    /// # Cancel safety
    /// Does not wait.
    pub async fn emit<E: Event>(&mut self, event: &E) -> Result<Option<EventId>> {
        self.emit_envelope(Envelope::of(event)?).await
    }

    /// Emits many events with this transaction, in order.
    ///
    /// # Errors
    /// As [`emit`](Self::emit); one that is wrong keeps all of them out.
    ///
    /// # Cancel safety
    /// Does not wait.
    #[expect(clippy::unused_async, reason = "reads like the call on a caller's own transaction")]
    pub async fn emit_all<E: Event>(&mut self, events: &[E]) -> Result<Vec<EventId>> {
        let envelopes = events.iter().map(Envelope::of).collect::<Result<_>>()?;
        self.buffer(envelopes)
    }

    /// Emits an envelope with this transaction.
    ///
    /// # Errors
    /// As [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Does not wait.
    #[expect(clippy::unused_async, reason = "reads like the call on a caller's own transaction")]
    pub async fn emit_envelope(&mut self, envelope: Envelope) -> Result<Option<EventId>> {
        Ok(self.buffer(vec![envelope])?.pop())
    }

    /// Emits an event whose place among those of its key is the order of the commits, for writers
    /// that hold no lock of their own on what the event is about.
    ///
    /// Order per key is the order in which writers lock before they emit: usually the row that the
    /// event is about, by `update` or `select … for update`. Without such a row, this takes a lock
    /// on the key right before the commit, which waits for other transactions that have taken it.
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
    /// [`ErrorKind::Invalid`] when the event has no key; else as [`emit`](Self::emit).
    ///
    /// # Cancel safety
    /// Does not wait.
    pub async fn emit_ordered<E: Event>(&mut self, event: &E) -> Result<Option<EventId>> {
        self.emit_envelope_ordered(Envelope::of(event)?).await
    }

    /// Emits an envelope in the order of the commits.
    ///
    /// # Errors
    /// As [`emit_ordered`](Self::emit_ordered).
    ///
    /// # Cancel safety
    /// Does not wait.
    #[expect(clippy::unused_async, reason = "reads like the call on a caller's own transaction")]
    pub async fn emit_envelope_ordered(&mut self, envelope: Envelope) -> Result<Option<EventId>> {
        super::require_key(&envelope)?;
        let id = self.buffer(vec![envelope])?.pop();
        let written = self.buffer.last().filter(|_| id.is_some());
        self.locks.extend(written.and_then(Envelope::ordering_key));
        Ok(id)
    }

    /// Runs a closure after the commit. A panic in it is logged, never seen by the caller.
    ///
    /// Registered on a savepoint that is rolled back, it does not run.
    pub fn after_commit(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.after_commit.push(Box::new(callback));
    }

    /// Runs a closure after a rollback, also one by drop. A panic in it is logged.
    ///
    /// Registered on a savepoint, it runs when the savepoint is rolled back. It also runs when the
    /// transaction had ended before its commit, where [`Error::transaction`] is [`TxFate::Ended`].
    pub fn after_rollback(&mut self, callback: impl FnOnce() + Send + 'static) {
        self.after_rollback.push(Box::new(callback));
    }

    /// Opens a savepoint; dropping it takes back what was done and emitted in it.
    ///
    /// # Errors
    /// What the database answered.
    ///
    /// # Cancel safety
    /// Dropped half-way, the transaction can only be rolled back.
    pub async fn savepoint(&mut self) -> Result<Savepoint<'_, T>> {
        self.doubtful = true;
        self.inner().savepoint().await?;
        self.doubtful = false;
        Ok(Savepoint::new(self))
    }

    /// Inserts the events and commits.
    ///
    /// # Errors
    /// [`ErrorKind::Duplicate`] when an id of the caller's own exists already: it is now that the
    /// events are inserted. [`ErrorKind::CommitUnknown`] when `COMMIT` was sent and no answer
    /// came. [`ErrorKind::NoTransaction`] when a statement sent over the connection, or the
    /// database, has ended the transaction; [`Error::transaction`] is [`TxFate::Ended`] then, and
    /// what was done before that statement may be committed. In every other case nothing was
    /// committed: the transaction was rolled back.
    ///
    /// # Cancel safety
    /// Dropped before `COMMIT` is sent, it rolls back; after that the outcome is unknown.
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

    /// Rolls back.
    ///
    /// # Errors
    /// What the database answered; the transaction is gone all the same.
    ///
    /// # Cancel safety
    /// Dropped half-way, it still rolls back.
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

    /// The last statement before `COMMIT`, whose success proves that the transaction lives.
    async fn write(&mut self) -> Result<()> {
        let Self { outbox, tx: Some(tx), buffer, locks, hot, doubtful, .. } = self else {
            return Ok(());
        };
        if *doubtful {
            tx.prove().await?;
            let message =
                "a savepoint was given up half-way, what the transaction holds is unknown";
            return Err(Error::new(ErrorKind::NoTransaction, message));
        }
        if buffer.is_empty() {
            return tx.prove().await;
        }
        let held = outbox.hot.as_ref().and_then(|lane| lane.reserve(buffer));
        let lease = held.as_ref().map(Reservation::hot);
        let locks: Vec<String> = mem::take(locks).into_iter().collect();
        let insert =
            Insert { tables: &outbox.tables, envelopes: buffer, locks: &locks, hot: lease };
        crash_point!("emit.insert.before"?);
        let places = tx.insert(&insert).await?;
        crash_point!("emit.insert.after"?);
        let lane = outbox.hot.clone();
        *hot = held.zip(lane).map(|(held, lane)| Handover::new(lane, held, places, buffer));
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

    /// Lets the relay have what was committed: from memory, or by a look at the table.
    fn wake(&mut self) {
        let all = self.hot.take().is_some_and(|handover| handover.keep(&self.buffer));
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
