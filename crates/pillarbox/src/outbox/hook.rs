//! Hooks: inspect, change or drop events before they are written.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::envelope::Envelope;
use crate::error::Result;

/// Inspects, changes or drops events before they are written, and learns how the transaction ended.
///
/// `after_commit` and `after_rollback` are not called for a transaction that the caller began,
/// because the outbox does not see it end, nor when the outcome of a commit is unknown.
///
/// # Examples
/// ```
/// use pillarbox::{Envelope, Hook, Outbox};
///
/// struct Stamp;
///
/// impl Hook for Stamp {
///     fn before_write(&self, envelopes: Vec<Envelope>) -> pillarbox::Result<Vec<Envelope>> {
///         envelopes.into_iter().map(|envelope| envelope.header("service", "shop")).collect()
///     }
/// }
///
/// let outbox = Outbox::new().hook(Stamp);
/// # let _ = outbox;
/// ```
pub trait Hook: Send + Sync + 'static {
    /// Called before events are written. Returns the events to write.
    ///
    /// # Errors
    /// Any error aborts the emit: nothing is written, and the caller of `emit` gets the error.
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        Ok(envelopes)
    }

    /// Called after events were written into a transaction that is still open.
    fn after_write(&self, envelopes: &[Envelope]) {
        let _ = envelopes;
    }

    /// Called after the transaction was committed.
    fn after_commit(&self, envelopes: &[Envelope]) {
        let _ = envelopes;
    }

    /// Called after the transaction was rolled back: explicitly, by a drop or by the database.
    fn after_rollback(&self, envelopes: &[Envelope]) {
        let _ = envelopes;
    }
}

type Hooks = [Arc<dyn Hook>];

pub(super) fn after_write(hooks: &Hooks, envelopes: &[Envelope]) {
    each("after_write", hooks, |hook| hook.after_write(envelopes));
}

pub(super) fn after_commit(hooks: &Hooks, envelopes: &[Envelope]) {
    each("after_commit", hooks, |hook| hook.after_commit(envelopes));
}

pub(super) fn after_rollback(hooks: &Hooks, envelopes: &[Envelope]) {
    each("after_rollback", hooks, |hook| hook.after_rollback(envelopes));
}

fn each(phase: &'static str, hooks: &Hooks, call: impl Fn(&dyn Hook)) {
    for hook in hooks {
        guard(phase, || call(&**hook));
    }
}

/// Runs a callback and catches its panic, which must not affect a transaction that has ended.
pub(super) fn guard(phase: &'static str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!(phase, "hook panicked, the transaction is not affected");
    }
}
