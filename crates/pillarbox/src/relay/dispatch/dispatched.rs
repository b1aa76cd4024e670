//! One delivery, from its start to its verdict.

use std::borrow::Cow;

use tokio::time::Instant;

use crate::clock::{Clock, Timestamp, instant};
use crate::context::Context;
use crate::envelope::Envelope;
use crate::id::{Epoch, EventId, Token};
use crate::relay::dispatch::deliverer::{LeaseKind, Outcome};
use crate::relay::dispatch::fair_share::RouteId;
use crate::relay::dispatch::worker_pool::Assignment;
use crate::relay::fetch::shard_queues::RowKey;
use crate::store::{Content, Pending, RowLease};
use crate::telemetry::{Attempt, RelayEvent};
use crate::tx::{Inserted, LocalLease};
use crate::verdict::Verdict;

/// A delivery under way, kept here so that a panic cannot take it along.
#[derive(Clone, Debug)]
pub(crate) struct Dispatched {
    pub(crate) row: RowKey,
    pub(crate) epoch: Epoch,
    pub(crate) token: Token,
    pub(crate) attempts: u32,
    /// Its id, whatever a row that is no event has there.
    event_id: Result<EventId, String>,
    pub(crate) route: Option<String>,
    pub(crate) route_id: RouteId,
    /// Under the lease that its row was inserted with, not of its shard.
    pub(crate) is_local: bool,
    /// It was counted as one that a relay may die of.
    is_suspect: bool,
    /// Where in the route the event type begins.
    type_at: usize,
    occurred_at: Option<Timestamp>,
    traceparent: Option<String>,
    started: Instant,
}

impl Dispatched {
    pub(crate) fn of(row: &Pending, epoch: Epoch) -> Self {
        let envelope = row.event();
        let event_id = match &row.content {
            Content::Event(envelope) => Ok(envelope.event_id().clone()),
            Content::Invalid(bad) => Err(bad.event_id.clone()),
            Content::Unread { .. } => Err(String::new()),
        };
        Self {
            row: RowKey::from(row),
            epoch,
            token: row.token,
            attempts: row.attempts,
            event_id,
            route: envelope.map(route),
            route_id: RouteId::of_row(&row.content),
            type_at: envelope.map_or(0, |event| event.aggregate_type().as_str().len() + 1),
            occurred_at: envelope.and_then(Envelope::moment),
            traceparent: envelope.and_then(Context::traceparent_of).map(str::to_owned),
            started: instant(),
            is_local: false,
            is_suspect: false,
        }
    }

    /// A row from the table, under the lease of its shard.
    pub(crate) fn from_table(row: Pending, epoch: Epoch) -> (Self, Assignment) {
        let dispatched = Self::of(&row, epoch);
        let lease = LeaseKind::Shard(row.shard, epoch);
        let assignment = dispatched.assignment(lease, row.content);
        (dispatched, assignment)
    }

    pub(crate) fn of_local(envelope: &Envelope, inserted: Inserted) -> Self {
        Self {
            row: RowKey { seq: inserted.seq, shard: inserted.shard, key: None },
            epoch: Epoch(0),
            token: LocalLease::TOKEN,
            attempts: 0,
            event_id: Ok(envelope.event_id().clone()),
            route: Some(route(envelope)),
            route_id: RouteId::of(envelope),
            type_at: envelope.aggregate_type().as_str().len() + 1,
            occurred_at: envelope.moment(),
            traceparent: Context::traceparent_of(envelope).map(str::to_owned),
            started: instant(),
            is_local: true,
            is_suspect: false,
        }
    }

    /// The same, counted as one that a relay may die of or not.
    pub(crate) fn suspect(self, is_suspect: bool) -> Self {
        Self { is_suspect, ..self }
    }

    /// What is to be decided on, if anything is.
    pub(crate) fn outcome(&self, outcome: Outcome) -> Outcome {
        if self.is_suspect { outcome.of_suspect() } else { outcome }
    }

    pub(crate) fn row_lease(&self) -> RowLease {
        RowLease { shard: self.row.shard, seq: self.row.seq, token: self.token }
    }

    /// Its delivery, under this lease.
    pub(crate) fn assignment(&self, lease: LeaseKind, content: Content) -> Assignment {
        Assignment { route: self.route_id, lease, attempts: self.attempts, content }
    }

    pub(crate) fn event_id(&self) -> Cow<'_, str> {
        Cow::Borrowed(match &self.event_id {
            Ok(id) => id.as_str(),
            Err(text) => text,
        })
    }

    /// What became of it.
    pub(crate) fn relay_event<'a>(
        &'a self,
        verdict: &'a Verdict,
        clock: &dyn Clock,
    ) -> RelayEvent<'a> {
        let attempt = self.attempt(clock);
        match verdict {
            Verdict::Done | Verdict::Delete => RelayEvent::Delivered(attempt),
            Verdict::Retry { delay, error } => {
                RelayEvent::Retried { attempt, delay: *delay, error: error.as_str().into() }
            }
            Verdict::Defer { delay, error } => {
                RelayEvent::Deferred { attempt, delay: *delay, error: error.as_str().into() }
            }
            Verdict::Dead { error } => RelayEvent::Dead { attempt, error: error.as_str().into() },
            Verdict::Held { error } => RelayEvent::Held { attempt, error: error.as_str().into() },
        }
    }

    fn attempt(&self, clock: &dyn Clock) -> Attempt<'_> {
        let route = self.route.as_deref();
        Attempt {
            event_id: self.event_id(),
            event_type: route.and_then(|route| route.get(self.type_at..)).map(Cow::Borrowed),
            route: route.map(Cow::Borrowed),
            number: self.attempts.saturating_add(1),
            took: instant() - self.started,
            lag: self.occurred_at.map(|moment| clock.now().since(moment)),
            traceparent: self.traceparent.as_deref().map(Cow::Borrowed),
        }
    }
}

fn route(envelope: &Envelope) -> String {
    [envelope.aggregate_type().as_str(), "/", envelope.event_type().as_str()].concat()
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::{Seq, ShardId};
    use crate::verdict::Next;

    fn dispatched() -> Dispatched {
        let envelope = Envelope::json("test.step", &1).unwrap();
        let occurred_at = Timestamp::from_unix_micros(0);
        let inserted = Inserted { seq: Seq(1), shard: ShardId(0), occurred_at, is_next: true };
        Dispatched::of_local(&envelope, inserted)
    }

    #[test]
    fn one_that_was_counted_and_not_begun_is_written_as_put_off() {
        assert!(matches!(dispatched().outcome(Outcome::TooLate), Outcome::TooLate));
        let Outcome::Judgeable(Err(failed)) = dispatched().suspect(true).outcome(Outcome::TooLate)
        else {
            panic!("its count would stay");
        };
        assert_eq!(failed.next, Next::Defer(Duration::ZERO));
    }
}
