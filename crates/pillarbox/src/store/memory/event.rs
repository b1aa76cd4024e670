//! One row of the memory store, and how its state changes.

use std::sync::Arc;

use crate::clock::Timestamp;
use crate::envelope::{Delivery, Envelope};
use crate::id::{OwnerId, Seq, ShardId, Token};
use crate::store::{
    AuditEntry, Content, DeadLetter, FAILED_PERMANENT, Pending, Predecessor, SEND_FAILED, Status,
    StoredEvent,
};
use crate::verdict::{ErrorText, Verdict};

#[derive(Clone)]
pub(super) struct Event {
    pub(super) envelope: Envelope,
    pub(super) key: Option<Arc<str>>,
    pub(super) shard: ShardId,
    pub(super) status: Status,
    pub(super) token: Token,
    pub(super) available_at: Timestamp,
    pub(super) created_at: Timestamp,
    pub(super) done_at: Option<Timestamp>,
    /// Who has claimed the row, and until when.
    pub(super) lease: Option<(OwnerId, Timestamp)>,
    attempts: u32,
    pub(super) crashes: u32,
    settled_by: Option<String>,
    last_error: Option<String>,
}

impl Event {
    pub(super) fn new(
        envelope: &Envelope,
        key: Option<Arc<str>>,
        shard: ShardId,
        now: Timestamp,
    ) -> Self {
        let available_at = match envelope.delivery() {
            Delivery::AtOnce => now,
            Delivery::At(moment) => moment,
            Delivery::After(delay) => now.saturating_add(delay),
        };
        Self {
            key,
            shard,
            status: if available_at > now { Status::Waiting } else { Status::New },
            attempts: 0,
            crashes: 0,
            token: Token(0),
            available_at,
            created_at: now,
            done_at: None,
            lease: None,
            settled_by: None,
            last_error: None,
            envelope: envelope.clone().occurred_at(envelope.moment().unwrap_or(now)),
        }
    }

    /// Whether it is to be delivered, or waits for its time or for an operator.
    pub(super) fn is_pending(&self) -> bool {
        self.is_open() || self.status == Status::Held
    }

    /// Whether it takes a verdict.
    pub(super) fn is_open(&self) -> bool {
        matches!(self.status, Status::New | Status::Waiting)
    }

    /// Whether it is due and leased to nobody.
    pub(super) fn is_free(&self, now: Timestamp) -> bool {
        self.is_open() && self.available_at <= now && !self.is_leased(now)
    }

    /// Whether it is new and leased to nobody.
    pub(super) fn is_claimable(&self, now: Timestamp) -> bool {
        self.status == Status::New && !self.is_leased(now)
    }

    fn is_leased(&self, now: Timestamp) -> bool {
        self.lease.as_ref().is_some_and(|(_, until)| *until >= now)
    }

    /// Whether it is written as new, and its time has not come.
    pub(super) fn is_early(&self, now: Timestamp) -> bool {
        self.status == Status::New && self.available_at > now && !self.is_leased(now)
    }

    /// Becomes new if it waits and its time has come.
    pub(super) fn promote(&mut self, now: Timestamp) -> bool {
        let is_due = self.status == Status::Waiting && self.available_at <= now;
        if is_due {
            self.status = Status::New;
        }
        is_due
    }

    /// Waits if it is new and its time has not come.
    pub(super) fn postpone(&mut self, now: Timestamp) -> bool {
        let is_early = self.status == Status::New && self.available_at > now;
        if is_early {
            (self.status, self.lease) = (Status::Waiting, None);
            self.advance();
        }
        is_early
    }

    /// Whether it was given up.
    pub(super) fn is_dead(&self) -> bool {
        matches!(self.status, Status::Dead | Status::Held)
    }

    pub(super) fn error(&self) -> Option<&str> {
        self.last_error.as_deref()
    }

    pub(super) fn advance(&mut self) {
        self.token = Token(self.token.0 % i32::MAX + 1);
    }

    pub(super) fn pending(&self, seq: Seq, now: Timestamp) -> Pending {
        Pending {
            seq,
            shard: self.shard,
            key: self.key.clone(),
            token: self.token,
            status: self.status,
            attempts: self.attempts,
            due_in: self.available_at.since(now),
            is_early: self.is_early(now),
            lapsed: false,
            before: Predecessor::Nothing,
            content: Content::Event(self.envelope.clone()),
        }
    }

