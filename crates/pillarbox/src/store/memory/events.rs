//! Reads of the memory store, rows whose time has come or has not, and verdicts.

use std::collections::BTreeMap;
use std::ops::Bound;

use async_trait::async_trait;

use super::MemoryStore;
use super::event::Event;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{Epoch, Seq, ShardId};
use crate::store::content::fill;
use crate::store::{
    Budget, Content, Due, DueRow, Events, Heads, HeadsCursor, KeyRead, Notifications, Pending,
    Predecessor, Promote, Read, ReadHeads, ReadKeys, RowLease, Settle, Settled, Settlement, Status,
};
use crate::verdict::Verdict;

/// New rows in order, found anew with each call.
type NewRows<'a> = Vec<(Seq, &'a Event)>;

#[async_trait]
impl Events for MemoryStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        Ok(self.state().read(read, self.clock.now()))
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        Ok(self.state().read_keys(read, self.clock.now()))
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        Ok(self.state().read_heads(read, self.clock.now()))
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        Ok(self.state().promote(promote, self.clock.now()))
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        Ok(self.state().postpone(rows, self.clock.now()))
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        Ok(self.state().settle(settle, self.clock.now()))
    }

    async fn locked(&self, _: &[RowLease]) -> Result<Vec<Seq>> {
        Ok(Vec::new())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        Ok(None)
    }

    async fn notify(&self) -> Result<()> {
        Ok(())
    }
}

impl State {
    pub(super) fn read(&self, read: &Read, now: Timestamp) -> Vec<Pending> {
        let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
        // What is done stays for days: it is passed once, not for every shard and row.
        let new = self.new_rows();
        let mut rows = Vec::new();
        for want in &read.shards {
            let at_floor = new.partition_point(|(seq, _)| *seq <= want.floor);
            let (below, above) = new.split_at(at_floor);
            let of_shard = above.iter().filter(|(_, event)| event.shard == want.shard);
            rows.extend(of_shard.take(limit).map(|(seq, event)| Pending {
                before: self.before(*seq, event, below),
                ..event.read(*seq, now)
            }));
        }
        self.within(rows, &read.budget, read.rows(), |row| read.line(row))
    }

    pub(super) fn read_keys(&self, read: &ReadKeys, now: Timestamp) -> Vec<Pending> {
        let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
        let new = self.new_rows();
        let mut rows = Vec::new();
        for KeyRead { shard, key } in &read.keys {
            let of_key = new
                .iter()
                .filter(|(_, event)| event.shard == *shard && event.key.as_ref() == Some(key));
            rows.extend(of_key.take(limit).map(|(seq, event)| self.unblocked(*seq, event, now)));
        }
        self.within(rows, &read.budget, read.rows(), |row| read.line(row))
    }

