//! What an operator and maintenance do on the memory store.

use std::collections::BTreeSet;

use async_trait::async_trait;

use super::MemoryStore;
use super::event::Event;
use super::state::State;
use crate::clock::Timestamp;
use crate::error::Result;
use crate::id::{EventId, Seq};
use crate::store::operations::refuse_unless_nobody_delivers;
use crate::store::{
    Action, AuditEntry, Changed, Cursor, DeadLetter, Direction, Filter, List, MAX_BATCH, Operated,
    Operation, Operations, Purge, PurgeKind, Status, StoredEvent,
};

#[async_trait]
impl Operations for MemoryStore {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        Ok(self.state().dead_letters(list))
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        Ok(self.state().count_dead(filter))
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        operation.check()?;
        Ok(self.state().operate(operation, self.clock.now()))
    }

    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        Ok(self.state().audit_trail(id))
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        self.state().purge(purge, self.clock.now())
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        Ok(self.state().event(id))
    }
}

impl State {
    pub(super) fn event(&self, id: &EventId) -> Option<StoredEvent> {
        let seq = *self.ids.get(id)?;
        Some(self.events.get(&seq)?.stored(seq))
    }

    pub(super) fn dead_letters(&self, list: &List) -> Vec<DeadLetter> {
        let found = self.events.iter().filter(|(_, event)| matches(event, &list.filter));
        let mut letters: Vec<_> = found.map(|(seq, event)| event.dead_letter(*seq)).collect();
        letters.sort_by_key(DeadLetter::cursor);
        if list.direction == Direction::NewestFirst {
            letters.reverse();
        }
        let follows = |letter: &DeadLetter, after: Cursor| match list.direction {
            Direction::NewestFirst => letter.cursor() < after,
            Direction::OldestFirst => letter.cursor() > after,
        };
        letters.retain(|letter| list.after.is_none_or(|after| follows(letter, after)));
        letters.truncate(list.rows());
        letters
    }

    pub(super) fn count_dead(&self, filter: &Filter) -> u64 {
        self.events.values().filter(|event| matches(event, filter)).count() as u64
    }

    pub(super) fn operate(&mut self, operation: &Operation, now: Timestamp) -> Operated {
        let named = operation.ids().filter_map(|id| self.ids.get(id).copied());
        let seqs: BTreeSet<Seq> = operation.seqs().chain(named).collect();
        let mut operated = Operated::default();
        for seq in seqs {
            let Some(event) = self.events.get_mut(&seq).filter(|event| event.is_dead()) else {
                continue;
            };
            operated.matched += 1;
            if !operation.action.fits(event.status) {
                continue;
            }
            let id = event.envelope.event_id().clone();
            let entry = AuditEntry {
                by: operation.by.clone(),
                reason: operation.reason.clone(),
                ..event.audit(operation.action.as_str(), None, now)
            };
            match operation.action {
                Action::Replay => event.renew(now),
                Action::Skip => {
                    event.status = Status::Dead;
                    event.advance();
                }
                Action::Discard => self.remove(seq),
            }
            operated.changed.push(Changed { seq, event_id: id.to_string() });
            self.audit.push((id, entry));
        }
        operated
    }

    pub(super) fn audit_trail(&self, id: &str) -> Vec<AuditEntry> {
        let entries = self.audit.iter().filter(|(of, _)| of.as_str() == id).map(|(_, entry)| entry);
        let mut newest: Vec<_> = entries.rev().take(MAX_BATCH).cloned().collect();
        newest.reverse();
        newest
    }

    pub(super) fn purge(&mut self, purge: &Purge, now: Timestamp) -> Result<u64> {
        let limit = usize::try_from(purge.limit).unwrap_or(usize::MAX);
        let old = |at: Timestamp| at.saturating_add(purge.older_than) < now;
        let status = match purge.kind {
            PurgeKind::Done => Some(Status::Done),
            PurgeKind::Dead => Some(Status::Dead),
            PurgeKind::Audit => return Ok(self.purge_audit(limit, old)),
            PurgeKind::Inbox => return Ok(self.purge_inbox(limit, old)),
            PurgeKind::Any => {
                refuse_unless_nobody_delivers(self.mode)?;
                None
            }
        };
        let goes = |event: &Event| match status {
            Some(status) => event.status == status && event.done_at.is_some_and(old),
            None => old(event.done_at.unwrap_or(event.created_at)),
        };
        let gone = self.events.iter().filter(|(_, event)| goes(event));
        let gone: Vec<Seq> = gone.map(|(seq, _)| *seq).take(limit).collect();
        gone.iter().for_each(|seq| self.remove(*seq));
        Ok(gone.len() as u64)
    }

    fn purge_audit(&mut self, limit: usize, old: impl Fn(Timestamp) -> bool) -> u64 {
        let before = self.audit.len();
        let mut left = limit;
        self.audit.retain(|(_, entry)| {
            let goes = left > 0 && old(entry.at);
            left -= usize::from(goes);
            !goes
        });
        (before - self.audit.len()) as u64
    }

    fn purge_inbox(&mut self, limit: usize, old: impl Fn(Timestamp) -> bool) -> u64 {
        let gone = self.inbox.iter().filter(|(_, noted)| old(noted.at));
        let gone: Vec<_> = gone.map(|(entry, _)| entry.clone()).take(limit).collect();
        for entry in &gone {
            self.inbox.remove(entry);
        }
        gone.len() as u64
    }
}

fn matches(event: &Event, filter: &Filter) -> bool {
    let envelope = &event.envelope;
    let given_up = event.done_at;
    let same = |wanted: &Option<String>, is: Option<&str>| {
        wanted.as_deref().is_none_or(|wanted| is == Some(wanted))
    };
    event.is_dead()
        && filter.status.is_none_or(|status| event.status == status)
        && same(&filter.event_type, Some(envelope.event_type().as_str()))
        && same(&filter.aggregate_type, Some(envelope.aggregate_type().as_str()))
        && same(&filter.aggregate_id, envelope.aggregate_id())
        && same(&filter.key, event.key.as_deref())
        && same(&filter.tenant_id, envelope.tenant_id())
        && filter
            .error
            .as_deref()
            .is_none_or(|part| event.error().is_some_and(|error| error.contains(part)))
        && filter.since.is_none_or(|since| given_up >= Some(since))
        && filter.until.is_none_or(|until| given_up.is_some_and(|at| at < until))
}
