//! Leases on rows: due rows, one by one.

use std::collections::HashSet;

use async_trait::async_trait;

use super::MemoryStore;
use super::event::Event;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{OwnerId, Seq, ShardId};
use crate::store::{
    Claim, Claims, MAX_DUE, Order, Pending, RenewRows, RowLease, SettleRows, Starts, Status,
};

/// Keys come in their order, and what has none behind them.
type KeyPlace = (bool, Option<String>);

#[async_trait]
impl Claims for MemoryStore {
    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        Ok(self.state().claim(claim, self.clock.now()))
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        Ok(self.state().renew_rows(renew, self.clock.now()))
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        Ok(self.state().release_rows(owner, rows))
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        Ok(self.state().reclaim(rows, self.clock.now()))
    }

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        Ok(self.state().record_starts(starts))
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        Ok(self.state().settle_rows(settle, self.clock.now()))
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        Ok(self.state().count_due(shards, self.clock.now()))
    }
}

impl State {
    pub(super) fn claim(&mut self, claim: &Claim, now: Timestamp) -> Vec<Pending> {
        let limit = usize::try_from(claim.limit).unwrap_or(usize::MAX);
        let mut due = self.claimable(claim, now);
        due.sort_unstable();
        due.truncate(limit);
        due.sort_unstable_by_key(|(place, _, seq)| (*place, *seq));
        let until = now.saturating_add(claim.length);
        let mut claimed = Vec::new();
        for (_, _, seq) in due {
            if let Some(event) = self.events.get_mut(&seq) {
                let is_early = event.is_early(now);
                let had_one = event.lease.replace((claim.owner.clone(), until)).is_some();
                let lapsed = had_one || event.crashes > 0;
                event.advance();
                claimed.push(Pending { is_early, lapsed, ..event.pending(seq, now) });
            }
        }
        self.within(claimed, &claim.budget, limit, |_| 0)
    }

    /// The rows to be had, each with its place in the claim: that of its shard, and that of its
    /// key among those of the shard where the order of keys counts.
    fn claimable(&self, claim: &Claim, now: Timestamp) -> Vec<(usize, KeyPlace, Seq)> {
        let mut keys = HashSet::new();
        let mut due = Vec::new();
        for (seq, event) in self.events.iter().filter(|(_, event)| event.is_pending()) {
            let key = event.key.as_deref().filter(|_| claim.order == Order::Key);
            let is_head = key.is_none_or(|key| keys.insert(key));
            let Some(place) = claim.shards.iter().position(|shard| *shard == event.shard) else {
                continue;
            };
            let is_passed =
                place == 0 && key.is_some_and(|key| Some(key) <= claim.after.as_deref());
            if is_head && !is_passed && event.is_claimable(now) {
                due.push((place, (key.is_none(), key.map(str::to_owned)), *seq));
            }
        }
        due
    }

    pub(super) fn renew_rows(&mut self, renew: &RenewRows, now: Timestamp) -> Vec<Seq> {
        let until = now.saturating_add(renew.length);
        let mut kept = Vec::new();
        for row in &renew.rows {
            if let Some(event) = self.leased(&renew.owner, row) {
                event.lease = Some((renew.owner.clone(), until));
                kept.push(row.seq);
            }
        }
        kept
    }

    pub(super) fn release_rows(&mut self, owner: &OwnerId, rows: &[RowLease]) -> u64 {
        let mut released = 0;
        for row in rows {
            if let Some(event) = self.leased(owner, row) {
                event.lease = None;
                event.advance();
                released += 1;
            }
        }
        released
    }

    pub(super) fn reclaim(&mut self, rows: &[RowLease], now: Timestamp) -> u64 {
        let mut freed = 0;
        for row in rows {
            let lapsed = self.events.get_mut(&row.seq).filter(|event| {
                event.is_open()
                    && event.shard == row.shard
                    && event.token == row.token
                    && event.lease.as_ref().is_some_and(|(_, until)| *until <= now)
            });
            if let Some(event) = lapsed {
                event.lease = None;
                event.advance();
                freed += 1;
            }
        }
        freed
    }

    pub(super) fn record_starts(&mut self, starts: &Starts) -> Vec<(Seq, u32)> {
        let mut counted = Vec::new();
        for row in &starts.rows {
            let event = self.events.get_mut(&row.seq).filter(|event| {
                event.is_open()
                    && event.shard == row.shard
                    && event.token == row.token
                    && event.crashes < starts.below
            });
            if let Some(event) = event {
                event.crashes += 1;
                counted.push((row.seq, event.crashes));
            }
        }
        counted
    }

    pub(super) fn settle_rows(&mut self, settle: &SettleRows, now: Timestamp) -> Vec<Seq> {
        let mut applied = Vec::new();
        for verdict in &settle.verdicts {
            let seq = verdict.row.seq;
            if self.leased(&settle.owner, &verdict.row).is_some() {
                self.decide(seq, &verdict.verdict, verdict.settled_by.as_deref(), now);
                applied.push(seq);
            }
        }
        applied
    }

    /// The row, while it is this owner's under this token; whether the lease has run out does not
    /// matter as long as nobody took it.
    fn leased(&mut self, owner: &OwnerId, row: &RowLease) -> Option<&mut Event> {
        self.events.get_mut(&row.seq).filter(|event| {
            event.is_open()
                && event.shard == row.shard
                && event.token == row.token
                && event.lease.as_ref().is_some_and(|(holder, _)| holder == owner)
        })
    }

    pub(super) fn count_due(&self, shards: &[ShardId], now: Timestamp) -> u64 {
        let mut blocked: HashSet<&str> = HashSet::new();
        let mut due = 0;
        for event in self.events.values().filter(|event| event.is_pending()) {
            let key = event.key.as_deref();
            let is_blocked = key.is_some_and(|key| blocked.contains(key));
            due += u64::from(event.is_free(now) && !is_blocked && shards.contains(&event.shard));
            if matches!(event.status, Status::Waiting | Status::Held) {
                blocked.extend(key);
            }
        }
        due.min(u64::from(MAX_DUE))
    }
}