    /// As a shard's owner reads it: a row under a lease is not due before that has run out.
    pub(super) fn read(&self, seq: Seq, now: Timestamp) -> Pending {
        let until = self.lease.as_ref().map(|(_, until)| *until);
        let due_at = until.map_or(self.available_at, |until| until.max(self.available_at));
        Pending {
            due_in: due_at.since(now),
            lapsed: until.is_some_and(|until| until <= now),
            ..self.pending(seq, now)
        }
    }

    pub(super) fn stored(&self, seq: Seq) -> StoredEvent {
        StoredEvent {
            seq,
            shard: self.shard,
            key: self.key.as_deref().map(str::to_owned),
            token: self.token,
            status: self.status,
            attempts: self.attempts,
            available_at: self.available_at,
            created_at: self.created_at,
            done_at: self.done_at,
            settled_by: self.settled_by.clone(),
            last_error: self.last_error.clone(),
            event: Ok(self.envelope.clone()),
        }
    }

    pub(super) fn dead_letter(&self, seq: Seq) -> DeadLetter {
        let envelope = &self.envelope;
        DeadLetter {
            seq,
            shard: self.shard,
            event_id: envelope.event_id().to_string(),
            event_type: envelope.event_type().as_str().to_owned(),
            event_version: i32::try_from(envelope.event_version()).unwrap_or(i32::MAX),
            aggregate_type: envelope.aggregate_type().as_str().to_owned(),
            aggregate_id: envelope.aggregate_id().map(str::to_owned),
            key: self.key.as_deref().map(str::to_owned),
            tenant_id: envelope.tenant_id().map(str::to_owned),
            status: self.status,
            attempts: self.attempts,
            last_error: self.last_error.clone(),
            settled_by: self.settled_by.clone(),
            occurred_at: envelope.moment().unwrap_or(self.created_at),
            created_at: self.created_at,
            given_up_at: self.done_at.unwrap_or(self.created_at),
            payload_size: envelope.payload().as_bytes().len() as u64,
        }
    }

    pub(super) fn decide(&mut self, verdict: &Verdict, settled_by: Option<&str>, now: Timestamp) {
        self.advance();
        self.lease = None;
        self.crashes = 0;
        self.settled_by = settled_by.map(str::to_owned);
        match verdict {
            Verdict::Done | Verdict::Delete => self.finish(Status::Done, now),
            Verdict::Retry { delay, error } => {
                self.attempts = self.attempts.saturating_add(1);
                self.wait(now.saturating_add(*delay), error);
            }
            Verdict::Defer { delay, error } => self.wait(now.saturating_add(*delay), error),
            Verdict::Dead { error } => self.give_up(Status::Dead, now, error),
            Verdict::Held { error } => self.give_up(Status::Held, now, error),
        }
    }

    /// What the audit says of a verdict; nothing of a success, and of one that does not count.
    pub(super) fn failure(&self, verdict: &Verdict, now: Timestamp) -> Option<AuditEntry> {
        let (action, error) = match verdict {
            Verdict::Retry { error, .. } => (SEND_FAILED, error),
            Verdict::Dead { error } | Verdict::Held { error } => (FAILED_PERMANENT, error),
            Verdict::Done | Verdict::Delete | Verdict::Defer { .. } => return None,
        };
        Some(self.audit(action, Some(error.as_str()), now))
    }

    pub(super) fn audit(&self, action: &str, error: Option<&str>, now: Timestamp) -> AuditEntry {
        AuditEntry {
            action: action.to_owned(),
            attempts: self.attempts,
            error: error.map(str::to_owned),
            by: None,
            reason: None,
            at: now,
        }
    }

    fn wait(&mut self, until: Timestamp, error: &ErrorText) {
        self.status = Status::Waiting;
        self.available_at = until;
        self.last_error = Some(error.as_str().to_owned());
    }

    fn give_up(&mut self, status: Status, now: Timestamp, error: &ErrorText) {
        self.attempts = self.attempts.saturating_add(1);
        self.last_error = Some(error.as_str().to_owned());
        self.finish(status, now);
    }

    fn finish(&mut self, status: Status, now: Timestamp) {
        self.status = status;
        self.done_at = Some(now);
    }

    /// Another life: due at once, no attempt counted, the last error still to be read.
    pub(super) fn renew(&mut self, now: Timestamp) {
        self.status = Status::New;
        self.attempts = 0;
        self.crashes = 0;
        self.lease = None;
        self.available_at = now;
        self.done_at = None;
        self.advance();
    }
}
