//! The events of a relay.

use std::{borrow::Cow, fmt, time::Duration};

use crate::error::Error;
use crate::id::{OwnerId, Seq};

/// Something that happened in a relay.
///
/// Every delivery ends with exactly one of [`Delivered`](Self::Delivered),
/// [`Retried`](Self::Retried), [`Deferred`](Self::Deferred), [`Dead`](Self::Dead),
/// [`Held`](Self::Held) and [`NotStarted`](Self::NotStarted), reported before the verdict is
/// written.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::RelayEvent;
///
/// fn is_dead_letter(event: &RelayEvent<'_>) -> bool {
///     matches!(event, RelayEvent::Dead { .. } | RelayEvent::Held { .. })
/// }
/// # assert!(!is_dead_letter(&RelayEvent::Read { rows: 1 }));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RelayEvent<'a> {
    /// A relay started and joined as an owner.
    Started {
        /// The relay's owner id.
        owner: Cow<'a, OwnerId>,
        /// The name of its store.
        store: Cow<'a, str>,
    },
    /// A relay stopped.
    Stopped {
        /// The relay's owner id.
        owner: Cow<'a, OwnerId>,
    },
    /// A stop timed out. The unsettled events will be delivered again.
    Abandoned {
        /// The number of events in delivery, or delivered and not yet settled.
        unsettled: usize,
    },
    /// A listener returned success.
    Delivered(Attempt<'a>),
    /// A delivery failed and will be retried.
    Retried {
        /// The failed attempt.
        attempt: Attempt<'a>,
        /// The delay until the retry.
        delay: Duration,
        /// The text of the failure.
        error: Cow<'a, str>,
    },
    /// A delivery was deferred, without counting an attempt.
    Deferred {
        /// The deferred attempt.
        attempt: Attempt<'a>,
        /// The delay until the next delivery.
        delay: Duration,
        /// The reason.
        error: Cow<'a, str>,
    },
    /// An event became a dead letter. Later events of its key continue.
    Dead {
        /// The last attempt.
        attempt: Attempt<'a>,
        /// The text of the failure.
        error: Cow<'a, str>,
    },
    /// An event became a dead letter, and its key waits for a replay or a skip.
    Held {
        /// The last attempt.
        attempt: Attempt<'a>,
        /// The text of the failure.
        error: Cow<'a, str>,
    },
    /// A delivery was not started, because the lease was too short or the shard is being released.
    /// The next owner delivers the event.
    NotStarted {
        /// The event's id.
        event_id: Cow<'a, str>,
    },
    /// A verdict was rejected by its fence: it was written before, or the relay no longer owns the
    /// event.
    Fenced {
        /// The event's id.
        event_id: Cow<'a, str>,
    },
    /// Another transaction holds a lock on the row. The verdict is written when the lock is gone.
    RowLocked {
        /// The row's `seq`.
        seq: Seq,
        /// The row's `event_id`.
        event_id: Cow<'a, str>,
    },
    /// The database rejected a verdict. It is retried at the next sweep.
    VerdictRefused {
        /// The row's `seq`.
        seq: Seq,
        /// The database's error.
        error: Cow<'a, str>,
    },
    /// Committed events were received through the local queue.
    FromLocalQueue {
        /// The number of events.
        events: usize,
    },
    /// The local queue was full; the events are read from the table instead.
    LocalQueueFull {
        /// The number of events.
        events: usize,
    },
    /// Pending rows were read.
    Read {
        /// The number of rows.
        rows: usize,
    },
    /// Verdicts were written.
    Settled {
        /// The number of rows, without those rejected by a fence.
        rows: usize,
        /// The duration of the database call.
        took: Duration,
    },
    /// A lease was renewed for its whole length.
    LeaseRenewed {
        /// The lease's owner.
        owner: Cow<'a, OwnerId>,
    },
    /// A lease was lost. Another relay may have taken over.
    LeaseLost {
        /// The lease's owner.
        owner: Cow<'a, OwnerId>,
    },
    /// Shards were acquired.
    ShardsTaken {
        /// The new owner.
        owner: Cow<'a, OwnerId>,
        /// The number of shards.
        shards: usize,
        /// The number of these shards that had an owner whose lease had lapsed.
        lapsed: usize,
    },
    /// Shards were released.
    ShardsReleased {
        /// The previous owner.
        owner: Cow<'a, OwnerId>,
        /// The number of shards.
        shards: usize,
    },
    /// Maintenance deleted rows.
    Purged {
        /// The kind of rows: `done`, `dead`, `audit`, `inbox` or `any`.
        kind: &'static str,
        /// The number of rows.
        rows: u64,
    },
    /// Maintenance updated the gauges.
    Counted(Gauges),
    /// A component of the relay failed. It retries.
    ComponentFailed {
        /// The component.
        component: Component,
        /// The error.
        error: Cow<'a, str>,
        /// The error's source, or an empty text.
        cause: Cow<'a, str>,
    },
}

/// A delivery that has ended.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt<'a> {
    /// The event's id.
    pub event_id: Cow<'a, str>,
    /// The event type; `None` if the row is not a valid event.
    pub event_type: Option<Cow<'a, str>>,
    /// Aggregate type and event type, as `order/order.placed`; `None` if the row is not a valid
    /// event.
    pub route: Option<Cow<'a, str>>,
    /// The number of the attempt, starting at 1.
    pub number: u32,
    /// The time from the start of the delivery to its end.
    pub took: Duration,
    /// The time from the event's `occurred_at` to the end of the delivery, by this machine's clock;
    /// `None` if it is unknown.
    pub lag: Option<Duration>,
    /// The W3C trace context in which the event was emitted.
    pub traceparent: Option<Cow<'a, str>>,
}

