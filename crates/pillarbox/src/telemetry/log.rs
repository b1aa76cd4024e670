//! Writes relay events to the log, through `tracing`.

use tracing::{debug, error, info, warn};

use super::{Attempt, Observer, RelayEvent};

/// Writes relay events to the log, through `tracing`. Every relay has one.
///
/// - `error`: an event became a dead letter, or a component of the relay failed.
/// - `warn`: a retry, a lost lease, a fenced verdict, a full local queue.
/// - `info`: a relay started or stopped, shards changed their owner, rows were purged.
/// - `debug`: everything else.
///
/// Payloads are never logged, nor headers except `traceparent`.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::{RelayEvent, Log, Observer};
///
/// Log.on_event(&RelayEvent::LocalQueueFull { events: 2 });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Observer for Log {
    fn on_event(&self, event: &RelayEvent<'_>) {
        match event {
            RelayEvent::Started { .. }
            | RelayEvent::Stopped { .. }
            | RelayEvent::Abandoned { .. }
            | RelayEvent::LeaseRenewed { .. }
            | RelayEvent::LeaseLost { .. }
            | RelayEvent::ShardsTaken { .. }
            | RelayEvent::ShardsReleased { .. } => log_lifecycle(event),
            RelayEvent::Delivered(_)
            | RelayEvent::Retried { .. }
            | RelayEvent::Deferred { .. }
            | RelayEvent::Dead { .. }
            | RelayEvent::Held { .. } => log_delivery(event),
            _ => log_work(event),
        }
    }
}

/// Logs events about the relay and its shards.
fn log_lifecycle(event: &RelayEvent<'_>) {
    match event {
        RelayEvent::Started { owner, store } => info!(%owner, %store, "relay started"),
        RelayEvent::Stopped { owner } => info!(%owner, "relay stopped"),
        RelayEvent::Abandoned { unsettled } => {
            warn!(unsettled, "shutdown timed out; unsettled events will be redelivered");
        }
        RelayEvent::LeaseRenewed { owner } => debug!(%owner, "lease renewed"),
        RelayEvent::LeaseLost { owner } => {
            warn!(%owner, "lease lost; another relay may have taken over");
        }
        RelayEvent::ShardsTaken { owner, shards, lapsed } => {
            info!(%owner, shards, lapsed, "shards taken");
        }
        RelayEvent::ShardsReleased { owner, shards } => info!(%owner, shards, "shards released"),
        _ => {}
    }
}

/// Logs how a delivery ended.
fn log_delivery(event: &RelayEvent<'_>) {
    let Some(attempt) = event.attempt() else { return };
    let Attempt { event_id, number, .. } = attempt;
    let (route, traceparent) = (attempt.route.as_deref(), attempt.traceparent.as_deref());
    match event {
        RelayEvent::Delivered(_) => {
            debug!(%event_id, attempt = number, took = ?attempt.took, "delivered");
        }
        RelayEvent::Retried { delay, error, .. } => warn!(
            %event_id, attempt = number, ?delay, %error, route, traceparent,
            "delivery failed, will retry"
        ),
        RelayEvent::Deferred { delay, error, .. } => {
            debug!(%event_id, attempt = number, ?delay, %error, route, "delivery deferred");
        }
        RelayEvent::Dead { error, .. } => error!(
            %event_id, attempt = number, %error, route, traceparent,
            "event is dead"
        ),
        RelayEvent::Held { error, .. } => error!(
            %event_id, attempt = number, %error, route, traceparent,
            "event is held; later events of its key wait for a replay or a skip"
        ),
        _ => {}
    }
}

/// Logs reads, writes and maintenance.
fn log_work(event: &RelayEvent<'_>) {
    match event {
        RelayEvent::NotStarted { event_id } => {
            debug!(%event_id, "delivery not started; the next owner delivers the event");
        }
        RelayEvent::Fenced { event_id } => {
            warn!(%event_id, "verdict fenced: already written, or the event is owned by another relay");
        }
        RelayEvent::RowLocked { seq, event_id } => warn!(
            seq = seq.0,
            %event_id,
            "row is locked by another transaction; its verdict is written when the lock is gone"
        ),
        RelayEvent::VerdictRefused { seq, error } => {
            error!(seq = seq.0, %error, "database rejected a verdict; retrying at the next sweep");
        }
        RelayEvent::FromLocalQueue { events } => debug!(events, "received from the local queue"),
        RelayEvent::LocalQueueFull { events } => {
            warn!(events, "local queue is full; these events are read from the table");
        }
        RelayEvent::Read { rows } => debug!(rows, "rows read"),
        RelayEvent::Settled { rows, took } => debug!(rows, ?took, "verdicts written"),
        RelayEvent::Purged { kind, rows } => info!(kind, rows, "rows purged"),
        RelayEvent::Counted(gauges) => debug!(?gauges, "gauges updated"),
        RelayEvent::ComponentFailed { component, error, cause } => {
            error!(%component, %error, %cause, "relay component failed; retrying");
        }
        _ => {}
    }
}

#[cfg(test)]
mod tests {
    use std::sync::{Arc, Mutex};
    use std::time::Duration;

    use tracing::{Event, Level, Metadata, Subscriber, span};

    use super::*;
    use crate::telemetry::Component;

    /// Records the level of every log line.
    #[derive(Clone, Default)]
    struct Levels(Arc<Mutex<Vec<Level>>>);

    impl Subscriber for Levels {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }
        fn new_span(&self, _: &span::Attributes<'_>) -> span::Id {
            span::Id::from_u64(1)
        }
        fn record(&self, _: &span::Id, _: &span::Record<'_>) {}
        fn record_follows_from(&self, _: &span::Id, _: &span::Id) {}
        fn event(&self, event: &Event<'_>) {
            self.0.lock().unwrap().push(*event.metadata().level());
        }
        fn enter(&self, _: &span::Id) {}
        fn exit(&self, _: &span::Id) {}
    }

    fn level_of(event: &RelayEvent<'_>) -> Vec<Level> {
        let levels = Levels::default();
        tracing::subscriber::with_default(levels.clone(), || Log.on_event(event));
        levels.0.lock().unwrap().clone()
    }

    fn attempt() -> Attempt<'static> {
        Attempt {
            event_id: "e".into(),
            event_type: None,
            route: None,
            number: 1,
            took: Duration::ZERO,
            lag: None,
            traceparent: None,
        }
    }

    #[test]
    fn levels_follow_the_severity_of_the_event() {
        let dead = RelayEvent::Dead { attempt: attempt(), error: "no".into() };
        let held = RelayEvent::Held { attempt: attempt(), error: "no".into() };

        assert_eq!(level_of(&RelayEvent::LocalQueueFull { events: 1 }), [Level::WARN]);
        assert_eq!(level_of(&dead), [Level::ERROR]);
        assert_eq!(level_of(&held), [Level::ERROR]);
        assert_eq!(level_of(&RelayEvent::failed_with(Component::Read, "gone")), [Level::ERROR]);
        assert_eq!(level_of(&RelayEvent::Delivered(attempt())), [Level::DEBUG]);
    }
}
