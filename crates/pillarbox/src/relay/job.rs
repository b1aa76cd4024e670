//! One delivery, from its start to its verdict.

use std::borrow::Cow;

use tokio::time::Instant;

use super::board::Ticket;
use super::deliver::Outcome;
use super::routes::RouteId;
use crate::clock::{Clock, Timestamp, instant};
use crate::context::Context;
use crate::envelope::Envelope;
use crate::id::{Epoch, EventId, Token};
use crate::store::{Content, Pending, Settlement};
use crate::telemetry::{Attempt, RelayEvent};
use crate::tx::{Inserted, LocalLease};
use crate::verdict::Verdict;

/// A delivery under way, kept here so that a panic cannot take it along.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) epoch: Epoch,
    pub(super) token: Token,
    pub(super) attempts: u32,
    /// Its id, whatever a row that is no event has there.
    event_id: Result<EventId, String>,
    pub(super) route: Option<String>,
    pub(super) route_id: RouteId,
    /// Under the lease of its row, not of its shard.
    pub(super) is_hot: bool,
    /// It was counted as one that a relay may die of.
    is_suspect: bool,
    /// Where in the route the event type begins.
    type_at: usize,
    occurred_at: Option<Timestamp>,
    traceparent: Option<String>,
    started: Instant,
}

/// A delivery that is over, with the verdict that is to be written.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) job: Job,
    pub(super) verdict: Verdict,
}

impl Job {
    pub(super) fn of(row: &Pending, epoch: Epoch) -> Self {
        let envelope = row.event();
        let event_id = match &row.content {
            Content::Event(envelope) => Ok(envelope.event_id().clone()),
            Content::Invalid(bad) => Err(bad.event_id.clone()),
            Content::Unread { .. } => Err(String::new()),
        };
        Self {
            ticket: Ticket::from(row),
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
            is_hot: false,
            is_suspect: false,
        }
    }

    pub(super) fn of_hot(envelope: &Envelope, place: Inserted) -> Self {
        Self {
            ticket: Ticket { seq: place.seq, shard: place.shard, key: None },
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
            is_hot: true,
            is_suspect: false,
        }
    }

    /// The same, counted as one that a relay may die of or not.
    pub(super) fn suspect(self, is_suspect: bool) -> Self {
        Self { is_suspect, ..self }
    }

    /// What is to be judged of it, if anything is.
    pub(super) fn judged(&self, outcome: Outcome) -> Outcome {
        if self.is_suspect { outcome.of_suspect() } else { outcome }
    }

    pub(super) fn event_id(&self) -> Cow<'_, str> {
        Cow::Borrowed(match &self.event_id {
            Ok(id) => id.as_str(),
            Err(text) => text,
        })
    }

    /// What became of it.
    pub(super) fn relay_event<'a>(
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

impl Judged {
    pub(super) fn settlement(&self) -> Settlement {
        Settlement {
            shard: self.job.ticket.shard,
            epoch: self.job.epoch,
            seq: self.job.ticket.seq,
            token: self.job.token,
            verdict: self.verdict.clone(),
            settled_by: self.settled_by(),
        }
    }

    /// What is deleted keeps no name.
    pub(super) fn settled_by(&self) -> Option<String> {
        (!matches!(self.verdict, Verdict::Delete)).then(|| self.job.route.clone()).flatten()
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::{Seq, ShardId};
    use crate::verdict::Next;

    fn job() -> Job {
        let envelope = Envelope::json("test.step", &1).unwrap();
        let occurred_at = Timestamp::from_unix_micros(0);
        let place = Inserted { seq: Seq(1), shard: ShardId(0), occurred_at, is_next: true };
        Job::of_hot(&envelope, place)
    }

    #[test]
    fn one_that_was_counted_and_not_begun_is_written_as_put_off() {
        assert!(matches!(job().judged(Outcome::TooLate), Outcome::TooLate));
        let Outcome::Judgeable(Err(failed)) = job().suspect(true).judged(Outcome::TooLate) else {
            panic!("its count would stay");
        };
        assert_eq!(failed.next, Next::Defer(Duration::ZERO));
    }
}
