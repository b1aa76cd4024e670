//! The metrics of one route.

use metrics::{Counter, Histogram, SharedString, counter, histogram};

use super::{INVALID, millis};
use crate::telemetry::{Attempt, RelayEvent, name};

/// The metrics of one route, created once per route: a label costs an allocation.
#[derive(Debug)]
pub(super) struct RouteMeters {
    success: Counter,
    failure: Counter,
    dead: Counter,
    deferred: Counter,
    retry: Counter,
    failed_permanent: Counter,
    latency: Histogram,
    processed: Counter,
    not_processed: Counter,
    lag: Histogram,
    duration: Histogram,
}

impl RouteMeters {
    pub(super) fn new(store: &SharedString, route: &str, event_type: &str) -> Self {
        let count = |name: &'static str| counter!(name, "store" => store.clone(), "route" => route.to_owned());
        let processed = |result: &'static str| {
            counter!(name::PROCESSED, "mode" => "outbox", "processor" => route.to_owned(),
                "eventName" => event_type.to_owned(), "result" => result)
        };
        let timing = |name: &'static str| {
            histogram!(name, "mode" => "outbox", "processor" => route.to_owned(),
                "eventName" => event_type.to_owned())
        };
        Self {
            success: count(name::SUCCESS),
            failure: count(name::FAILURE),
            dead: count(name::DEAD),
            deferred: count(name::DEFERRED),
            retry: count(name::RETRY),
            failed_permanent: count(name::FAILED_PERMANENT),
            latency: histogram!(name::LATENCY, "store" => store.clone(),
                "route" => route.to_owned()),
            processed: processed("success"),
            not_processed: processed(if route == INVALID { "invalid_envelope" } else { "failed" }),
            lag: timing(name::LAG),
            duration: timing(name::DURATION),
        }
    }

    pub(super) fn on_event(&self, event: &RelayEvent<'_>, attempt: &Attempt<'_>) {
        self.latency.record(millis(attempt.took));
        self.duration.record(millis(attempt.took));
        match event {
            RelayEvent::Delivered(_) => {
                self.success.increment(1);
                self.processed.increment(1);
                if let Some(lag) = attempt.lag {
                    self.lag.record(millis(lag));
                }
            }
            RelayEvent::Retried { .. } => {
                self.failure.increment(1);
                self.retry.increment(1);
                self.not_processed.increment(1);
            }
            RelayEvent::Deferred { .. } => self.deferred.increment(1),
            RelayEvent::Dead { .. } | RelayEvent::Held { .. } => {
                self.dead.increment(1);
                self.failed_permanent.increment(1);
                self.not_processed.increment(1);
            }
            _ => {}
        }
    }
}
