//! The memory store: the contract in its plainest form, for tests and examples.

mod claims;
mod event;
mod events;
mod operations;
mod ownership;
mod schema;
mod state;
mod statistics;
mod tx;

use std::{
    fmt,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use self::state::State;
pub use self::tx::MemoryTx;
use crate::clock::{Clock, SystemClock};

/// Keeps events in memory, with transactions, for tests that need no database.
///
/// Clones share what they hold.
///
/// # Examples
/// ```
/// use pillarbox::store::Statistics as _;
/// use pillarbox::{Envelope, MemoryStore, Outbox};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// let outbox = Outbox::new();
///
/// let mut tx = outbox.begin(&store).await?;
/// tx.emit_envelope(Envelope::json("order.placed", &7)?).await?;
/// tx.commit().await?;
///
/// assert_eq!(store.stats().await?.new, 1);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone)]
pub struct MemoryStore {
    state: Arc<Mutex<State>>,
    shards: NonZeroU16,
    clock: Arc<dyn Clock>,
    /// Held by the transaction that has locked keys, whichever they are.
    keys: Arc<tokio::sync::Mutex<()>>,
}

/// As many as the SQL stores for many machines have.
const SHARDS: NonZeroU16 = NonZeroU16::new(64).expect("64 is not zero");

impl MemoryStore {
    /// An empty store on the machine's clock.
    pub fn new() -> Self {
        Self::with_clock(SystemClock)
    }

    /// An empty store whose "database clock" is this one.
    pub fn with_clock(clock: impl Clock) -> Self {
        Self::with_shards(clock, SHARDS)
    }

    pub(crate) fn with_shards(clock: impl Clock, shards: NonZeroU16) -> Self {
        let state = Arc::new(Mutex::new(State::new(shards)));
        Self { state, shards, clock: Arc::new(clock), keys: Arc::default() }
    }

    fn state(&self) -> MutexGuard<'_, State> {
        self.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Default for MemoryStore {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for MemoryStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryStore").finish_non_exhaustive()
    }
}
