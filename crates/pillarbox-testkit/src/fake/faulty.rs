//! A store that fails, or waits, on demand.

use std::fmt;
use std::sync::{Arc, Mutex};

use pillarbox::store::{
    AcquireShards, AuditEntry, Breakdown, Claim, Claims, DeadLetter, DeliveryMode, Due, Events,
    Filter, Heads, Join, Lease, List, Member, Notifications, Operated, Operation, Operations,
    OutboxConfig, OwnedShard, Ownership, Pending, Promote, Purge, Read, ReadHeads, ReadKeys,
    RenewRows, Renewal, RowLease, Schema, Settle, SettleRows, Settled, Starts, Statistics, Stats,
    StoredEvent,
};
use pillarbox::{
    Error, ErrorKind, EventId, OwnerId, Result, Seq, ShardId, Store, TablePrefix, Token,
};

use super::step::{Gates, Side, Step};

/// A store that passes calls on, except those that a test wants to go wrong or to wait.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use pillarbox::MemoryStore;
/// use pillarbox::store::{Budget, Events, Read};
/// use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = FaultyStore::new(Arc::new(MemoryStore::new()));
/// store.next(Call::Read, Fault::Fail);
///
/// let read = Read { shards: vec![], limit: 1, budget: Budget::unlimited() };
/// assert!(store.read(&read).await.is_err());
/// assert!(store.read(&read).await.is_ok());
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Mutex<Vec<(Call, Fault)>>>,
    shown: Option<(Seq, Token)>,
    watch: Watch,
    gates: Arc<Gates>,
}

/// Sees every row that a read or a claim brings.
#[derive(Clone, Default)]
struct Watch(Option<Arc<OnRow>>);

type OnRow = dyn Fn(&Pending) + Send + Sync;

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Watch").field(&self.0.is_some()).finish()
    }
}

/// A call that can go wrong or be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `join`.
    Join,
    /// `renew`.
    Renew,
    /// `acquire_shards`.
    AcquireShards,
    /// `read`, `read_keys`, `read_heads` and `claim`.
    Read,
    /// `settle` and `settle_rows`.
    Settle,
    /// `notify`.
    Notify,
    /// `reclaim`.
    Reclaim,
    /// `record_starts`.
    RecordStarts,
    /// `promote`.
    Promote,
}

/// How a call goes wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// Nothing happens, and the database is out of reach.
    Fail,
    /// Nothing happens, and the database says that it never will.
    Refuse,
    /// It happens, and the answer is lost.
    LoseAnswer,
    /// The driver panics.
    Panic,
}

impl FaultyStore {
    /// A store without faults, for now.
    pub fn new(inner: Arc<dyn Store>) -> Self {
        Self {
            inner,
            faults: Arc::default(),
            gates: Arc::default(),
            shown: None,
            watch: Watch::default(),
        }
    }

    /// Reads show this row alone, and that only until it is decided on.
    ///
    /// For a relay that is to deliver one event and stop: it would not know of a predecessor that
    /// it is not shown.
    #[must_use]
    pub fn showing(mut self, seq: Seq, token: Token) -> Self {
        self.shown = Some((seq, token));
        self
    }

    /// Shows every row that a read or a claim brings, before the relay sees it.
    #[must_use]
    pub fn watched(mut self, watch: impl Fn(&Pending) + Send + Sync + 'static) -> Self {
        self.watch = Watch(Some(Arc::new(watch)));
        self
    }

    /// Lets the next call of this kind go wrong; said twice, the next two.
    pub fn next(&self, call: Call, fault: Fault) {
        self.faults.lock().unwrap().push((call, fault));
    }

    /// Holds the next call of this kind on this side of the store, until the step is released;
    /// said twice, the next two.
    ///
    /// # Examples
    /// ```
    /// use std::sync::Arc;
    /// use pillarbox::MemoryStore;
    /// use pillarbox::store::{Budget, Events, Read};
    /// use pillarbox_testkit::fake::{Call, FaultyStore, Side};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    /// let mut step = store.hold(Call::Read, Side::After);
    ///
    /// let read = Read { shards: vec![], limit: 1, budget: Budget::unlimited() };
    /// let (answer, ()) = tokio::join!(store.read(&read), async {
    ///     step.reached().await; // it was read, and nobody knows of it yet
    ///     step.release();
    /// });
    /// assert!(answer.is_ok());
    /// # });
    /// # Ok::<(), std::io::Error>(())
    /// ```
    pub fn hold(&self, call: Call, side: Side) -> Step {
        self.gates.close(call, side)
    }

