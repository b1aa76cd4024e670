//! Hooks: what an application wants to do with events on their way.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use crate::envelope::Envelope;
use crate::error::Result;

/// Sees events on their way, and may change or drop them before they are written.
///
/// On a transaction that the caller began, `after_commit` and `after_rollback` are never called:
/// the outbox does not see it end. When the outcome of a commit is unknown, neither is called.
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
    /// Predecessor events are written: returns those that shall be. An error aborts the emit.
    ///
    /// # Errors
    /// Whatever the hook decides; the caller of `emit` gets it, and nothing is written.
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        Ok(envelopes)
    }

    /// After events were written into a transaction that is still open.
    fn after_write(&self, envelopes: &[Envelope]) {
        let _ = envelopes;
    }

    /// After the transaction was committed.
    fn after_commit(&self, envelopes: &[Envelope]) {
        let _ = envelopes;
    }

    /// After the transaction was rolled back, by call, by drop or by the database.
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

/// Runs what must not reach the caller: the transaction is over, whatever a hook thinks of it.
pub(super) fn guard(phase: &'static str, call: impl FnOnce()) {
    if catch_unwind(AssertUnwindSafe(call)).is_err() {
        tracing::error!(phase, "hook panicked, the transaction is not affected");
    }
}
