//! An owner in either claim mode, for the cases that hold in both.

use pillarbox::store::{ClaimMode, Pending, Settled};
use pillarbox::{EventId, Verdict};

use crate::backend::Backend;
use crate::conformance::claimer::Claimer;
use crate::conformance::owner::{HOUR, Owner, promote_all, row};

/// An owner that a case controls: it owns shards, or it leases rows.
pub(crate) enum AnyOwner {
    Shards(Owner),
    Rows(Claimer),
}

impl AnyOwner {
    /// An owner that may read all events.
    pub(crate) async fn new<B: Backend>(backend: &B, claim: ClaimMode) -> Self {
        match claim {
            ClaimMode::Rows => Self::Rows(Claimer::new(backend).await),
            _ => Self::Shards(Owner::of_all(backend).await),
        }
    }

    /// Lets the lease of this owner lapse, and gives the owner that takes the event over.
    pub(crate) async fn successor<B: Backend>(&self, backend: &B, id: &EventId) -> Self {
        match self {
            Self::Shards(owner) => {
                let mut successor = Owner::joined(backend).await;
                backend.expire(&owner.id).await;
                successor.acquire(u16::MAX).await;
                Self::Shards(successor)
            }
            Self::Rows(_) => {
                backend.age(id, HOUR * 2).await;
                Self::Rows(Claimer::new(backend).await)
            }
        }
    }

    /// Reads the events of its shards, or claims them.
    pub(crate) async fn read(&self) -> Vec<Pending> {
        match self {
            Self::Shards(owner) => owner.read().await,
            Self::Rows(claimer) => claimer.claim().await,
        }
    }

    pub(crate) async fn settle<'r>(
        &self,
        verdicts: impl IntoIterator<Item = (&'r Pending, Verdict)>,
    ) -> Settled {
        match self {
            Self::Shards(owner) => {
                let verdicts = verdicts.into_iter();
                let settlements = verdicts.map(|(row, verdict)| owner.settlement(row, verdict));
                owner.settle(settlements.collect()).await
            }
            Self::Rows(claimer) => {
                Settled { applied: claimer.settle(verdicts).await, refused: vec![] }
            }
        }
    }

    /// Settles one row.
    pub(crate) async fn settle_one(&self, row: &Pending, verdict: Verdict) -> Settled {
        self.settle([(row, verdict)]).await
    }

    /// Reads one event as soon as it is due, and settles it.
    pub(crate) async fn settle_event<B: Backend>(
        &self,
        backend: &B,
        id: &EventId,
        verdict: Verdict,
    ) {
        promote_all(backend).await;
        let rows = self.read().await;
        let settled = self.settle_one(row(&rows, id), verdict).await;
        assert_eq!(settled.applied.len(), 1, "the verdict on {id} was not written: {settled:?}");
    }

    /// Gives back what it owns of these rows.
    pub(crate) async fn release(&self, rows: &[Pending]) {
        match self {
            Self::Shards(owner) => owner.release(&owner.owned).await,
            Self::Rows(claimer) => claimer.release(rows).await,
        };
    }

    /// The answer to a verdict on this row when the owner has lost it: a shard is refused by name.
    pub(crate) fn refusal(&self, row: &Pending) -> Settled {
        match self {
            Self::Shards(_) => Settled { applied: vec![], refused: vec![row.shard] },
            Self::Rows(_) => Settled::default(),
        }
    }

    pub(crate) async fn leave(self) {
        if let Self::Shards(owner) = self {
            owner.store.leave(&owner.id).await.unwrap();
        }
    }
}
