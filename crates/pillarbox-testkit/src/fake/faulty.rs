//! A store that fails, or waits, on demand.

use std::sync::{Arc, Mutex};

use pillarbox::store::{
    AuditEntry, Bell, Breakdown, Claim, DeadLetter, Filter, Holding, Join, Layout, Lease, List,
    Member, Mode, Operated, Operation, Pending, Purge, Read, ReadKeys, RenewRows, Renewal,
    RowLease, Settle, SettleRows, Settled, Stats, StoredEvent, Suspects, Take,
};
use pillarbox::{Error, ErrorKind, EventId, OwnerId, Result, Seq, Store, TablePrefix, Token};

use super::step::{Gates, Side, Step};

/// A store that passes calls on, except those that a test wants to go wrong or to wait.
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
    shown: Option<(Seq, Token)>,
    gates: Arc<Gates>,
}

/// A call that can go wrong or be held.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Call {
    /// `join`.
    Join,
    /// `renew`.
    Renew,
    /// `take`.
    Take,
    /// `read`, `read_keys` and `claim`.
    Read,
    /// `settle` and `settle_rows`.
    Settle,
    /// `ring`.
    Ring,
    /// `reclaim`.
    Reclaim,
    /// `suspect`.
    Suspect,
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
        Self { inner, faults: Arc::default(), gates: Arc::default(), shown: None }
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
    /// use pillarbox::{MemoryStore, Store};
    /// use pillarbox_testkit::fake::{Call, FaultyStore, Side};
    ///
    /// # tokio::runtime::Builder::new_current_thread().enable_time().build()?.block_on(async {
    /// let store = FaultyStore::new(Arc::new(MemoryStore::new()));
    /// let mut step = store.hold(Call::Read, Side::After);
    ///
    /// let read = pillarbox::store::Read { shards: vec![], limit: 1 };
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
impl Store for FaultyStore {
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

    async fn layout(&self) -> Result<Layout> {
        self.inner.layout().await
    }

    async fn mark_seq(&self) -> Result<()> {
        self.inner.mark_seq().await
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

    async fn members(&self) -> Result<Vec<Member>> {
        self.inner.members().await
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
        self.pass(Call::Read, self.inner.read(read)).await.map(|rows| self.show(rows))
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        self.pass(Call::Read, self.inner.read_keys(read)).await.map(|rows| self.show(rows))
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

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        self.pass(Call::Reclaim, self.inner.reclaim(rows)).await
    }

    async fn suspect(&self, suspects: &Suspects) -> Result<Vec<(Seq, u32)>> {
        self.pass(Call::Suspect, self.inner.suspect(suspects)).await
    }

    async fn hear(&self) -> Result<Option<Box<dyn Bell>>> {
        self.inner.hear().await
    }

    async fn ring(&self) -> Result<()> {
        self.pass(Call::Ring, self.inner.ring()).await
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

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        self.inner.operate(operation).await
    }

    async fn trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
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
