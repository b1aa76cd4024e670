//! What is written about rows in hand: verdicts, renewals, and what is given back.

use std::sync::Arc;

use tokio::task::Id;
use tokio::time::Instant;

use super::tenure::{self, RowTenure};
use super::{Progress, RowEngine, RowWork};
use crate::clock::{Deadline, instant};
use crate::error::Result;
use crate::hot::Room;
use crate::id::Seq;
use crate::observe::{Happening, Part};
use crate::point::point;
use crate::relay::job::Judged;
use crate::relay::locked::{self, Locked, OnRow, without_locked};
use crate::relay::number::NumberSet;
use crate::relay::read::no_answer;
use crate::relay::settle::{Answer, Batch, Settler};
use crate::store::{RenewRows, RowLease, SettleRows, Store};
use crate::verdict::Verdict;

/// A delivery that is over, and its row until the verdict is written.
#[derive(Debug)]
pub(super) struct Decided {
    pub(super) judged: Judged,
    pub(super) tenure: Arc<RowTenure>,
    pub(super) _room: Option<Room>,
}

impl OnRow for Decided {
    fn row(&self) -> RowLease {
        self.tenure.row
    }
}

/// What a renewal came to.
#[derive(Debug)]
pub(super) struct Renewed {
    kept: Vec<Seq>,
    /// Those of the others that another transaction has locked.
    locked: NumberSet<Seq>,
}

async fn renew(store: &dyn Store, renew: RenewRows) -> Result<Renewed> {
    point!("rows.renew.before"?);
    let kept = store.renew_rows(&renew).await;
    point!("rows.renew.after"?);
    let kept = kept?;
    let is_kept: NumberSet<Seq> = kept.iter().copied().collect();
    let locked = locked::skipped(store, &renew.rows, |seq| is_kept.contains(&seq)).await?;
    Ok(Renewed { kept, locked })
}

/// One settle, one renewal and one release are under way at a time; what gathers meanwhile goes in
/// the next.
#[derive(Debug)]
pub(super) struct Writes {
    decided: Vec<Decided>,
    /// In a settle that has not been answered.
    settling: Vec<Decided>,
    settle: Option<Id>,
    /// Verdicts that the database refuses to write, and when to try them again.
    refused: Vec<Decided>,
    refused_until: Option<Instant>,
    /// Verdicts on rows that other transactions have locked.
    locked: Locked<Decided>,
    giving: Vec<RowLease>,
    release: Option<Id>,
    renewing: Vec<Arc<RowTenure>>,
    renewal: Option<Id>,
    renew_at: Instant,
}

impl Writes {
    pub(super) fn new(renew_at: Instant) -> Self {
        Self {
            decided: Vec::new(),
            settling: Vec::new(),
            settle: None,
            refused: Vec::new(),
            refused_until: None,
            locked: Locked::default(),
            giving: Vec::new(),
            release: None,
            renewing: Vec::new(),
            renewal: None,
            renew_at,
        }
    }

    pub(super) fn decided(&mut self, decided: Decided) {
        self.decided.push(decided);
    }

    /// To be had by everyone again.
    pub(super) fn give_back(&mut self, rows: impl IntoIterator<Item = RowLease>) {
        self.giving.extend(rows);
    }

    /// Delivered and not yet settled.
    pub(super) fn unsettled(&self) -> usize {
        self.decided.len() + self.settling.len() + self.refused.len() + self.locked.len()
    }

    /// Whether every verdict is written that can be.
    pub(super) fn is_quiet(&self) -> bool {
        self.decided.is_empty() && self.settling.is_empty()
    }

    /// Rows whose verdict cannot be written now.
    pub(super) fn not_written(&self) -> impl Iterator<Item = Seq> {
        self.refused.iter().chain(self.locked.iter()).map(|decided| decided.tenure.row.seq)
    }

    pub(super) fn is_giving_back(&self) -> bool {
        self.release.is_some() || !self.giving.is_empty()
    }

