//! The memory store: the contract in its plainest form, for tests and examples.

mod claim;
mod count;
mod event;
mod operate;
mod read;
mod state;
mod tx;

use std::{
    fmt,
    num::NonZeroU16,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
};

use async_trait::async_trait;

use self::state::State;
pub use self::tx::MemoryTx;
use super::{
    AcquireShards, AuditEntry, Breakdown, Claim, Claims, DeadLetter, DeliveryMode, Due, Events,
    Filter, Heads, Join, Lease, List, Member, Notifications, Operated, Operation, Operations,
    OutboxConfig, OwnedShard, Ownership, Pending, Promote, Purge, Read, ReadHeads, ReadKeys,
    RenewRows, Renewal, RowLease, Schema, Settle, SettleRows, Settled, Starts, Statistics, Stats,
    StoredEvent,
};
use crate::clock::{Clock, SystemClock};
use crate::error::Result;
use crate::id::{EventId, OwnerId, Seq, ShardId};
use crate::table::TablePrefix;

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

#[async_trait]
impl Schema for MemoryStore {
    fn name(&self) -> &'static str {
        "memory"
    }

    fn prefix(&self) -> TablePrefix {
        TablePrefix::default()
    }

    fn is_pooled(&self) -> bool {
        false
    }

    async fn migrate(&self) -> Result<()> {
        Ok(())
    }

    async fn config(&self) -> Result<OutboxConfig> {
        Ok(OutboxConfig { shards: self.shards, mode: self.state().mode })
    }

    async fn mark_seq(&self) -> Result<()> {
        Ok(())
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        self.state().configure(*mode, self.clock.now())
    }
}

#[async_trait]
impl Ownership for MemoryStore {
    async fn join(&self, join: &Join) -> Result<()> {
        self.state().join(join, self.clock.now())
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        Ok(self.state().renew(lease, self.clock.now()))
    }

    async fn members(&self) -> Result<Vec<Member>> {
        Ok(self.state().members(self.clock.now()))
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        Ok(self.state().acquire_shards(acquire, self.clock.now()))
    }

    async fn release(&self, owner: &OwnerId, holdings: &[OwnedShard]) -> Result<u64> {
        Ok(self.state().release(owner, holdings))
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        self.state().leave(owner);
        Ok(())
    }
}

#[async_trait]
impl Events for MemoryStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        Ok(self.state().read(read, self.clock.now()))
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        Ok(self.state().read_keys(read, self.clock.now()))
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        Ok(self.state().read_heads(read, self.clock.now()))
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        Ok(self.state().promote(promote, self.clock.now()))
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        Ok(self.state().postpone(rows, self.clock.now()))
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        Ok(self.state().settle(settle, self.clock.now()))
    }

    async fn locked(&self, _: &[RowLease]) -> Result<Vec<Seq>> {
        Ok(Vec::new())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        Ok(None)
    }

    async fn notify(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Claims for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        Ok(self.state().claim(claim, self.clock.now()))
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        Ok(self.state().renew_rows(renew, self.clock.now()))
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        Ok(self.state().release_rows(owner, rows))
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        Ok(self.state().reclaim(rows, self.clock.now()))
    }

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        Ok(self.state().record_starts(starts))
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        Ok(self.state().settle_rows(settle, self.clock.now()))
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        Ok(self.state().count_due(shards, self.clock.now()))
    }
}

#[async_trait]
impl Operations for MemoryStore {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        Ok(self.state().dead_letters(list))
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        Ok(self.state().count_dead(filter))
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        operation.check()?;
        Ok(self.state().operate(operation, self.clock.now()))
    }

    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        Ok(self.state().audit_trail(id))
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        self.state().purge(purge, self.clock.now())
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        Ok(self.state().event(id))
    }
}

#[async_trait]
impl Statistics for MemoryStore {
    async fn stats(&self) -> Result<Stats> {
        Ok(self.state().stats(self.clock.now()))
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        Ok(self.state().breakdown(self.clock.now()))
    }
}
