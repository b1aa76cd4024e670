//! An owner that leases rows one by one, for the cases about row claims.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{
    Budget, Claim, Order, Pending, RenewRows, RowLease, RowVerdict, SettleRows,
};
use pillarbox::{OwnerId, Seq, ShardId, Store, TablePrefix, Verdict};

use crate::backend::{Backend, Need};
use crate::conformance::owner::{ALL, HOUR, shards};

/// An owner of row leases that a case controls. Its leases last an hour.
#[derive(Clone, Debug)]
pub(crate) struct Claimer {
    pub(crate) store: Arc<dyn Store>,
    pub(crate) id: OwnerId,
    /// The shards it claims from, the most wanted first.
    pub(crate) shards: Vec<ShardId>,
    pub(crate) order: Order,
}

impl Claimer {
    /// One that keeps the order of keys.
    pub(crate) async fn new<B: Backend>(backend: &B) -> Self {
        Self::on(backend.store()).await
    }

    /// One on connections of its own, as far as the backend has any.
    pub(crate) async fn apart<B: Backend>(backend: &B) -> Self {
        Self::on(store_apart(backend).await).await
    }

    /// One that takes everything that is due.
    pub(crate) async fn unordered<B: Backend>(backend: &B) -> Self {
        Self { order: Order::None, ..Self::new(backend).await }
    }

    async fn on(store: Arc<dyn Store>) -> Self {
        let shards = shards(&*store).await;
        Self { store, id: OwnerId::generate(), shards, order: Order::Key }
    }

    /// Claims as much as there is.
    pub(crate) async fn claim(&self) -> Vec<Pending> {
        self.claim_up_to(ALL).await
    }

    pub(crate) async fn claim_up_to(&self, limit: u32) -> Vec<Pending> {
        self.store.claim(&self.request(limit)).await.unwrap()
    }

    pub(crate) fn request(&self, limit: u32) -> Claim {
        Claim {
            owner: self.id.clone(),
            length: HOUR,
            shards: self.shards.clone(),
            after: None,
            limit,
            budget: Budget::unlimited(),
            order: self.order,
        }
    }

    /// Prolongs leases, and gives those that were still its own.
    pub(crate) async fn renew(&self, rows: &[Pending], length: Duration) -> Vec<Seq> {
        self.store.renew_rows(&self.renewal(rows, length)).await.unwrap()
    }

    pub(crate) fn renewal(&self, rows: &[Pending], length: Duration) -> RenewRows {
        RenewRows { owner: self.id.clone(), length, rows: leases(rows) }
    }

    pub(crate) async fn release(&self, rows: &[Pending]) -> u64 {
        self.store.release_rows(&self.id, &leases(rows)).await.unwrap()
    }

    /// Writes one verdict on one row, and gives what was written.
    pub(crate) async fn settle_one(&self, row: &Pending, verdict: Verdict) -> Vec<Seq> {
        self.settle([(row, verdict)]).await
    }

    pub(crate) async fn settle<'r>(
        &self,
        verdicts: impl IntoIterator<Item = (&'r Pending, Verdict)>,
    ) -> Vec<Seq> {
        self.store.settle_rows(&self.settlement(verdicts)).await.unwrap()
    }

    pub(crate) fn settlement<'r>(
        &self,
        verdicts: impl IntoIterator<Item = (&'r Pending, Verdict)>,
    ) -> SettleRows {
        let verdict = |(row, verdict): (&Pending, Verdict)| RowVerdict {
            row: row.into(),
            verdict,
            settled_by: Some("mailer".to_owned()),
        };
        SettleRows { owner: self.id.clone(), verdicts: verdicts.into_iter().map(verdict).collect() }
    }
}

/// The leases of rows that were claimed.
fn leases(rows: &[Pending]) -> Vec<RowLease> {
    rows.iter().map(RowLease::from).collect()
}

/// The `seq` of rows, in their order.
pub(crate) fn seqs(rows: &[Pending]) -> Vec<Seq> {
    rows.iter().map(|row| row.seq).collect()
}

/// The store under test on connections of its own; memory has none, and no need of them.
pub(crate) async fn store_apart<B: Backend>(backend: &B) -> Arc<dyn Store> {
    if backend.lacks(Need::Tables).is_some() {
        return backend.store();
    }
    backend.store_at(TablePrefix::default()).await
}