    pub(super) fn read_heads(&self, read: &ReadHeads, now: Timestamp) -> Heads {
        let limit = usize::try_from(read.limit).unwrap_or(usize::MAX);
        let mut new = self.new_rows();
        new.retain(|(_, event)| event.shard == read.shard);
        let newest = new.last().map_or(Seq::START, |(seq, _)| *seq);
        let page: NewRows<'_> = match &read.after {
            HeadsCursor::Key(after) => heads_after(&new, after).into_iter().take(limit).collect(),
            HeadsCursor::Keyless(after) => {
                let is_wanted = |seq: Seq| seq > *after && seq <= read.up_to;
                let keyless = new.iter().filter(|(seq, it)| it.key.is_none() && is_wanted(*seq));
                keyless.take(limit).copied().collect()
            }
        };
        let rows = page.into_iter().map(|(seq, event)| self.unblocked(seq, event, now)).collect();
        Heads::of(read, self.within(rows, &read.budget, limit, |_| 0), newest)
    }

    /// With as much content as the budget allows.
    pub(super) fn within(
        &self,
        mut rows: Vec<Pending>,
        budget: &Budget,
        most: usize,
        line: impl Fn(&Pending) -> usize,
    ) -> Vec<Pending> {
        let fit = budget.fit(most);
        for row in &mut rows {
            let size = row.content.bytes();
            if size > fit {
                row.content = Content::Unread { size };
            }
        }
        let chosen = budget.choose(&rows, line);
        let events = chosen.iter().filter_map(|(_, seq)| Some((*seq, self.events.get(seq)?)));
        let content = |event: &Event| Content::Event(event.envelope.clone());
        let fetched = events.map(|(seq, event)| (seq, content(event))).collect();
        fill(&mut rows, &chosen, fetched);
        rows
    }

    pub(super) fn promote(&mut self, promote: &Promote, now: Timestamp) -> Due {
        let is_meant = |event: &Event| promote.shards.contains(&event.shard);
        let mut due: Vec<(Timestamp, Seq)> = Vec::new();
        for (seq, event) in self.events.iter().filter(|(_, event)| is_meant(event)) {
            if event.status == Status::Waiting {
                due.push((event.available_at, *seq));
            }
        }
        due.sort_unstable();
        let limit = usize::try_from(promote.limit).unwrap_or(usize::MAX);
        let mut rows = Vec::new();
        for (_, seq) in due.iter().take(limit) {
            let Some(event) = self.events.get_mut(seq) else { continue };
            if event.promote(now) {
                rows.push(DueRow { shard: event.shard, seq: *seq, key: event.key.clone() });
            }
        }
        let next = due.get(rows.len()).map(|(due_at, _)| due_at.since(now));
        Due { rows, next }
    }

    pub(super) fn postpone(&mut self, rows: &[RowLease], now: Timestamp) -> u64 {
        let mut postponed = 0;
        for row in rows {
            let event = self.events.get_mut(&row.seq);
            let event = event.filter(|it| it.shard == row.shard && it.token == row.token);
            postponed += u64::from(event.is_some_and(|event| event.postpone(now)));
        }
        postponed
    }

    fn new_rows(&self) -> NewRows<'_> {
        let new = self.events.iter().filter(|(_, event)| event.status == Status::New);
        new.map(|(seq, event)| (*seq, event)).collect()
    }

    fn unblocked(&self, seq: Seq, event: &Event, now: Timestamp) -> Pending {
        Pending { before: self.before(seq, event, &[]), ..event.read(seq, now) }
    }

    fn before(&self, seq: Seq, event: &Event, below: &[(Seq, &Event)]) -> Predecessor {
        if event.key.is_none() {
            return Predecessor::Nothing;
        }
        if self.is_blocked(seq, event) {
            return Predecessor::Waiting;
        }
        let is_unread = below.iter().any(|(_, older)| older.key == event.key);
        if is_unread { Predecessor::Unread } else { Predecessor::Nothing }
    }

    /// Whether an older event of its key waits for its time or for an operator.
    pub(super) fn is_blocked(&self, seq: Seq, event: &Event) -> bool {
        let waits = |older: &Event| matches!(older.status, Status::Waiting | Status::Held);
        let mut older = self.events.range((Bound::Unbounded, Bound::Excluded(seq)));
        event.key.is_some() && older.any(|(_, older)| waits(older) && older.key == event.key)
    }

    pub(super) fn settle(&mut self, settle: &Settle, now: Timestamp) -> Settled {
        let mut fences: BTreeMap<ShardId, Epoch> = BTreeMap::new();
        for settlement in &settle.settlements {
            let newest = fences.entry(settlement.shard).or_insert(settlement.epoch);
            *newest = settlement.epoch.max(*newest);
        }
        fences.retain(|shard, epoch| !self.is_owned(&settle.owner, *shard, *epoch));
        let mut settled = Settled { refused: fences.into_keys().collect(), ..Settled::default() };
        for settlement in &settle.settlements {
            let is_owned = self.is_owned(&settle.owner, settlement.shard, settlement.epoch);
            if is_owned && self.apply(settlement, now) {
                settled.applied.push(settlement.seq);
            }
        }
        settled
    }

    fn apply(&mut self, settlement: &Settlement, now: Timestamp) -> bool {
        let fits = self.events.get(&settlement.seq).is_some_and(|event| {
            event.is_open() && event.token == settlement.token && event.shard == settlement.shard
        });
        if fits {
            self.decide(settlement.seq, &settlement.verdict, settlement.settled_by.as_deref(), now);
        }
        fits
    }

    /// Writes a verdict on a row whose fences have been passed, and the audit row of a failure.
    pub(super) fn decide(
        &mut self,
        seq: Seq,
        verdict: &Verdict,
        settled_by: Option<&str>,
        now: Timestamp,
    ) {
        if *verdict == Verdict::Delete {
            self.remove(seq);
            return;
        }
        let Some(event) = self.events.get_mut(&seq) else { return };
        event.decide(verdict, settled_by, now);
        let entry = event.failure(verdict, now);
        let id = event.envelope.event_id().clone();
        self.audit.extend(entry.map(|entry| (id, entry)));
    }
}

/// The oldest row of each key after this one, in order of keys.
fn heads_after<'a>(new: &[(Seq, &'a Event)], after: &str) -> NewRows<'a> {
    let mut heads: BTreeMap<&str, (Seq, &Event)> = BTreeMap::new();
    for (seq, event) in new {
        if let Some(key) = event.key.as_deref().filter(|key| *key > after) {
            heads.entry(key).or_insert((*seq, *event));
        }
    }
    heads.into_values().collect()
}
