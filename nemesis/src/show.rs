//! The shows: each tries to break one part of the promise, and tells what came out.

mod clocks;
mod disk;
mod faults;
mod handover;
mod hostile;
mod late;
#[cfg(feature = "crash-points")]
mod matrix;
mod memory;
mod neighbour;
mod pooler;
mod restart;
mod slot;
mod stage;
mod storm;
mod sweep;
mod torment;

use std::time::Duration;

pub use self::stage::{Stage, now, wait};
use crate::Result;
use crate::bouncer;
use crate::disk::Disk;
use crate::place::{Server, is_required};
use crate::process::Program;
use crate::table::Finding;

/// How much of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds, for a test: the promises can be checked, the speeds mean nothing.
    Tiny,
    /// A minute or so.
    Quick,
    /// As large as the goals say.
    Full,
}

impl Scale {
    /// One of three numbers.
    pub const fn pick<T: Copy>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// One show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Show {
    /// Relays killed, paused and restarted under load.
    Faults,
    /// The same load and nothing done to the relays, with the hot path on.
    Calm,
    /// Relays restarted one after the other under load.
    Rolling,
    /// How soon others take over after a kill.
    Takeover,
    /// How fast a lone relay drains after a kill.
    Restart,
    /// What trouble with some events costs the others.
    Neighbour,
    /// Relays and writers behind PgBouncer in transaction mode.
    Pooler,
    /// Clocks that are hours apart.
    Clocks,
    /// Memory while a slow listener works through a long backlog.
    Memory,
    /// How soon a relay with a large backlog delivers.
    Backlog,
    /// Connections cut at every chunk.
    Sweep,
    /// A crash at every named point.
    Matrix,
    /// Everything at once.
    Storm,
    /// A disk that is full, again and again.
    Disk,
    /// Rows as bad as other programs and operators can write them.
    Hostile,
}

impl Show {
    /// All of them.
    pub const ALL: [Self; 15] = [
        Self::Faults,
        Self::Calm,
        Self::Rolling,
        Self::Takeover,
        Self::Restart,
        Self::Neighbour,
        Self::Pooler,
        Self::Clocks,
        Self::Memory,
        Self::Backlog,
        Self::Sweep,
        Self::Matrix,
        Self::Storm,
        Self::Disk,
        Self::Hostile,
    ];

    /// The word on the command line.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Faults => "faults",
            Self::Calm => "calm",
            Self::Rolling => "rolling",
            Self::Takeover => "takeover",
            Self::Restart => "restart",
            Self::Neighbour => "neighbour",
            Self::Pooler => "pooler",
            Self::Clocks => "clocks",
            Self::Memory => "memory",
            Self::Backlog => "backlog",
            Self::Sweep => "sweep",
            Self::Matrix => "matrix",
            Self::Storm => "storm",
            Self::Disk => "disk",
            Self::Hostile => "hostile",
        }
    }

    /// Whether it can be shown on this database. An SQLite file has no clock but that of the
    /// machine that all its processes run on, and no connection to be cut.
    pub const fn is_for(self, server: Server) -> bool {
        match server {
            Server::Postgres => true,
            Server::Mysql => !matches!(self, Self::Pooler),
            Server::Sqlite => !matches!(self, Self::Pooler | Self::Clocks | Self::Sweep),
        }
    }

    /// Runs it in a place of its own, which is removed if no promise was broken.
    ///
    /// # Errors
    /// When the run could not be carried through.
    pub async fn run(self, set: &Set) -> Result<Vec<Finding>> {
        if self == Self::Pooler && !bouncer::is_installed() {
            let missing = "pgbouncer is not installed (Debian package `pgbouncer`)";
            return if is_required("pgbouncer") { Err(missing.into()) } else { skip(missing) };
        }
        if self == Self::Disk
            && let Err(reason) = Disk::is_to_be_had()
        {
            return skip(&format!("no disk to fill: {reason}"));
        }
        let stage = Stage::open(set, self).await?;
        let found = match self {
            Self::Faults => faults::run(&stage).await,
            Self::Calm => handover::calm(&stage).await,
            Self::Rolling => handover::rolling(&stage).await,
            Self::Takeover => handover::takeover(&stage).await,
            Self::Restart => restart::run(&stage).await,
            Self::Neighbour => neighbour::run(&stage).await,
            Self::Pooler => pooler::run(&stage).await,
            Self::Clocks => clocks::run(&stage).await,
            Self::Memory => memory::flat(&stage).await,
            Self::Backlog => memory::backlog(&stage).await,
            Self::Sweep => sweep::run(&stage).await,
            Self::Matrix => crashes(&stage).await,
            Self::Storm => storm::run(&stage).await,
            Self::Disk => disk::run(&stage).await,
            Self::Hostile => hostile::run(&stage).await,
        };
        let kept = stage.place.path().display().to_string();
        let found = found.map_err(|error| format!("{error} (kept: {kept})"))?;
        stage.close(&found).await?;
        Ok(found)
    }
}

#[cfg(feature = "crash-points")]
async fn crashes(stage: &Stage) -> Result<Vec<Finding>> {
    matrix::run(stage).await
}

#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unused_async, reason = "stands in for one that waits")]
async fn crashes(_: &Stage) -> Result<Vec<Finding>> {
    Err("there are no crash points in this build: build it with `--features crash-points`".into())
}

fn skip(reason: &str) -> Result<Vec<Finding>> {
    Ok(vec![Finding::told("skipped", reason)])
}

/// What a show is given.
#[derive(Clone, Debug)]
pub struct Set {
    /// On which database.
    pub server: Server,
    /// Where that is.
    pub base: String,
    /// How much of it.
    pub scale: Scale,
    /// Whom to kill, and when.
    pub seed: u64,
    /// How long a storm lasts, if not as the scale says.
    pub seconds: Option<u64>,
    /// A storm of nothing but kills, until there were so many.
    pub kills: Option<u64>,
    /// How many relays a storm has, if not as the seed says.
    pub relays: Option<u64>,
    /// What relay processes run.
    pub program: Program,
}

/// A run that makes no progress for so long has stopped.
pub const PATIENCE: Duration = Duration::from_secs(240);
