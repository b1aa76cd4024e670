//! What can happen.

use std::{borrow::Cow, fmt, time::Duration};

use crate::error::Error;
use crate::id::{OwnerId, Seq};

/// Something that happened in a relay.
///
/// Every delivery ends in exactly one of [`Delivered`](Self::Delivered),
/// [`Retried`](Self::Retried), [`Deferred`](Self::Deferred), [`Dead`](Self::Dead),
/// [`Held`](Self::Held) and [`NotStarted`](Self::NotStarted), told before the verdict is written.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::RelayEvent;
///
/// fn is_trouble(relay_event: &RelayEvent<'_>) -> bool {
///     matches!(relay_event, RelayEvent::Dead { .. } | RelayEvent::Held { .. })
/// }
/// # assert!(!is_trouble(&RelayEvent::Read { rows: 1 }));
/// ```
#[derive(Clone, Debug, PartialEq)]
#[non_exhaustive]
pub enum RelayEvent<'a> {
    /// A relay has entered as an owner.
    Started {
        /// Who.
        owner: Cow<'a, OwnerId>,
        /// What its database is called.
        store: Cow<'a, str>,
    },
    /// A relay has ended.
    Stopped {
        /// Who.
        owner: Cow<'a, OwnerId>,
    },
    /// A stop that could not wait longer; these events will be delivered again.
    Abandoned {
        /// Events in delivery, or delivered and not yet settled.
        unsettled: usize,
    },
    /// A listener took the event.
    Delivered(Attempt<'a>),
    /// A delivery failed and will be tried again.
    Retried {
        /// Which.
        attempt: Attempt<'a>,
        /// When.
        delay: Duration,
        /// Why.
        error: Cow<'a, str>,
    },
    /// A delivery was put off; it counts as no attempt.
    Deferred {
        /// Which.
        attempt: Attempt<'a>,
        /// Until when.
        delay: Duration,
        /// Why.
        error: Cow<'a, str>,
    },
    /// An event was given up; it blocks nobody.
    Dead {
        /// Its last attempt.
        attempt: Attempt<'a>,
        /// Why.
        error: Cow<'a, str>,
    },
    /// An event was given up, and its key waits for a replay or a skip.
    Held {
        /// Its last attempt.
        attempt: Attempt<'a>,
        /// Why.
        error: Cow<'a, str>,
    },
    /// A delivery was not begun: the lease was too short, or its shard is given away. The event is
    /// left to its next owner.
    NotStarted {
        /// Which.
        event_id: Cow<'a, str>,
    },
    /// A verdict came too late: it was written before, or the event is no longer ours.
    Fenced {
        /// Which.
        event_id: Cow<'a, str>,
    },
    /// Another transaction has the row locked; its verdict is written when the row is free.
    RowLocked {
        /// The row's place in the table.
        seq: Seq,
        /// The event's id, as the row has it.
        event_id: Cow<'a, str>,
    },
    /// The database refuses to write a verdict; it is tried again at the next sweep.
    VerdictRefused {
        /// On which row.
        seq: Seq,
        /// What it said.
        error: Cow<'a, str>,
    },
    /// Committed events went straight from memory to delivery.
    FromLocalQueue {
        /// How many.
        events: usize,
    },
    /// There was no room in memory for committed events; they are read from the table.
    LocalQueueFull {
        /// How many.
        events: usize,
    },
    /// Pending rows were read.
    Read {
        /// How many.
        rows: usize,
    },
    /// Verdicts were written.
    Settled {
        /// How many; those that were fenced off do not count.
        rows: usize,
        /// How long the database took.
        took: Duration,
    },
    /// A lease holds for its whole length again.
    LeaseRenewed {
        /// Whose.
        owner: Cow<'a, OwnerId>,
    },
    /// A lease was lost; another relay may have taken over.
    LeaseLost {
        /// Whose.
        owner: Cow<'a, OwnerId>,
    },
    /// Shards were taken.
    ShardsTaken {
        /// By whom.
        owner: Cow<'a, OwnerId>,
        /// How many.
        shards: usize,
        /// How many of them had an owner whose lease had lapsed.
        lapsed: usize,
    },
    /// Shards were given back.
    ShardsReleased {
        /// By whom.
        owner: Cow<'a, OwnerId>,
        /// How many.
        shards: usize,
    },
    /// Maintenance deleted rows.
    Purged {
        /// Of which kind: `done`, `dead`, `audit`, `inbox` or `any`.
        kind: &'static str,
        /// How many.
        rows: u64,
    },
    /// Maintenance counted what there is.
    Counted(Gauges),
    /// A part of the relay met an error; it goes on by itself.
    ComponentFailed {
        /// Which part.
        component: Component,
        /// What went wrong.
        error: Cow<'a, str>,
        /// What caused it; empty when there is no more to say.
        cause: Cow<'a, str>,
    },
}

