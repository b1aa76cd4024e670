//! Savepoints: a rollback also drops the events emitted since.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use super::{OutboxTx, hook};
use crate::error::Result;
use crate::tx::OpenTx;

/// A savepoint of an [`OutboxTx`]. Rolling it back also drops the events emitted in it.
///
/// It derefs to the transaction, so savepoints nest; sqlx takes `&mut **savepoint`. Dropping it
/// rolls it back. A rollback drops the [`after_commit`](OutboxTx::after_commit) callbacks that were
/// registered on the savepoint and runs its [`after_rollback`](OutboxTx::after_rollback) callbacks.
#[must_use = "a savepoint that is dropped is rolled back"]
pub struct Savepoint<'t, T: OpenTx> {
    tx: &'t mut OutboxTx<T>,
    /// The numbers of events and callbacks when the savepoint was opened.
    buffered: usize,
    after_commit: usize,
    after_rollback: usize,
    open: bool,
}

impl<'t, T: OpenTx> Savepoint<'t, T> {
    pub(super) fn new(tx: &'t mut OutboxTx<T>) -> Self {
        Self {
            buffered: tx.buffer.len(),
            after_commit: tx.after_commit.len(),
            after_rollback: tx.after_rollback.len(),
            tx,
            open: true,
        }
    }

    /// Releases the savepoint and keeps what was done and emitted since.
    ///
    /// # Errors
    /// Returns the database's error; the transaction can only be rolled back then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction can only be rolled back.
    pub async fn release(mut self) -> Result<()> {
        self.tx.savepoint_unknown = true;
        self.tx.inner().release().await?;
        (self.tx.savepoint_unknown, self.open) = (false, false);
        Ok(())
    }

    /// Rolls back what was done and emitted since the savepoint.
    ///
    /// # Errors
    /// Returns the database's error; the transaction can only be rolled back then.
    ///
    /// # Cancel safety
    /// If the future is dropped, the transaction can only be rolled back.
    pub async fn rollback(mut self) -> Result<()> {
        self.tx.savepoint_unknown = true;
        self.tx.inner().rollback_to().await?;
        (self.tx.savepoint_unknown, self.open) = (false, false);
        self.discard();
        Ok(())
    }

    /// Drops the events and callbacks added since, and runs the rollback callbacks.
    fn discard(&mut self) {
        self.tx.buffer.truncate(self.buffered);
        self.tx.after_commit.truncate(self.after_commit);
        for callback in self.tx.after_rollback.split_off(self.after_rollback) {
            hook::guard("after_rollback", callback);
        }
    }
}

impl<T: OpenTx> Drop for Savepoint<'_, T> {
    fn drop(&mut self) {
        if self.open {
            self.tx.inner().abandon();
            self.discard();
        }
    }
}

impl<T: OpenTx> Deref for Savepoint<'_, T> {
    type Target = OutboxTx<T>;

    fn deref(&self) -> &OutboxTx<T> {
        self.tx
    }
}

impl<T: OpenTx> DerefMut for Savepoint<'_, T> {
    fn deref_mut(&mut self) -> &mut OutboxTx<T> {
        self.tx
    }
}

impl<T: OpenTx> fmt::Debug for Savepoint<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Savepoint").field("tx", &self.tx).finish_non_exhaustive()
    }
}
