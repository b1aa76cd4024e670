//! The log: every relay_event as a line, through `tracing`.

use tracing::{debug, error, info, warn};

use super::{Attempt, Observer, RelayEvent};

/// Writes relay_events to the log, through `tracing`. Every relay has one.
///
/// `error`: an event was given up, or a part of the relay met an error. `warn`: a retry, a lost
/// lease, a verdict that came too late, no room in memory. `info`: the life of the relay, shards
/// that change hands, purges. `debug`: everything else. Never a payload, never a header but the
/// trace it belongs to.
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
    fn on_event(&self, relay_event: &RelayEvent<'_>) {
        match relay_event {
            RelayEvent::Started { .. }
            | RelayEvent::Stopped { .. }
            | RelayEvent::Abandoned { .. }
            | RelayEvent::LeaseRenewed { .. }
            | RelayEvent::LeaseLost { .. }
            | RelayEvent::ShardsTaken { .. }
            | RelayEvent::ShardsReleased { .. } => tell_life(relay_event),
            RelayEvent::Delivered(_)
            | RelayEvent::Retried { .. }
            | RelayEvent::Deferred { .. }
            | RelayEvent::Dead { .. }
            | RelayEvent::Held { .. } => tell_delivery(relay_event),
            _ => tell_work(relay_event),
        }
    }
}

/// The relay itself, and what it owns.
fn tell_life(relay_event: &RelayEvent<'_>) {
    match relay_event {
        RelayEvent::Started { owner, store } => info!(%owner, %store, "relay started"),
        RelayEvent::Stopped { owner } => info!(%owner, "relay stopped"),
        RelayEvent::Abandoned { unsettled } => {
            warn!(unsettled, "stopped before everything was settled, it will come again");
        }
        RelayEvent::LeaseRenewed { owner } => debug!(%owner, "lease renewed"),
        RelayEvent::LeaseLost { owner } => {
            warn!(%owner, "lease lost, another relay may have taken over");
        }
        RelayEvent::ShardsTaken { owner, shards, lapsed } => {
            info!(%owner, shards, lapsed, "shards taken");
        }
        RelayEvent::ShardsReleased { owner, shards } => info!(%owner, shards, "shards released"),
        _ => {}
    }
}

/// How one delivery ended.
fn tell_delivery(relay_event: &RelayEvent<'_>) {
    let Some(attempt) = relay_event.attempt() else { return };
    let Attempt { event_id, number, .. } = attempt;
    let (route, traceparent) = (attempt.route.as_deref(), attempt.traceparent.as_deref());
    match relay_event {
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
            "event given up, a dead letter"
        ),
        RelayEvent::Held { error, .. } => error!(
            %event_id, attempt = number, %error, route, traceparent,
            "event given up, its key is held"
        ),
        _ => {}
    }
}

/// What the relay does for its events.
fn tell_work(relay_event: &RelayEvent<'_>) {
    match relay_event {
        RelayEvent::NotStarted { event_id } => {
            debug!(%event_id, "not begun under this lease, left to its next owner");
        }
        RelayEvent::Fenced { event_id } => {
            warn!(%event_id, "verdict fenced off, written before or no longer ours");
        }
        RelayEvent::RowLocked { seq, event_id } => warn!(
            seq = seq.0,
            %event_id,
            "another transaction has this row locked; its verdict is written when the row is free"
        ),
        RelayEvent::VerdictRefused { seq, error } => {
            error!(seq = seq.0, %error, "verdict refused by the database");
        }
        RelayEvent::FromLocalQueue { events } => debug!(events, "taken from memory"),
        RelayEvent::LocalQueueFull { events } => {
            warn!(events, "no room in memory, these events are read from the table");
        }
        RelayEvent::Read { rows } => debug!(rows, "read"),
        RelayEvent::Settled { rows, took } => debug!(rows, ?took, "settled"),
        RelayEvent::Purged { kind, rows } => info!(kind, rows, "purged"),
        RelayEvent::Counted(gauges) => debug!(?gauges, "counted"),
        RelayEvent::ComponentFailed { component, error, cause } => {
            error!(%component, %error, %cause, "this part of the relay failed, it goes on by itself");
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

    /// Notes the level of every line.
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

    fn level_of(relay_event: &RelayEvent<'_>) -> Vec<Level> {
        let levels = Levels::default();
        tracing::subscriber::with_default(levels.clone(), || Log.on_event(relay_event));
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
    fn levels_are_those_of_the_seeds() {
        let dead = RelayEvent::Dead { attempt: attempt(), error: "no".into() };
        let held = RelayEvent::Held { attempt: attempt(), error: "no".into() };

        assert_eq!(level_of(&RelayEvent::LocalQueueFull { events: 1 }), [Level::WARN]);
        assert_eq!(level_of(&dead), [Level::ERROR]);
        assert_eq!(level_of(&held), [Level::ERROR]);
        assert_eq!(level_of(&RelayEvent::failed_with(Component::Read, "gone")), [Level::ERROR]);
        assert_eq!(level_of(&RelayEvent::Delivered(attempt())), [Level::DEBUG]);
    }
}