/// One delivery that is over.
#[derive(Clone, Debug, PartialEq)]
pub struct Attempt<'a> {
    /// Which event.
    pub event_id: Cow<'a, str>,
    /// What happened; `None` when the row is no sound event.
    pub event_type: Option<Cow<'a, str>>,
    /// Aggregate type and event type, as `order/order.placed`; `None` as above.
    pub route: Option<Cow<'a, str>>,
    /// Which attempt, from 1.
    pub number: u32,
    /// From its start to the listener's answer.
    pub took: Duration,
    /// From when it happened (the insert, unless the writer said otherwise) to the listener's
    /// answer, by this machine's clock; `None` when that is not known.
    pub lag: Option<Duration>,
    /// The W3C trace context it was emitted in.
    pub traceparent: Option<Cow<'a, str>>,
}

/// How much there is of what.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Gauges {
    /// Events that wait: new, to be retried, or held.
    pub pending: u64,
    /// Events that wait for their time: delayed, deferred, or to be retried.
    pub waiting: u64,
    /// Dead letters that block nobody.
    pub dead: u64,
    /// Keys that wait for a replay or a skip.
    pub held_keys: u64,
    /// For how long the oldest due event has been waiting; zero when none is.
    pub oldest_lag: Duration,
    /// Relays with a living lease.
    pub owners: u64,
    /// Shards that a living relay holds.
    pub owned_shards: u64,
    /// Shards that this relay holds; zero where maintenance runs without one.
    pub own_shards: u64,
    /// Events from writers of this process that wait here for a worker.
    pub hot_depth: u64,
    /// Events from the table that wait here for a worker.
    pub cold_depth: u64,
}

/// A part of the relay.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Component {
    /// Staying alive and taking shards.
    Lease,
    /// Reading pending rows.
    Read,
    /// Writing verdicts.
    Settle,
    /// Purges, gauges and the jobs of your own.
    Maintenance,
}

impl Component {
    /// The word in logs and labels.
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
    /// A part of the relay met this error.
    pub(crate) fn failed(component: Component, error: &Error) -> Self {
        let (error, cause) = (error.to_string(), error.source_text());
        Self::ComponentFailed { component, error: error.into(), cause: cause.into() }
    }

    /// A part of the relay met something that is no [`Error`].
    pub(crate) fn failed_with(component: Component, error: impl Into<Cow<'a, str>>) -> Self {
        Self::ComponentFailed { component, error: error.into(), cause: Cow::Borrowed("") }
    }

    /// The delivery it is about, if it is about one.
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

    /// The same, to be kept.
    pub fn into_owned(self) -> RelayEvent<'static> {
        use RelayEvent as H;
        match self {
            Self::Started { owner, store } => H::Started { owner: own(owner), store: own(store) },
            Self::Stopped { owner } => H::Stopped { owner: own(owner) },
            Self::Abandoned { unsettled } => H::Abandoned { unsettled },
            Self::Delivered(attempt) => H::Delivered(attempt.into_owned()),
            Self::Retried { attempt, delay, error } => {
                H::Retried { attempt: attempt.into_owned(), delay, error: own(error) }
            }
            Self::Deferred { attempt, delay, error } => {
                H::Deferred { attempt: attempt.into_owned(), delay, error: own(error) }
            }
            Self::Dead { attempt, error } => {
                H::Dead { attempt: attempt.into_owned(), error: own(error) }
            }
            Self::Held { attempt, error } => {
                H::Held { attempt: attempt.into_owned(), error: own(error) }
            }
            Self::NotStarted { event_id } => H::NotStarted { event_id: own(event_id) },
            Self::Fenced { event_id } => H::Fenced { event_id: own(event_id) },
            Self::RowLocked { seq, event_id } => H::RowLocked { seq, event_id: own(event_id) },
            Self::VerdictRefused { seq, error } => H::VerdictRefused { seq, error: own(error) },
            Self::FromLocalQueue { events } => H::FromLocalQueue { events },
            Self::LocalQueueFull { events } => H::LocalQueueFull { events },
            Self::Read { rows } => H::Read { rows },
            Self::Settled { rows, took } => H::Settled { rows, took },
            Self::LeaseRenewed { owner } => H::LeaseRenewed { owner: own(owner) },
            Self::LeaseLost { owner } => H::LeaseLost { owner: own(owner) },
            Self::ShardsTaken { owner, shards, lapsed } => {
                H::ShardsTaken { owner: own(owner), shards, lapsed }
            }
            Self::ShardsReleased { owner, shards } => {
                H::ShardsReleased { owner: own(owner), shards }
            }
            Self::Purged { kind, rows } => H::Purged { kind, rows },
            Self::Counted(gauges) => H::Counted(gauges),
            Self::ComponentFailed { component, error, cause } => {
                H::ComponentFailed { component, error: own(error), cause: own(cause) }
            }
        }
    }
}

impl Attempt<'_> {
    fn into_owned(self) -> Attempt<'static> {
        Attempt {
            event_id: own(self.event_id),
            event_type: self.event_type.map(own),
            route: self.route.map(own),
            number: self.number,
            took: self.took,
            lag: self.lag,
            traceparent: self.traceparent.map(own),
        }
    }
}

fn own<T: ToOwned + ?Sized + 'static>(value: Cow<'_, T>) -> Cow<'static, T> {
    Cow::Owned(value.into_owned())
}
