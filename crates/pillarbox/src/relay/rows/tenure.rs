//! The lease on one row: until when it is ours, and whether it still is.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::{Clock, Deadline};
use crate::store::RowLease;

/// A row in hand, shared between the engine that renews its lease and the delivery that relies on
/// it.
#[derive(Debug)]
pub(in crate::relay) struct RowTenure {
    pub(super) row: RowLease,
    /// `None` = it is another's, or an operator's.
    deadline: Mutex<Option<Deadline>>,
}

impl RowTenure {
    pub(super) fn new(row: RowLease, deadline: Deadline) -> Arc<Self> {
        Arc::new(Self { row, deadline: Mutex::new(Some(deadline)) })
    }

    /// Whether the lease still runs for longer than `margin`.
    pub(in crate::relay) fn is_live(&self, clock: &dyn Clock, margin: Duration) -> bool {
        self.deadline().is_some_and(|deadline| !deadline.has_passed(clock, margin))
    }

    pub(super) fn is_lost(&self) -> bool {
        self.deadline().is_none()
    }

    /// What was lost stays lost: another claim is another tenure.
    pub(super) fn prolong(&self, until: Deadline) {
        if let Some(deadline) = self.deadline().as_mut() {
            *deadline = until;
        }
    }

    pub(super) fn lose(&self) {
        *self.deadline() = None;
    }

    fn deadline(&self) -> MutexGuard<'_, Option<Deadline>> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::id::{Seq, ShardId, Token};

    const SECOND: Duration = Duration::from_secs(1);

    fn tenure() -> Arc<RowTenure> {
        let row = RowLease { shard: ShardId(0), seq: Seq(1), token: Token(1) };
        RowTenure::new(row, Deadline::after(&SystemClock, SECOND))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_unless_it_is_prolonged() {
        let (kept, left) = (tenure(), tenure());
        kept.prolong(Deadline::after(&SystemClock, SECOND * 10));

        tokio::time::advance(SECOND * 2).await;

        assert!(kept.is_live(&SystemClock, SECOND));
        assert!(!left.is_live(&SystemClock, Duration::ZERO) && !left.is_lost());
    }

    #[test]
    fn what_was_lost_does_not_come_back() {
        let tenure = tenure();
        tenure.lose();

        tenure.prolong(Deadline::after(&SystemClock, SECOND * 10));

        assert!(tenure.is_lost() && !tenure.is_live(&SystemClock, Duration::ZERO));
    }
}
