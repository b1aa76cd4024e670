//! Leases on single rows, and their renewal.

use std::{
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;

use crate::clock::{Clock, Deadline, instant};
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{OwnerId, Seq, Token};
use crate::relay::number_map::{NumberMap, NumberSet};
use crate::relay::settle::locked;
use crate::relay::store_tasks::{StoreTasks, within};
use crate::store::{RenewRows, RowLease, Store};
use crate::telemetry::{Component, Observers, RelayEvent};

/// A claimed row, shared between the loop that renews its lease and the delivery that relies on
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

/// Renews the leases of all rows in flight together.
#[derive(Debug)]
pub(crate) struct Renewals {
    owner: OwnerId,
    length: Duration,
    clock: Arc<dyn Clock>,
    observers: Observers,
    renew_at: Instant,
    /// In the write under way.
    renewing: Vec<Arc<RowLeaseGuard>>,
}

/// What a renewal came to.
#[derive(Debug)]
pub(crate) struct Renewed {
    kept: Vec<Seq>,
    /// Those of the others that another transaction has locked.
    locked: NumberSet<Seq>,
    until: Deadline,
}

impl Renewals {
    pub(crate) fn new(
        owner: OwnerId,
        length: Duration,
        clock: Arc<dyn Clock>,
        observers: Observers,
    ) -> Self {
        let renew_at = instant() + length / 3;
        Self { owner, length, clock, observers, renew_at, renewing: Vec::new() }
    }

    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.renewing.is_empty().then_some(self.renew_at)
    }

    /// Whether it is time to renew.
    pub(crate) fn is_due(&self, now: Instant) -> bool {
        self.next_timer().is_some_and(|at| at <= now)
    }

    /// Renews all of these, whether they wait, are delivered, or are to be settled: an event whose
    /// lease ends before its verdict is written is delivered again.
    pub(crate) fn start<A: Send + 'static>(
        &mut self,
        guards: Vec<Arc<RowLeaseGuard>>,
        tasks: &mut StoreTasks<A>,
        answer: fn(Result<Renewed>) -> A,
    ) {
        self.renew_at = instant() + self.length / 3;
        if guards.is_empty() {
            return;
        }
        let rows = guards.iter().map(|guard| guard.row).collect();
        let renew = RenewRows { owner: self.owner.clone(), length: self.length, rows };
        // Counted from before the request: the database can only count from later.
        let until = Deadline::after(&*self.clock, self.length);
        let (store, timeout) = (tasks.store(), self.length / 3);
        tasks.run(async move { within(timeout, ask(&*store, &renew, until)).await }, answer);
        self.renewing = guards;
    }

    /// Takes in an answer: rows that were not kept are lost. A row that was settled or released
    /// meanwhile is not kept either, and does not need to be.
    pub(crate) fn answered(&mut self, renewed: Result<Renewed>) {
        let mut renewing = std::mem::take(&mut self.renewing);
        let Renewed { kept, locked, until } = match renewed {
            Ok(renewed) => renewed,
            Err(error) => {
                self.observers.on_event(&RelayEvent::failed(Component::Lease, &error));
                self.renew_at = instant() + self.length / 10;
                return;
            }
        };
        if !locked.is_empty() {
            // They keep the lease that they have, and are tried again before it ends.
            renewing.retain(|guard| !locked.contains(&guard.row.seq));
            self.renew_at = instant() + self.length / 10;
        }
        renew(&renewing, &kept, until);
    }
}

async fn ask(store: &dyn Store, renew: &RenewRows, until: Deadline) -> Result<Renewed> {
    crash_point!("rows.renew.before"?);
    let kept = store.renew_rows(renew).await;
    crash_point!("rows.renew.after"?);
    let kept = kept?;
    let is_kept: NumberSet<Seq> = kept.iter().copied().collect();
    let locked = locked::skipped(store, &renew.rows, |seq| is_kept.contains(&seq)).await?;
    Ok(Renewed { kept, locked, until })
}

/// Prolongs the guards of rows that were kept, and loses the others.
///
/// A row whose lease ran out and that was claimed again is in flight twice for a while. What was kept
/// of it is the last claim, which has the highest token.
fn renew(guards: &[Arc<RowLeaseGuard>], kept: &[Seq], until: Deadline) {
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
    fn a_row_in_flight_twice_is_kept_by_its_last_claim() {
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
