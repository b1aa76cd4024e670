//! A relay in the background.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::clock::instant;
use crate::error::{Error, ErrorKind, Result};
use crate::listener::Pattern;
use crate::relay::dispatch::pause::Pauses;
use crate::relay::running::{RunningRelay, StopSummary};
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
    pauses: Arc<Pauses>,
    stop: oneshot::Sender<()>,
    task: JoinHandle<StopSummary>,
}

impl RelayHandle {
    pub(super) fn spawn(wake: Wake, relay: RunningRelay) -> Self {
        let (stop, stopped) = oneshot::channel();
        // A dropped sender means stop as well.
        let shutdown = async { drop(stopped.await) };
        let pauses = relay.pauses();
        Self { wake, pauses, stop, task: tokio::spawn(relay.run_until(shutdown)) }
    }

    /// Tells the relay to look for events now.
    pub fn wake(&self) {
        self.wake.now();
    }

    /// Puts off the events of a route, `order/order.placed` or a [`Pattern`], until it resumes.
    ///
    /// They are deferred, and no attempt is counted; a delivery under way is finished. All other
    /// events go on, but not past one with the same key. It holds for this relay and its life;
    /// pausing twice is pausing once.
    ///
    /// # Examples
    /// ```
    /// use pillarbox::{Listeners, MemoryStore, Relay};
    ///
    /// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
    /// let relay = Relay::new(MemoryStore::new(), Listeners::new()).spawn().await?;
    ///
    /// relay.pause("payment.*")?;
    /// assert_eq!(relay.paused().len(), 1);
    /// assert!(relay.resume("payment.*")?);
    /// # relay.stop().await?;
    /// # Ok::<(), pillarbox::Error>(())
    /// # })?;
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is not a pattern, or 256 others are paused.
    pub fn pause(&self, route: impl TryInto<Pattern, Error: Into<Error>>) -> Result<()> {
        self.pauses.pause(route.try_into().map_err(Into::into)?, instant())
    }

    /// Ends a pause, named as it was paused; says whether there was one.
    ///
    /// What was put off comes again within as long as the pause has lasted, half a second at
    /// least and ten at most.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`] when it is not a pattern.
    pub fn resume(&self, route: impl TryInto<Pattern, Error: Into<Error>>) -> Result<bool> {
        Ok(self.pauses.resume(&route.try_into().map_err(Into::into)?))
    }

    /// What is paused.
    pub fn paused(&self) -> Vec<Pattern> {
        self.pauses.all()
    }

    /// Whether it still runs.
    pub fn is_running(&self) -> bool {
        !self.task.is_finished()
    }

    /// Delivers what was committed before, gives the shards back, and says what was left.
    ///
    /// New commits are not handed over in memory any more. Events that are due in this relay's
    /// shards are delivered as long as [`drain`](crate::RelaySettings::drain) allows; those that
    /// wait for a time, a retry or their key stay in the table.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when the relay's task had panicked.
    ///
    /// # Cancel safety
    /// The stop goes on when this is dropped.
    pub async fn stop(self) -> Result<StopSummary> {
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