    /// Whether every fault has happened.
    pub fn is_spent(&self) -> bool {
        self.faults.lock().unwrap().is_empty()
    }

    fn fault(&self, call: Call) -> Option<Fault> {
        let mut faults = self.faults.lock().unwrap();
        let at = faults.iter().position(|(of, _)| *of == call)?;
        Some(faults.remove(at).1)
    }

    fn show(&self, mut rows: Vec<Pending>) -> Vec<Pending> {
        rows.retain(|row| self.shown.is_none_or(|shown| shown == (row.seq, row.token)));
        self.watch.0.iter().for_each(|watch| rows.iter().for_each(|row| watch(row)));
        rows
    }

    async fn pass<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        self.gates.pass(call, Side::Before).await;
        let answer = self.happen(call, work).await;
        self.gates.pass(call, Side::After).await;
        answer
    }

    async fn happen<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
        let gone = || Error::new(ErrorKind::Unavailable, format!("{call:?} failed on demand"));
        match self.fault(call) {
            None => work.await,
            Some(Fault::Fail) => Err(gone()),
            Some(Fault::Refuse) => {
                Err(Error::new(ErrorKind::Database, format!("{call:?} refused on demand")))
            }
            Some(Fault::LoseAnswer) => work.await.and_then(|_| Err(gone())),
            Some(Fault::Panic) => panic!("{call:?} panics on demand"),
        }
    }
}

#[pillarbox::store::async_trait]
impl Schema for FaultyStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn prefix(&self) -> TablePrefix {
        self.inner.prefix()
    }

    fn is_pooled(&self) -> bool {
        self.inner.is_pooled()
    }

    async fn migrate(&self) -> Result<()> {
        self.inner.migrate().await
    }

    async fn config(&self) -> Result<OutboxConfig> {
        self.inner.config().await
    }

    async fn mark_seq(&self) -> Result<()> {
        self.inner.mark_seq().await
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        self.inner.configure(mode).await
    }
}

#[pillarbox::store::async_trait]
impl Ownership for FaultyStore {
    async fn join(&self, join: &Join) -> Result<()> {
        self.pass(Call::Join, self.inner.join(join)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        self.pass(Call::Renew, self.inner.renew(lease)).await
    }

    async fn members(&self) -> Result<Vec<Member>> {
        self.inner.members().await
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        self.pass(Call::AcquireShards, self.inner.acquire_shards(acquire)).await
    }

    async fn release(&self, owner: &OwnerId, shards: &[OwnedShard]) -> Result<u64> {
        self.inner.release(owner, shards).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        self.inner.leave(owner).await
    }
}

#[pillarbox::store::async_trait]
impl Events for FaultyStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        self.pass(Call::Read, self.inner.read(read)).await.map(|rows| self.show(rows))
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        self.pass(Call::Read, self.inner.read_keys(read)).await.map(|rows| self.show(rows))
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        let mut heads = self.pass(Call::Read, self.inner.read_heads(read)).await?;
        heads.rows = self.show(heads.rows);
        Ok(heads)
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        self.pass(Call::Promote, self.inner.promote(promote)).await
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        self.inner.postpone(rows).await
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        self.pass(Call::Settle, self.inner.settle(settle)).await
    }

    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>> {
        self.inner.locked(rows).await
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        self.inner.subscribe().await
    }

    async fn notify(&self) -> Result<()> {
        self.pass(Call::Notify, self.inner.notify()).await
    }
}

#[pillarbox::store::async_trait]
impl Claims for FaultyStore {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        let rows = self.pass(Call::Read, self.inner.claim(claim)).await?;
        self.watch.0.iter().for_each(|watch| rows.iter().for_each(|row| watch(row)));
        Ok(rows)
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        self.pass(Call::Renew, self.inner.renew_rows(renew)).await
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        self.inner.release_rows(owner, rows).await
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        self.pass(Call::Reclaim, self.inner.reclaim(rows)).await
    }

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        self.pass(Call::RecordStarts, self.inner.record_starts(starts)).await
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        self.pass(Call::Settle, self.inner.settle_rows(settle)).await
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        self.inner.count_due(shards).await
    }
}

#[pillarbox::store::async_trait]
impl Operations for FaultyStore {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        self.inner.dead_letters(list).await
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        self.inner.count_dead(filter).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        self.inner.operate(operation).await
    }

    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        self.inner.audit_trail(id).await
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        self.inner.purge(purge).await
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        self.inner.event(id).await
    }
}

#[pillarbox::store::async_trait]
impl Statistics for FaultyStore {
    async fn stats(&self) -> Result<Stats> {
        self.inner.stats().await
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        self.inner.breakdown().await
    }
}
