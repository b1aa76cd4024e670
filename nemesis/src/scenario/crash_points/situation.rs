//! Scenes: what has to go on for a point to be passed.

use std::num::NonZeroU32;
use std::time::Duration;

use pillarbox::RelaySettings;
use pillarbox::store::ClaimMode;

use crate::config::ListenerBehavior;
use crate::deployment::Server;

/// Long enough to be renewed on a busy machine, short enough to be outlasted in every case.
pub(super) const LEASE: Duration = Duration::from_millis(800);

/// Of those that do not crash.
pub(super) const LONG_LEASE: Duration = Duration::from_secs(30);

/// How many events one fault may cause to come twice.
pub(super) const MAX_UNSETTLED: u32 = 8;

/// What goes on while the process crashes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Situation {
    /// It relays by shards, and writes.
    Shards,
    /// It relays by rows, and writes.
    Rows,
    /// It takes over from one that was killed, by shards.
    Successor,
    /// It takes over from one that was killed, by rows.
    RowSuccessor,
    /// It stops in the middle of its deliveries, by shards.
    Leaving,
    /// It stops in the middle of its deliveries, by rows.
    RowLeaving,
    /// Another relay comes, and gets half of its shards.
    Sharing,
    /// It purges what it has delivered.
    Purging,
    /// It replays dead letters.
    Operating,
    /// It makes the tables.
    Migrating,
}

use Situation::{
    Leaving, Migrating, Operating, Purging, RowLeaving, RowSuccessor, Rows, Shards, Sharing,
    Successor,
};

/// In which scenes a point is passed, and at which pass it is best to crash.
pub(super) fn situations(point: &str) -> &'static [(Situation, u32)] {
    let what = point.rsplit_once('.').map_or(point, |(what, _)| what);
    match what {
        "migrate" => &[(Migrating, 1)],
        "operate" => &[(Operating, 1)],
        // The first two rounds of four kinds find nothing that is old enough.
        "purge" => &[(Purging, 9)],
        "emit.own" => &[(Shards, 3)],
        "hot.settle" => &[(Shards, 2)],
        "hot.release" => &[(Leaving, 1)],
        // One that leaves may be gone before its heartbeat gives anything back.
        "release" => &[(Sharing, 1)],
        "hot.reclaim" => &[(Successor, 1)],
        "join" | "renew" => &[(Shards, 1), (Rows, 1)],
        "take" | "read" => &[(Shards, 1), (Successor, 1)],
        "promote" => &[(Shards, 2), (Rows, 2)],
        "count" => &[(Successor, 1), (RowSuccessor, 1)],
        "claim" => &[(Rows, 3), (RowSuccessor, 1)],
        "settle" => &[(Shards, 2), (Successor, 1)],
        "rows.settle" => &[(Rows, 2), (RowSuccessor, 1)],
        "rows.renew" => &[(Rows, 1)],
        "rows.release" => &[(RowLeaving, 1)],
        "drain" | "leave" => &[(Leaving, 1), (RowLeaving, 1)],
        "deliver" | "judge" | "inbox" => &[(Shards, 4), (Rows, 4), (Successor, 2)],
        "hot" | "emit" | "emit.insert" | "emit.commit" => &[(Shards, 3), (Rows, 3)],
        // A point that is new here is never passed, most likely, and the case says so.
        _ => &[(Shards, 1)],
    }
}

/// Whether a database has such a step.
pub(super) fn is_there(point: &str, server: Server) -> bool {
    match server {
        // One statement, with nothing inside.
        Server::Postgres => !matches!(point, "settle.inside" | "operate.inside"),
        Server::Mysql => true,
        // There is one shard, which is given back by leaving.
        Server::Sqlite => !matches!(point, "release.before" | "release.after"),
    }
}

/// Whether a panic there ends the relay, or the process: then others go on.
pub(super) fn is_end_of_relay(point: &str) -> bool {
    let engine = ["hot.taken", "judge", "settle.taken", "rows.settle.taken"];
    engine.contains(&point) || point.starts_with("join.")
}

impl Situation {
    pub(super) const fn name(self) -> &'static str {
        match self {
            Shards => "by shards",
            Rows => "by rows",
            Successor => "successor",
            RowSuccessor => "successor by rows",
            Leaving => "leaving",
            RowLeaving => "leaving by rows",
            Sharing => "sharing",
            Purging => "purging",
            Operating => "operating",
            Migrating => "migrating",
        }
    }

    const fn is_by_rows(self) -> bool {
        matches!(self, Rows | RowSuccessor | RowLeaving)
    }

    /// Whether somebody has to die first.
    pub(super) const fn has_successor(self) -> bool {
        matches!(self, Successor | RowSuccessor)
    }

    pub(super) const fn is_leaving(self) -> bool {
        matches!(self, Leaving | RowLeaving)
    }

    pub(super) fn settings(self) -> RelaySettings {
        let is_purging = self == Purging;
        RelaySettings {
            claim: if self.is_by_rows() { ClaimMode::Rows } else { ClaimMode::Shards },
            lease: LEASE,
            delivery_timeout: LEASE / 2,
            margin: LEASE / 10,
            poll: Duration::from_millis(20),
            sweep: Duration::from_millis(200),
            workers: NonZeroU32::new(4).expect("not zero"),
            max_unsettled: NonZeroU32::new(MAX_UNSETTLED).expect("not zero"),
            // A listener that a busy machine keeps waiting is called until it answers.
            max_attempts: NonZeroU32::MAX,
            retention_done: Duration::from_millis(if is_purging { 50 } else { 0 }),
            purge_every: if is_purging { LEASE / 8 } else { LEASE * 1000 },
            // Less than it takes to deliver all, so that something is given back.
            drain: if self.is_leaving() { LEASE * 3 / 4 } else { LEASE * 20 },
            ..RelaySettings::default()
        }
    }

    /// Long enough for something to be under way, and to wait, when it has to.
    pub(super) const fn listener(self) -> ListenerBehavior {
        let rest = match self {
            Shards | Sharing | Purging | Operating | Migrating => 5,
            Successor => 40,
            Rows | RowSuccessor => 80,
            Leaving | RowLeaving => 120,
        };
        ListenerBehavior::Effect { rest, fails: matches!(self, Operating) }
    }
}
