//! A relay in the background.

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use super::Started;
use crate::error::{Error, ErrorKind, Result};
use crate::wake::Wake;

/// A relay that runs in the background.
///
/// Dropping the handle stops it as a shutdown does, without waiting.
///
/// # Examples
/// ```
/// use pillarbox::{Listeners, MemoryStore, Relay};
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// let handle = Relay::new(MemoryStore::new(), Listeners::new()).spawn().await?;
/// handle.wake();
/// handle.stop().await?;
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "a relay stops when its handle is dropped"]
pub struct RelayHandle {
    wake: Wake,
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl RelayHandle {
    pub(super) fn spawn(wake: Wake, relay: Started) -> Self {
        let (stop, stopped) = oneshot::channel();
        // A dropped sender means stop as well.
        let shutdown = async { drop(stopped.await) };
        Self { wake, stop, task: tokio::spawn(relay.run_until(shutdown)) }
    }

    /// Tells the relay to look for events now.
    pub fn wake(&self) {
        self.wake.now();
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Finishes what is under way, gives the shards back, and waits for the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the relay's task had panicked.
    ///
    /// # Cancel safety
    /// The stop goes on when this is dropped.
    pub async fn stop(self) -> Result<()> {
        // A task that ended already has nobody to hear it.
        let _ = self.stop.send(());
        self.task.await.map_err(|panic| {
            Error::new(ErrorKind::Unavailable, "the relay's task ended early").caused_by(panic)
        })
    }
}

/// Ends a task with its owner.
#[derive(Debug)]
pub(super) struct AbortOnDrop(pub(super) JoinHandle<()>);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}
