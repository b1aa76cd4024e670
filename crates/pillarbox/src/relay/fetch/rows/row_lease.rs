//! The lease on one row: until when it is ours, and whether it still is.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use crate::clock::{Clock, Deadline};
use crate::id::{Seq, Token};
use crate::relay::number_map::{NumberMap, NumberSet};
use crate::store::RowLease;

/// A row in hand, shared between the engine that renews its lease and the delivery that relies on
/// it.
#[derive(Debug)]
pub(crate) struct RowLeaseGuard {
    pub(crate) row: RowLease,
    /// `None` = it is another's, or an operator's.
    deadline: Mutex<Option<Deadline>>,
}

impl RowLeaseGuard {
    pub(crate) fn new(row: RowLease, deadline: Deadline) -> Arc<Self> {
        Arc::new(Self { row, deadline: Mutex::new(Some(deadline)) })
    }

    /// Whether the lease still runs for longer than `margin`.
    pub(crate) fn is_live(&self, clock: &dyn Clock, margin: Duration) -> bool {
        self.deadline().is_some_and(|deadline| !deadline.has_passed(clock, margin))
    }

    pub(crate) fn is_lost(&self) -> bool {
        self.deadline().is_none()
    }

    /// What was lost stays lost: another claim is another guard.
    pub(crate) fn prolong(&self, until: Deadline) {
        if let Some(deadline) = self.deadline().as_mut() {
            *deadline = until;
        }
    }

    pub(crate) fn lose(&self) {
        *self.deadline() = None;
    }

    fn deadline(&self) -> MutexGuard<'_, Option<Deadline>> {
        self.deadline.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Prolongs the guards of rows that were kept, and loses the others.
///
/// A row whose lease ran out and that was claimed again is in hand twice for a while. What was kept
/// of it is the last claim, which has the highest token.
pub(crate) fn renew(guards: &[Arc<RowLeaseGuard>], kept: &[Seq], until: Deadline) {
    let kept: NumberSet<Seq> = kept.iter().copied().collect();
    let mut last: NumberMap<Seq, Token> = NumberMap::default();
    for RowLease { seq, token, .. } in guards.iter().map(|guard| guard.row) {
        last.entry(seq).and_modify(|last| *last = token.max(*last)).or_insert(token);
    }
    for guard in guards {
        let RowLease { seq, token, .. } = guard.row;
        if kept.contains(&seq) && last.get(&seq) == Some(&token) {
            guard.prolong(until);
        } else {
            guard.lose();
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::SystemClock;
    use crate::id::ShardId;

    const SECOND: Duration = Duration::from_secs(1);

    fn guard() -> Arc<RowLeaseGuard> {
        let row = RowLease { shard: ShardId(0), seq: Seq(1), token: Token(1) };
        RowLeaseGuard::new(row, Deadline::after(&SystemClock, SECOND))
    }

    #[tokio::test(start_paused = true)]
    async fn a_lease_ends_unless_it_is_prolonged() {
        let (kept, left) = (guard(), guard());
        kept.prolong(Deadline::after(&SystemClock, SECOND * 10));

        tokio::time::advance(SECOND * 2).await;

        assert!(kept.is_live(&SystemClock, SECOND));
        assert!(!left.is_live(&SystemClock, Duration::ZERO) && !left.is_lost());
    }

    #[test]
    fn what_was_lost_does_not_come_back() {
        let guard = guard();
        guard.lose();

        guard.prolong(Deadline::after(&SystemClock, SECOND * 10));

        assert!(guard.is_lost() && !guard.is_live(&SystemClock, Duration::ZERO));
    }

    #[test]
    fn a_row_in_hand_twice_is_kept_by_its_last_claim() {
        let until = Deadline::after(&SystemClock, SECOND);
        let claim = |token| {
            let row = RowLease { shard: ShardId(0), seq: Seq(1), token: Token(token) };
            RowLeaseGuard::new(row, until)
        };
        let (lapsed, claimed) = (claim(1), claim(2));

        renew(&[Arc::clone(&lapsed), Arc::clone(&claimed)], &[Seq(1)], until);
        assert!(lapsed.is_lost());
        assert!(!claimed.is_lost());

        renew(&[Arc::clone(&claimed)], &[], until);
        assert!(claimed.is_lost());
    }
}
