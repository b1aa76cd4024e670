//! Savepoints: a rollback takes the events along.

use std::{
    fmt,
    ops::{Deref, DerefMut},
};

use super::{OutboxTx, hook};
use crate::error::Result;
use crate::tx::OpenTx;

/// A part of a transaction that can be taken back with the events emitted in it.
///
/// It derefs to the transaction, so savepoints nest; sqlx takes `&mut **savepoint`. Dropping it
/// rolls it back. A rollback drops the [`after_commit`](OutboxTx::after_commit) callbacks that were
/// registered on the savepoint, and runs its [`after_rollback`](OutboxTx::after_rollback) ones.
#[must_use = "a savepoint that is dropped is rolled back"]
pub struct Savepoint<'t, T: OpenTx> {
    tx: &'t mut OutboxTx<T>,
    /// How many events and callbacks there were when it was opened.
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

    /// Keeps what was done and emitted since.
    ///
    /// # Errors
    /// What the database answered; the transaction can only be rolled back then.
    ///
    /// # Cancel safety
    /// Dropped half-way, the transaction can only be rolled back.
    pub async fn release(mut self) -> Result<()> {
        self.tx.doubtful = true;
        self.tx.inner().release().await?;
        (self.tx.doubtful, self.open) = (false, false);
        Ok(())
    }

    /// Takes back what was done and emitted since.
    ///
    /// # Errors
    /// What the database answered; the transaction can only be rolled back then.
    ///
    /// # Cancel safety
    /// Dropped half-way, the transaction can only be rolled back.
    pub async fn rollback(mut self) -> Result<()> {
        self.tx.doubtful = true;
        self.tx.inner().rollback_to().await?;
        (self.tx.doubtful, self.open) = (false, false);
        self.forget();
        Ok(())
    }

    /// Drops the events and the callbacks that came since, and runs those for a rollback.
    fn forget(&mut self) {
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
            self.forget();
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
