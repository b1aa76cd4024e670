//! The kinds of faults, and the faults injected into processes.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use pillarbox::{Clock as _, SystemClock};

use crate::Result;
use crate::check::Faults;
use crate::log::{Entry, Line, parse};
use crate::process::{Process, Usage};

/// A kind of fault.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum FaultKind {
    /// SIGKILL and a restart.
    Kill,
    /// SIGSTOP for longer than the lease.
    Pause,
    /// SIGTERM and a restart.
    Restart,
    /// All connections are closed.
    Cut,
    /// All connections are reset.
    Reset,
    /// A connection is cut after so many bytes, in the middle of what is said.
    CutAfter,
    /// The server knows of the end of all connections, the client does not.
    HalfOpen,
    /// Nothing goes through for longer than the lease.
    Silence,
    /// Nothing goes through in one direction.
    OneWay,
    /// No connection is to be had for longer than the lease.
    Refusal,
    /// Everything is late.
    Delay,
    /// The server is told to end a session.
    Terminate,
    /// An incarnation whose clock is an hour off.
    Clock,
    /// The disk is full.
    Disk,
}

impl FaultKind {
    /// Faults of any process.
    pub(super) const PROCESS: [Self; 3] = [Self::Kill, Self::Pause, Self::Restart];

    /// Faults of the network and of sessions.
    pub(super) const NETWORK: [Self; 9] = [
        Self::Cut,
        Self::Reset,
        Self::CutAfter,
        Self::HalfOpen,
        Self::Silence,
        Self::OneWay,
        Self::Refusal,
        Self::Delay,
        Self::Terminate,
    ];

    /// Its label in a table.
    pub(super) const fn name(self) -> &'static str {
        match self {
            Self::Kill => "kills of relays and writers",
            Self::Pause => "pauses beyond the lease",
            Self::Restart => "graceful restarts",
            Self::Cut => "all connections closed",
            Self::Reset => "all connections reset",
            Self::CutAfter => "connections cut after a number of bytes",
            Self::HalfOpen => "all connections half-open",
            Self::Silence => "no traffic beyond the lease",
            Self::OneWay => "no traffic in one direction",
            Self::Refusal => "connections refused",
            Self::Delay => "delayed traffic",
            Self::Terminate => "sessions ended by the server",
            Self::Clock => "incarnations with a clock an hour off",
            Self::Disk => "disk filled",
        }
    }

    /// Its name in JSON and in the log.
    pub(super) const fn key(self) -> &'static str {
        match self {
            Self::Kill => "kills",
            Self::Pause => "stops",
            Self::Restart => "restarts",
            Self::Cut => "cuts",
            Self::Reset => "resets",
            Self::CutAfter => "cuts_after_bytes",
            Self::HalfOpen => "half_open",
            Self::Silence => "silences",
            Self::OneWay => "one_way_silences",
            Self::Refusal => "refusals",
            Self::Delay => "delays",
            Self::Terminate => "terminated_sessions",
            Self::Clock => "shifted_clocks",
            Self::Disk => "full_disks",
        }
    }
}

/// The faults injected into all incarnations of a process.
#[derive(Debug, Default)]
pub(super) struct InjectedFaults {
    pub(super) faults: Faults,
    /// Incarnations, and the time in microseconds since 1970.
    pub(super) kills: Vec<(String, i64)>,
    /// The number of faults of each kind.
    pub(super) counts: BTreeMap<FaultKind, usize>,
    /// The largest resource usage of an incarnation.
    pub(super) usage: Usage,
}

impl InjectedFaults {
    pub(super) fn extend(&mut self, other: Self) {
        self.faults.extend(other.faults);
        self.kills.extend(other.kills);
        for (kind, count) in other.counts {
            *self.counts.entry(kind).or_default() += count;
        }
        self.usage = self.usage.max(other.usage);
    }

    pub(super) fn count(&self, kind: FaultKind) -> usize {
        self.counts.get(&kind).copied().unwrap_or_default()
    }

    /// One more of this kind.
    pub(super) fn add(&mut self, kind: FaultKind) {
        *self.counts.entry(kind).or_default() += 1;
    }

    /// How long after each kill of a relay somebody else took shards over.
    pub(super) fn takeovers(&self, log: &str) -> Vec<Duration> {
        let took =
            |line: &Line<'_>| matches!(line.entry, Entry::ShardsAcquired { shards } if shards > 0);
        let taken: Vec<Line<'_>> = log.lines().filter_map(parse).filter(took).collect();
        let after = |(incarnation, at): &(String, i64)| {
            // Lines are in order of time, but for the moment between a clock and a write.
            let first = taken.partition_point(|line| line.at < *at);
            let next = taken[first..].iter().find(|line| line.incarnation != incarnation);
            next.map(|line| Duration::from_micros((line.at - at).unsigned_abs()))
        };
        self.kills
            .iter()
            .filter(|(incarnation, _)| incarnation.starts_with('r'))
            .filter_map(after)
            .collect()
    }

    /// How many of those who were killed had delivered something.
    pub(super) fn busy_kills(&self, log: &str) -> usize {
        let delivered = |line: Line<'_>| match line.entry {
            Entry::Ordered { .. } | Entry::Unordered { .. } => Some(line.incarnation.to_owned()),
            _ => None,
        };
        let busy: BTreeSet<String> = log.lines().filter_map(parse).filter_map(delivered).collect();
        self.kills.iter().filter(|(incarnation, _)| busy.contains(incarnation)).count()
    }

    /// A kill, at this moment.
    pub(super) async fn kill(&mut self, process: Process) -> Result {
        self.add(FaultKind::Kill);
        self.faults.killed(process.incarnation());
        self.kills.push((process.incarnation().to_owned(), SystemClock.now().unix_micros()));
        process.kill().await
    }

    /// A pause for so long.
    pub(super) async fn pause(&mut self, process: &Process, length: Duration) -> Result {
        self.add(FaultKind::Pause);
        self.faults.paused(process.incarnation());
        process.pause().await?;
        tokio::time::sleep(length).await;
        process.resume().await
    }
}
