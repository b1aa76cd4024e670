//! Claiming: as many rows as can be begun soon, one claim at a time.

use std::sync::Arc;

use super::line::Waiting;
use super::{Progress, RowEngine};
use crate::clock::{Deadline, instant};
use crate::error::Result;
use crate::observe::{Happening, Part};
use crate::point::point;
use crate::relay::memory::Limits;
use crate::relay::read::no_answer;
use crate::store::{Content, Pending, RowLease};

impl RowEngine {
    /// Claims, if there is room and something may be due.
    pub(super) fn start_claim(&mut self) {
        if self.work.claiming.is_some() || !self.work.look.is_wanted() || self.waits_alone() {
            return;
        }
        let Some(limit) = u32::try_from(self.room()).ok().filter(|limit| *limit > 0) else {
            return;
        };
        self.work.look.begin();
        self.work.claim.limit = limit;
        self.work.claim.budget.bytes = Limits::RELAY.budget(self.work.memory.bytes());
        self.work.claim.budget.skip = self.work.writes.not_written().collect();
        let (store, claim) = (Arc::clone(&self.store), self.work.claim.clone());
        // Counted from before the request: the database can only count from later.
        let until = Deadline::after(&*self.courier.clock, claim.length);
        let task = self.work.tasks.spawn(async move {
            let claiming = async {
                point!("claim.before"?);
                let rows = store.claim(&claim).await;
                point!("claim.after"?);
                rows
            };
            let claimed = tokio::time::timeout(claim.length, claiming).await;
            Progress::Claimed(until, claimed.unwrap_or_else(|_| Err(no_answer())))
        });
        self.work.claiming = Some(task.id());
    }

    /// How many rows there is room for; none while there is enough in hand.
    fn room(&mut self) -> usize {
        let ahead = self.work.appetite.ahead(instant()) as usize;
        let waiting = self.work.line.claimed();
        if waiting * 2 > ahead || !Limits::RELAY.is_half_empty(self.work.memory.bytes()) {
            return 0;
        }
        let free = (self.settings.workers.get() as usize).saturating_sub(self.work.under_way());
        let unsettled = self.work.unsettled() + waiting;
        let most = (self.settings.max_unsettled.get() as usize).saturating_sub(unsettled);
        let batch = self.work.pace.rows();
        (free + ahead - waiting).min(most).min(batch as usize)
    }

    /// A claim was answered.
    pub(super) fn claimed(&mut self, until: Deadline, claimed: Result<Vec<Pending>>) {
        self.work.claiming = None;
        let rows = match claimed {
            Ok(rows) => self.without_those_in_hand(rows),
            Err(error) => {
                self.observers.see(&Happening::trouble(Part::Read, &error));
                self.work.pace.failed();
                return self.work.look.failed(instant());
            }
        };
        self.observers.see(&Happening::Read { rows: rows.len() });
        let claim = &mut self.work.claim;
        let is_full = rows.len() >= claim.limit as usize;
        // Keys in front of the one that the claim went on after were not looked at.
        if is_full || claim.after.is_some() {
            self.work.look.now();
        }
        claim.turn(&rows);
        let now = instant();
        // What was written before its time is claimed, too, and is to wait.
        self.work.due.note_early(&rows);
        let (unread, rows): (Vec<_>, Vec<_>) =
            rows.into_iter().filter(|row| !row.is_early).partition(|row| row.content.is_unread());
        self.work.pace.came(rows.len(), unread.is_empty());
        for row in rows {
            let bytes = self.work.memory.hold(row.content.bytes());
            self.wait(Waiting::claimed(row, until, now, bytes));
        }
        if !unread.is_empty() {
            self.leave(&unread);
        }
    }

    /// A row that is no event may come without a lease, and then again until its verdict is written,
    /// and once more by a claim that looked before.
    fn without_those_in_hand(&mut self, mut rows: Vec<Pending>) -> Vec<Pending> {
        let mut in_hand = std::mem::take(&mut self.work.settled_during_claim);
        if rows.iter().any(|row| matches!(row.content, Content::Invalid(_))) {
            in_hand.extend(self.in_hand().map(|tenure| tenure.row));
            rows.retain(|row| !in_hand.contains(&RowLease::from(row)));
        }
        rows
    }

    /// Gives back what is beyond the budget. Suspects are left to the end of their lease: given back,
    /// they would be like any other row.
    fn leave(&mut self, unread: &[Pending]) {
        let rows = unread.iter().filter(|row| !row.lapsed);
        self.work.writes.give_back(rows.map(RowLease::from));
        self.work.look.now();
    }
}
