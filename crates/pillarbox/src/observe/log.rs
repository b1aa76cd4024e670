//! The log: every happening as a line, through `tracing`.

use tracing::{debug, error, info, warn};

use super::{Attempt, Happening, Observer};

/// Writes happenings to the log, through `tracing`. Every relay has one.
///
/// `error`: an event was given up, or a part of the relay met an error. `warn`: a retry, a lost
/// lease, a verdict that came too late, no room in memory. `info`: the life of the relay, shards
/// that change hands, purges. `debug`: everything else. Never a payload, never a header but the
/// trace it belongs to.
///
/// # Examples
/// ```
/// use pillarbox::observe::{Happening, Log, Observer};
///
/// Log.see(&Happening::HotDropped { events: 2 });
/// ```
#[derive(Clone, Copy, Debug, Default)]
pub struct Log;

impl Observer for Log {
    fn see(&self, happening: &Happening<'_>) {
        match happening {
            Happening::Started { .. }
            | Happening::Stopped { .. }
            | Happening::Abandoned { .. }
            | Happening::LeaseRenewed { .. }
            | Happening::LeaseLost { .. }
            | Happening::ShardsTaken { .. }
            | Happening::ShardsReleased { .. } => tell_life(happening),
            Happening::Delivered(_)
            | Happening::Retried { .. }
            | Happening::Deferred { .. }
            | Happening::Dead { .. }
            | Happening::Held { .. } => tell_delivery(happening),
            _ => tell_work(happening),
        }
    }
}

/// The relay itself, and what it owns.
fn tell_life(happening: &Happening<'_>) {
    match happening {
        Happening::Started { owner, store } => info!(%owner, %store, "relay started"),
        Happening::Stopped { owner } => info!(%owner, "relay stopped"),
        Happening::Abandoned { unsettled } => {
            warn!(unsettled, "stopped before everything was settled, it will come again");
        }
        Happening::LeaseRenewed { owner } => debug!(%owner, "lease renewed"),
        Happening::LeaseLost { owner } => {
            warn!(%owner, "lease lost, another relay may have taken over");
        }
        Happening::ShardsTaken { owner, shards, lapsed } => {
            info!(%owner, shards, lapsed, "shards taken");
        }
        Happening::ShardsReleased { owner, shards } => info!(%owner, shards, "shards released"),
        _ => {}
    }
}

/// How one delivery ended.
fn tell_delivery(happening: &Happening<'_>) {
    let Some(attempt) = happening.attempt() else { return };
    let Attempt { event_id, number, .. } = attempt;
    let (route, traceparent) = (attempt.route.as_deref(), attempt.traceparent.as_deref());
    match happening {
        Happening::Delivered(_) => {
            debug!(%event_id, attempt = number, took = ?attempt.took, "delivered");
        }
        Happening::Retried { delay, error, .. } => warn!(
            %event_id, attempt = number, ?delay, %error, route, traceparent,
            "delivery failed, will retry"
        ),
        Happening::Deferred { delay, error, .. } => {
            debug!(%event_id, attempt = number, ?delay, %error, route, "delivery deferred");
        }
        Happening::Dead { error, .. } => error!(
            %event_id, attempt = number, %error, route, traceparent,
            "event given up, a dead letter"
        ),
        Happening::Held { error, .. } => error!(
            %event_id, attempt = number, %error, route, traceparent,
            "event given up, its key is held"
        ),
        _ => {}
    }
}

/// What the relay does for its events.
fn tell_work(happening: &Happening<'_>) {
    match happening {
        Happening::NotStarted { event_id } => {
            debug!(%event_id, "not begun under this lease, left to its next owner");
        }
        Happening::Fenced { event_id } => {
            warn!(%event_id, "verdict fenced off, written before or no longer ours");
        }
        Happening::RowLocked { seq, event_id } => warn!(
            seq = seq.0,
            %event_id,
            "another transaction has this row locked; its verdict is written when the row is free"
        ),
        Happening::VerdictRefused { seq, error } => {
            error!(seq = seq.0, %error, "verdict refused by the database");
        }
        Happening::Hot { events } => debug!(events, "taken from memory"),
        Happening::HotDropped { events } => {
            warn!(events, "no room in memory, these events are read from the table");
        }
        Happening::Read { rows } => debug!(rows, "read"),
        Happening::Settled { rows, took } => debug!(rows, ?took, "settled"),
        Happening::Purged { kind, rows } => info!(kind, rows, "purged"),
        Happening::Counted(gauges) => debug!(?gauges, "counted"),
        Happening::Trouble { part, error, cause } => {
            error!(%part, %error, %cause, "this part of the relay failed, it goes on by itself");
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
    use crate::observe::Part;

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

    fn level_of(happening: &Happening<'_>) -> Vec<Level> {
        let levels = Levels::default();
        tracing::subscriber::with_default(levels.clone(), || Log.see(happening));
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
        let dead = Happening::Dead { attempt: attempt(), error: "no".into() };
        let held = Happening::Held { attempt: attempt(), error: "no".into() };

        assert_eq!(level_of(&Happening::HotDropped { events: 1 }), [Level::WARN]);
        assert_eq!(level_of(&dead), [Level::ERROR]);
        assert_eq!(level_of(&held), [Level::ERROR]);
        assert_eq!(level_of(&Happening::mishap(Part::Read, "gone")), [Level::ERROR]);
        assert_eq!(level_of(&Happening::Delivered(attempt())), [Level::DEBUG]);
    }
}
