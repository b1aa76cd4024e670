//! The wake: a hint that there is something to read, never more than that.

use std::sync::Arc;

use tokio::sync::Notify;

/// Tells a relay in this process that events were committed.
///
/// Many wakes before the relay looks count as one; a wake while it reads makes it read again.
#[derive(Clone, Debug, Default)]
pub(crate) struct Wake(Arc<Notify>);

impl Wake {
    pub(crate) fn now(&self) {
        self.0.notify_one();
    }

    /// Waits for a wake.
    ///
    /// # Cancel safety
    /// A dropped wait loses no wake.
    pub(crate) async fn wait(&self) {
        self.0.notified().await;
    }
}