    pub(super) fn try_refused_again(&mut self) {
        self.refused_until = None;
        self.decided.append(&mut self.refused);
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if self.refused_until.is_some_and(|until| until <= now) {
            self.try_refused_again();
        }
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        let renewal = self.renewal.is_none().then_some(self.renew_at);
        [renewal, self.refused_until, self.locked.next_timer()].into_iter().flatten().min()
    }

    /// Verdicts whose rows are free are written.
    pub(super) fn still_locked(&mut self, still: Result<Vec<Seq>>) {
        self.decided.extend(self.locked.answered(still, instant()));
    }
}

impl RowEngine {
    pub(super) fn start_writes(&mut self) {
        self.start_settle();
        self.ask_for_locked();
        self.start_release();
        self.start_renewal();
    }

    fn start_settle(&mut self) {
        let writes = &mut self.work.writes;
        if writes.settle.is_some() || writes.decided.is_empty() {
            return;
        }
        writes.settling = std::mem::take(&mut writes.decided);
        let verdicts = writes.settling.iter().map(|it| it.judged.row_verdict()).collect();
        let settle = SettleRows { owner: self.tenure.owner.clone(), verdicts };
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let observers = self.observers.clone();
        let task = self.work.tasks.spawn(async move {
            let settler = Settler { store: &*store, patience, observers: &observers };
            Progress::Settled(settler.settle(Batch::Rows(settle)).await)
        });
        writes.settle = Some(task.id());
    }

    /// Asks which of the locked rows still are, if it is time.
    fn ask_for_locked(&mut self) {
        let (store, patience) = (Arc::clone(&self.store), self.settings.lease);
        let RowWork { tasks, writes, .. } = &mut self.work;
        writes.locked.ask(instant(), |rows| {
            let ask = async move { locked::ask(&*store, &rows, patience).await };
            tasks.spawn(async move { Progress::StillLocked(ask.await) }).id()
        });
    }

    pub(super) fn settled(&mut self, answer: &Answer) {
        point!("rows.settle.taken");
        self.work.writes.settle = None;
        for decided in std::mem::take(&mut self.work.writes.settling) {
            let Judged { job, verdict } = &decided.judged;
            let seq = job.ticket.seq;
            if answer.failed.contains(&seq) {
                self.refuse(decided);
                continue;
            }
            if answer.locked.contains(&seq) {
                self.observers.see(&Happening::RowLocked { seq, event_id: job.event_id() });
                self.work.writes.locked.push(decided, instant());
                continue;
            }
            if !answer.applied.contains(&seq) {
                self.observers.see(&Happening::Fenced { event_id: job.event_id() });
            }
            let is_no_event = job.route.is_none();
            if is_no_event && self.work.claiming.is_some() {
                self.work.settled_during_claim.push(decided.tenure.row);
            }
            match verdict {
                Verdict::Retry { delay, .. } | Verdict::Defer { delay, .. } => {
                    self.work.due.at(instant() + *delay);
                }
                // The next of its key can be had now, or the next that is too large for an event.
                _ if job.ticket.key.is_some() || is_no_event => self.work.look.now(),
                _ => {}
            }
        }
    }

    fn refuse(&mut self, decided: Decided) {
        self.work.writes.refused.push(decided);
        self.work.writes.refused_until.get_or_insert(instant() + self.settings.sweep);
    }

    /// Rows that are not given back are free when their lease ends.
    fn start_release(&mut self) {
        let writes = &mut self.work.writes;
        if writes.release.is_some() || writes.giving.is_empty() {
            return;
        }
        let rows = std::mem::take(&mut writes.giving);
        let (store, owner) = (Arc::clone(&self.store), self.tenure.owner.clone());
        let (patience, observers) = (self.settings.lease, self.observers.clone());
        let task = self.work.tasks.spawn(async move {
            let release = async |rows: Vec<RowLease>| {
                point!("rows.release.before"?);
                let released = store.release_rows(&owner, &rows).await;
                point!("rows.release.after"?);
                released
            };
            let releasing = without_locked(&*store, rows, release);
            let released = tokio::time::timeout(patience, releasing).await;
            if let Err(error) = released.unwrap_or_else(|_| Err(no_answer())) {
                observers.see(&Happening::trouble(Part::Settle, &error));
            }
            Progress::Released
        });
        writes.release = Some(task.id());
    }

