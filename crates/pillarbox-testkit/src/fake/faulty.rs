//! A store that fails on demand.

use std::sync::{Arc, Mutex};

use pillarbox::store::{
    AuditEntry, Breakdown, Claim, DeadLetter, Filter, Holding, Join, Layout, Lease, List, Mode,
    Operation, Pending, Purge, Read, ReadKey, RenewRows, Renewal, RowLease, Settle, SettleRows,
    Settled, Stats, StoredEvent, Take,
};
use pillarbox::{Error, ErrorKind, EventId, OwnerId, Result, Seq, Store, TablePrefix};

/// A store that passes calls on, except those that a test wants to go wrong.
///
/// # Examples
/// ```
/// use std::sync::Arc;
/// use pillarbox::{MemoryStore, Store};
/// use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = FaultyStore::new(Arc::new(MemoryStore::new()));
/// store.next(Call::Read, Fault::Fail);
///
/// let read = pillarbox::store::Read { shards: vec![], limit: 1 };
/// assert!(store.read(&read).await.is_err());
/// assert!(store.read(&read).await.is_ok());
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct FaultyStore {
    inner: Arc<dyn Store>,
    faults: Arc<Mutex<Vec<(Call, Fault)>>>,
}

/// A call that can go wrong.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `join`.
    Join,
    /// `renew`.
    Renew,
    /// `take`.
    Take,
    /// `read` and `read_key`.
    Read,
    /// `settle`.
    Settle,
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
        Self { inner, faults: Arc::default() }
    }

    /// Lets the next call of this kind go wrong; said twice, the next two.
    pub fn next(&self, call: Call, fault: Fault) {
        self.faults.lock().unwrap().push((call, fault));
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

    async fn pass<T>(&self, call: Call, work: impl Future<Output = Result<T>>) -> Result<T> {
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
impl Store for FaultyStore {
    fn name(&self) -> &'static str {
        self.inner.name()
    }

    fn prefix(&self) -> TablePrefix {
        self.inner.prefix()
    }

    async fn migrate(&self) -> Result<()> {
        self.inner.migrate().await
    }

    async fn layout(&self) -> Result<Layout> {
        self.inner.layout().await
    }

    async fn configure(&self, mode: &Mode) -> Result<()> {
        self.inner.configure(mode).await
    }

    async fn join(&self, join: &Join) -> Result<()> {
        self.pass(Call::Join, self.inner.join(join)).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        self.pass(Call::Renew, self.inner.renew(lease)).await
    }

    async fn take(&self, take: &Take) -> Result<Vec<Holding>> {
        self.pass(Call::Take, self.inner.take(take)).await
    }

    async fn release(&self, owner: &OwnerId, holdings: &[Holding]) -> Result<u64> {
        self.inner.release(owner, holdings).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        self.inner.leave(owner).await
    }

    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        self.pass(Call::Read, self.inner.read(read)).await
    }

    async fn read_key(&self, read: &ReadKey) -> Result<Vec<Pending>> {
        self.pass(Call::Read, self.inner.read_key(read)).await
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        self.pass(Call::Settle, self.inner.settle(settle)).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        self.pass(Call::Read, self.inner.claim(claim)).await
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        self.pass(Call::Renew, self.inner.renew_rows(renew)).await
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        self.inner.release_rows(owner, rows).await
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        self.pass(Call::Settle, self.inner.settle_rows(settle)).await
    }

    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        self.inner.dead_letters(list).await
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        self.inner.count_dead(filter).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Vec<EventId>> {
        self.inner.operate(operation).await
    }

    async fn trail(&self, id: &EventId) -> Result<Vec<AuditEntry>> {
        self.inner.trail(id).await
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        self.inner.purge(purge).await
    }

    async fn stats(&self) -> Result<Stats> {
        self.inner.stats().await
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        self.inner.breakdown().await
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        self.inner.event(id).await
    }
}
