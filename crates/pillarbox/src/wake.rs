//! Wakes: hints that there are events to read.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::sync::atomic::{AtomicBool, Ordering};

/// Signals the relay of this process, and through it other relays, that events were committed.
///
/// Wakes coalesce until the relay reads; a wake during a read causes another read.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    /// Wakes the relay of this process.
    here: Notify,
    /// Wakes the task that notifies other relays.
    elsewhere: Notify,
    /// Signals an insert into a transaction whose end the outbox does not see.
    unseen: Notify,
    /// Whether the relay of this process owns all shards, so that no other needs a notification.
    alone: AtomicBool,
}

impl Wake {
    /// Signals a commit in this process.
    pub(crate) fn now(&self) {
        self.0.here.notify_one();
        if !self.0.alone.load(Ordering::Relaxed) {
            self.0.elsewhere.notify_one();
        }
    }

    /// Signals an insert into a transaction whose end the outbox does not see.
    pub(crate) fn soon(&self) {
        self.0.unseen.notify_one();
    }

    /// Signals a commit in another process.
    pub(crate) fn hear(&self) {
        self.0.here.notify_one();
    }

    /// Sets whether the relay of this process owns all shards.
    pub(crate) fn alone(&self, alone: bool) {
        self.0.alone.store(alone, Ordering::Relaxed);
    }

    /// Waits for a wake.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub(crate) async fn wait(&self) {
        self.0.here.notified().await;
    }

    /// Waits for an insert into a transaction whose end the outbox does not see.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub(crate) async fn wait_for_unseen(&self) {
        self.0.unseen.notified().await;
    }

    /// Waits until other relays are to be notified.
    ///
    /// # Cancel safety
    /// This method is cancel safe.
    pub(crate) async fn wait_to_ring(&self) {
        self.0.elsewhere.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn other_relays_are_notified_unless_this_one_owns_all_shards() {
        let wake = Wake::default();
        let soon = std::time::Duration::from_millis(1);
        wake.alone(true);
        wake.now();
        wake.wait().await;
        assert!(tokio::time::timeout(soon, wake.wait_to_ring()).await.is_err());

        wake.alone(false);
        wake.now();

        wake.wait_to_ring().await;
        wake.wait().await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_notification_is_not_forwarded() {
        let wake = Wake::default();

        wake.hear();

        wake.wait().await;
        let soon = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(soon, wake.wait_to_ring()).await.is_err());
    }
}
