//! The wake: a hint that there is something to read, never more than that.

use std::sync::Arc;

use tokio::sync::Notify;

use crate::sync::atomic::{AtomicBool, Ordering};

/// Tells the relay of this process, and by way of it others, that events were committed.
///
/// Many wakes before the relay looks count as one; a wake while it reads makes it read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake(Arc<Signals>);

#[derive(Debug, Default)]
struct Signals {
    here: Notify,
    elsewhere: Notify,
    /// Something was written that nobody will see committed.
    unseen: Notify,
    /// The relay of this process reads everything: there is nobody else to tell.
    alone: AtomicBool,
}

impl Wake {
    /// Something was committed here.
    pub(crate) fn now(&self) {
        self.0.here.notify_one();
        if !self.0.alone.load(Ordering::Relaxed) {
            self.0.elsewhere.notify_one();
        }
    }

    /// Something was written into a transaction whose end nobody sees.
    pub(crate) fn soon(&self) {
        self.0.unseen.notify_one();
    }

    /// Something was committed elsewhere.
    pub(crate) fn hear(&self) {
        self.0.here.notify_one();
    }

    /// Says whether all shards are owned here.
    pub(crate) fn alone(&self, alone: bool) {
        self.0.alone.store(alone, Ordering::Relaxed);
    }

    /// Waits for a wake.
    ///
    /// # Cancel safety
    /// A dropped wait loses no wake.
    pub(crate) async fn wait(&self) {
        self.0.here.notified().await;
    }

    /// Waits until something was written whose commit nobody will see.
    ///
    /// # Cancel safety
    /// A dropped wait loses nothing.
    pub(crate) async fn wait_for_unseen(&self) {
        self.0.unseen.notified().await;
    }

    /// Waits until others are to be told.
    ///
    /// # Cancel safety
    /// A dropped wait loses no wake.
    pub(crate) async fn wait_to_ring(&self) {
        self.0.elsewhere.notified().await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test(start_paused = true)]
    async fn others_are_told_unless_everything_is_read_here() {
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
    async fn what_is_heard_is_not_told_again() {
        let wake = Wake::default();

        wake.hear();

        wake.wait().await;
        let soon = std::time::Duration::from_millis(1);
        assert!(tokio::time::timeout(soon, wake.wait_to_ring()).await.is_err());
    }
}