    pub(super) fn released(&mut self) {
        self.work.writes.release = None;
        self.work.look.now();
    }

    /// Every row in hand is renewed at once, whether it waits, is delivered, or is to be settled:
    /// a lease that ends before its verdict is written has the event delivered again.
    fn start_renewal(&mut self) {
        let now = instant();
        if self.work.writes.renewal.is_some() || self.work.writes.renew_at > now {
            return;
        }
        self.work.writes.renew_at = now + self.settings.lease / 3;
        let kept = self.in_hand().filter(|tenure| !tenure.is_lost());
        let tenures: Vec<_> = kept.map(Arc::clone).collect();
        if tenures.is_empty() {
            return;
        }
        let rows: Vec<RowLease> = tenures.iter().map(|tenure| tenure.row).collect();
        let (owner, length) = (self.tenure.owner.clone(), self.settings.lease);
        let until = Deadline::after(&*self.courier.clock, length);
        let store = Arc::clone(&self.store);
        let task = self.work.tasks.spawn(async move {
            let renew = renew(&*store, RenewRows { owner, length, rows });
            let renewed = tokio::time::timeout(length / 3, renew).await;
            Progress::Renewed(until, renewed.unwrap_or_else(|_| Err(no_answer())))
        });
        (self.work.writes.renewal, self.work.writes.renewing) = (Some(task.id()), tenures);
    }

    pub(super) fn in_hand(&self) -> impl Iterator<Item = &Arc<RowTenure>> {
        let writes = &self.work.writes;
        let decided = writes.decided.iter().chain(&writes.settling).chain(&writes.refused);
        let decided = decided.chain(writes.locked.iter());
        let started = self.work.deliveries.kept().map(|it| &it.tenure);
        let suspects = self.work.suspects.iter().map(|waiting| &waiting.tenure);
        let waiting = self.work.line.tenures().chain(suspects);
        waiting.chain(started).chain(decided.map(|it| &it.tenure))
    }

    /// A row that was settled or given back meanwhile is not kept either, and does not need to be.
    pub(super) fn renewed(&mut self, until: Deadline, renewed: Result<Renewed>) {
        self.work.writes.renewal = None;
        let mut renewing = std::mem::take(&mut self.work.writes.renewing);
        let Renewed { kept, locked } = match renewed {
            Ok(renewed) => renewed,
            Err(error) => {
                self.observers.see(&Happening::trouble(Part::Lease, &error));
                self.work.writes.renew_at = instant() + self.settings.lease / 10;
                return;
            }
        };
        if !locked.is_empty() {
            // They keep the lease that they have, and are tried again before it ends.
            renewing.retain(|tenure| !locked.contains(&tenure.row.seq));
            self.work.writes.renew_at = instant() + self.settings.lease / 10;
        }
        tenure::renew(&renewing, &kept, until);
        self.work.line.drop_lost();
        self.work.suspects.retain(|waiting| !waiting.tenure.is_lost());
    }

    /// A store that panics on a verdict may do so again: it is tried at the next sweep.
    pub(super) fn write_panicked(&mut self, id: Id) {
        let writes = &mut self.work.writes;
        if writes.renewal == Some(id) {
            writes.renewal = None;
            writes.renew_at = instant() + self.settings.lease / 10;
        }
        if writes.locked.is_asked_by(id) {
            writes.still_locked(Err(no_answer()));
        }
        if writes.release == Some(id) {
            writes.release = None;
        }
        if writes.settle == Some(id) {
            writes.settle = None;
            let settling = std::mem::take(&mut writes.settling);
            settling.into_iter().for_each(|decided| self.refuse(decided));
        }
    }
}
