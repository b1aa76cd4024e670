//! A process that writes and does not deliver: it only notifies other relays.

use std::sync::Arc;

use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::error::{Error, ErrorKind, Result};
use crate::outbox::Outbox;
use crate::relay::{Relay, notify};
use crate::store::{self, Store};
use crate::wake::Wake;

impl Relay {
    /// For a process that writes and does not deliver: its commits ring relays elsewhere.
    ///
    /// No lease is taken, nothing is read, no listener is called.
    pub fn writer_only(store: impl Store) -> WriterOnly {
        WriterOnly { store: store::share(store), wake: Wake::default() }
    }
}

/// Tells relays elsewhere of what this process commits.
///
/// An [`Outbox::new`] only writes, and relays find its events by polling. This one's
/// [`outbox`](Self::outbox) has them woken, from a connection apart and never inside a
/// transaction: however many commits there are, at most every few milliseconds. Where the
/// database cannot tell, which is everywhere but on PostgreSQL, relays poll all the same.
///
/// # Examples
/// ```
/// use pillarbox::{Envelope, MemoryStore, Relay};
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let writer = Relay::writer_only(store.clone());
/// let outbox = writer.outbox(); // cheap to clone; give one to every handler
/// let writer = writer.spawn().await?;
///
/// let mut tx = outbox.begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
/// tx.commit().await?;
///
/// writer.stop().await?; // what was committed last is told too
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Debug)]
#[must_use = "it tells nobody before it runs"]
pub struct WriterOnly {
    store: Arc<dyn Store>,
    wake: Wake,
}

impl WriterOnly {
    /// An outbox on the store's tables, whose commits ring.
    pub fn outbox(&self) -> Outbox {
        Outbox::for_writer(self.wake.clone()).on(&*self.store)
    }

    /// Rings until `shutdown` is ready, and once more then, for what was committed last.
    ///
    /// # Errors
    /// [`ErrorKind::Schema`] when the tables do not fit, and what the database answers at the
    /// start. Once started, it copes with errors itself: a wake is a hint, and relays poll.
    ///
    /// # Cancel safety
    /// Dropped half-way, the last commits may not be told.
    pub async fn run_until(self, shutdown: impl Future<Output = ()>) -> Result<()> {
        self.store.config().await?;
        self.ring_until(shutdown).await;
        Ok(())
    }

    /// Rings in the background until the handle says stop.
    ///
    /// # Errors
    /// As [`run_until`](Self::run_until), before anything is spawned.
    ///
    /// # Cancel safety
    /// Dropped before it returns, nothing runs.
    pub async fn spawn(self) -> Result<WriterHandle> {
        self.store.config().await?;
        let (stop, stopped) = oneshot::channel();
        // A dropped sender means stop as well.
        let shutdown = async { drop(stopped.await) };
        Ok(WriterHandle { stop, task: tokio::spawn(self.ring_until(shutdown)) })
    }

    async fn ring_until(self, shutdown: impl Future<Output = ()>) {
        tokio::select! {
            () = notify::look_again(self.wake.clone()) => {}
            () = notify::ring(Arc::clone(&self.store), self.wake) => {}
            () = shutdown => {}
        }
        // A notification may have been cut off: one too many does no harm.
        notify::ring_last(&*self.store).await;
    }
}

/// A [`WriterOnly`] that runs in the background.
///
/// Dropping the handle stops it as [`stop`](Self::stop) does, without waiting.
#[derive(Debug)]
#[must_use = "nobody is told any more when the handle is dropped"]
pub struct WriterHandle {
    stop: oneshot::Sender<()>,
    task: JoinHandle<()>,
}

impl WriterHandle {
    /// Tells of what was committed last, and waits for the end.
    ///
    /// # Errors
    /// [`ErrorKind::Unavailable`] when its task had panicked.
    ///
    /// # Cancel safety
    /// The stop goes on when this is dropped.
    pub async fn stop(self) -> Result<()> {
        // A task that ended already has nobody to hear it.
        let _ = self.stop.send(());
        self.task.await.map_err(|panic| {
            Error::new(ErrorKind::Unavailable, "the writer's task ended early").caused_by(panic)
        })
    }
}
