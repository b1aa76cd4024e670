//! One delivery, from its start to its verdict.

use tracing::{debug, error, warn};

use super::board::Ticket;
use crate::id::{Epoch, Token};
use crate::store::{Pending, Settlement};
use crate::verdict::Verdict;

/// A delivery under way, kept here so that a panic cannot take it along.
#[derive(Clone, Debug)]
pub(super) struct Job {
    pub(super) ticket: Ticket,
    pub(super) epoch: Epoch,
    pub(super) token: Token,
    pub(super) attempts: u32,
    pub(super) event_id: String,
    pub(super) route: Option<String>,
}

/// A delivery that is over, with the verdict that is to be written.
#[derive(Debug)]
pub(super) struct Judged {
    pub(super) job: Job,
    pub(super) verdict: Verdict,
}

impl Job {
    pub(super) fn of(row: &Pending, epoch: Epoch) -> Self {
        let (event_id, route) = match &row.event {
            Ok(envelope) => {
                let route = format!("{}/{}", envelope.aggregate_type(), envelope.event_type());
                (envelope.event_id().to_string(), Some(route))
            }
            Err(bad) => (bad.event_id.clone(), None),
        };
        let ticket = Ticket { seq: row.seq, shard: row.shard, key: row.key.clone() };
        Self { ticket, epoch, token: row.token, attempts: row.attempts, event_id, route }
    }

    /// Says in the log what became of it.
    pub(super) fn tell(&self, verdict: &Verdict) {
        let (event_id, attempt) = (&self.event_id, self.attempts.saturating_add(1));
        match verdict {
            Verdict::Done | Verdict::Delete => debug!(event_id, attempt, "delivered"),
            Verdict::Retry { delay, error } => {
                warn!(
                    event_id,
                    attempt,
                    ?delay,
                    error = error.as_str(),
                    "delivery failed, will retry"
                );
            }
            Verdict::Defer { delay, error } => {
                debug!(event_id, attempt, ?delay, error = error.as_str(), "delivery deferred");
            }
            Verdict::Dead { error } => {
                let (error, route) = (error.as_str(), self.route.as_deref());
                error!(event_id, attempt, error, route, "event given up, a dead letter");
            }
            Verdict::Held { error } => {
                error!(
                    event_id,
                    attempt,
                    error = error.as_str(),
                    "event given up, its key is held"
                );
            }
        }
    }
}

impl Judged {
    pub(super) fn settlement(&self) -> Settlement {
        Settlement {
            shard: self.job.ticket.shard,
            epoch: self.job.epoch,
            seq: self.job.ticket.seq,
            token: self.job.token,
            verdict: self.verdict.clone(),
            settled_by: self.job.route.clone(),
        }
    }
}