/// The values of the gauges.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Pending events: new, waiting or held.
    pub pending: u64,
    /// Waiting events: delayed, deferred or to be retried.
    pub waiting: u64,
    /// Dead letters, without held events.
    pub dead: u64,
    /// Keys that wait for a replay or a skip.
    pub held_keys: u64,
    /// The time since the oldest due event became due; zero if none is due.
    pub oldest_lag: Duration,
    /// Relays with a valid lease.
    pub owners: u64,
    /// Shards owned by a relay with a valid lease.
    pub owned_shards: u64,
    /// Shards owned by this relay; zero if maintenance runs without a relay.
    pub own_shards: u64,
    /// Events from the local queue that wait for a worker.
    pub hot_depth: u64,
    /// Events from the table that wait for a worker.
    pub cold_depth: u64,
}

/// A component of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Component {
    /// Heartbeats and the ownership of shards.
    Lease,
    /// Reading pending rows.
    Read,
    /// Writing verdicts.
    Settle,
    /// Purges, gauges and custom jobs.
    Maintenance,
}

impl Component {
    /// Returns the name in logs and metric labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Lease => "lease",
            Self::Read => "read",
            Self::Settle => "settle",
            Self::Maintenance => "maintenance",
        }
    }
}

impl fmt::Display for Component {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl<'a> RelayEvent<'a> {
    /// A component failed with this error.
    pub(crate) fn failed(component: Component, error: &Error) -> Self {
        let (error, cause) = (error.to_string(), error.source_text());
        Self::ComponentFailed { component, error: error.into(), cause: cause.into() }
    }

    /// A component failed for a reason that is not an [`Error`].
    pub(crate) fn failed_with(component: Component, error: impl Into<Cow<'a, str>>) -> Self {
        Self::ComponentFailed { component, error: error.into(), cause: Cow::Borrowed("") }
    }

    /// Returns the attempt, if the event is about one.
    pub fn attempt(&self) -> Option<&Attempt<'a>> {
        match self {
            Self::Delivered(attempt)
            | Self::Retried { attempt, .. }
            | Self::Deferred { attempt, .. }
            | Self::Dead { attempt, .. }
            | Self::Held { attempt, .. } => Some(attempt),
            _ => None,
        }
    }

    /// Converts the event into one without borrowed data.
    pub fn into_owned(self) -> RelayEvent<'static> {
        use RelayEvent as E;
        match self {
            Self::Started { owner, store } => {
                E::Started { owner: owned(owner), store: owned(store) }
            }
            Self::Stopped { owner } => E::Stopped { owner: owned(owner) },
            Self::Abandoned { unsettled } => E::Abandoned { unsettled },
            Self::Delivered(attempt) => E::Delivered(attempt.into_owned()),
            Self::Retried { attempt, delay, error } => {
                E::Retried { attempt: attempt.into_owned(), delay, error: owned(error) }
            }
            Self::Deferred { attempt, delay, error } => {
                E::Deferred { attempt: attempt.into_owned(), delay, error: owned(error) }
            }
            Self::Dead { attempt, error } => {
                E::Dead { attempt: attempt.into_owned(), error: owned(error) }
            }
            Self::Held { attempt, error } => {
                E::Held { attempt: attempt.into_owned(), error: owned(error) }
            }
            Self::NotStarted { event_id } => E::NotStarted { event_id: owned(event_id) },
            Self::Fenced { event_id } => E::Fenced { event_id: owned(event_id) },
            Self::RowLocked { seq, event_id } => E::RowLocked { seq, event_id: owned(event_id) },
            Self::VerdictRefused { seq, error } => E::VerdictRefused { seq, error: owned(error) },
            Self::FromLocalQueue { events } => E::FromLocalQueue { events },
            Self::LocalQueueFull { events } => E::LocalQueueFull { events },
            Self::Read { rows } => E::Read { rows },
            Self::Settled { rows, took } => E::Settled { rows, took },
            Self::LeaseRenewed { owner } => E::LeaseRenewed { owner: owned(owner) },
            Self::LeaseLost { owner } => E::LeaseLost { owner: owned(owner) },
            Self::ShardsTaken { owner, shards, lapsed } => {
                E::ShardsTaken { owner: owned(owner), shards, lapsed }
            }
            Self::ShardsReleased { owner, shards } => {
                E::ShardsReleased { owner: owned(owner), shards }
            }
            Self::Purged { kind, rows } => E::Purged { kind, rows },
            Self::Counted(gauges) => E::Counted(gauges),
            Self::ComponentFailed { component, error, cause } => {
                E::ComponentFailed { component, error: owned(error), cause: owned(cause) }
            }
        }
    }
}

impl Attempt<'_> {
    fn into_owned(self) -> Attempt<'static> {
        Attempt {
            event_id: owned(self.event_id),
            event_type: self.event_type.map(owned),
            route: self.route.map(owned),
            number: self.number,
            took: self.took,
            lag: self.lag,
            traceparent: self.traceparent.map(owned),
        }
    }
}

fn owned<T: ToOwned + ?Sized + 'static>(value: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(value.into_owned())
}
