//! The scenarios: each tries to break one part of the promise and reports its findings.

mod clock_skew;
mod combined_faults;
mod connection_cuts;
#[cfg(feature = "crash-points")]
mod crash_points;
mod crash_recovery;
mod environment;
mod fault;
mod full_disk;
mod handover;
mod hostile_rows;
mod late_verdict;
mod memory;
mod noisy_neighbour;
mod pgbouncer;
mod process_faults;
mod supervised;

use std::time::Duration;

use clap::ValueEnum;

pub use self::environment::{Environment, now, wait_until};
use crate::Result;
use crate::deployment::{Server, is_required};
use crate::disk::Disk;
use crate::finding::Finding;
use crate::pgbouncer as pgbouncer_process;
use crate::process::Program;

/// The size of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Scale {
    /// Seconds, for a test: checks the guarantees; the speeds mean nothing.
    Tiny,
    /// A minute or so.
    Quick,
    /// As large as the goals say.
    Full,
}

impl Scale {
    /// Picks one of three numbers.
    pub const fn pick<T: Copy>(self, tiny: T, quick: T, full: T) -> T {
        match self {
            Self::Tiny => tiny,
            Self::Quick => quick,
            Self::Full => full,
        }
    }
}

/// A test scenario.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
#[value(rename_all = "snake_case")]
pub enum Scenario {
    /// Kills, pauses and restarts relays under load.
    ProcessFaults,
    /// Runs the same load without faults, with the local queue on.
    NoFaults,
    /// Restarts relays one after the other under load.
    RollingRestart,
    /// Measures how soon another relay takes over after a kill.
    Takeover,
    /// Measures how fast a lone relay drains its backlog after a kill.
    CrashRecovery,
    /// Measures what failing or slow events cost the others.
    NoisyNeighbour,
    /// Puts PgBouncer in transaction mode between the processes and the server.
    #[value(name = "pgbouncer")]
    PgBouncer,
    /// Shifts clocks by an hour.
    ClockSkew,
    /// Measures memory while a slow listener works through a long backlog.
    Memory,
    /// Measures how soon a relay with a large backlog delivers its first event.
    LargeBacklog,
    /// Cuts a connection at every chunk.
    ConnectionCuts,
    /// Crashes a process at every named crash point.
    CrashPoints,
    /// Injects all kinds of faults at once.
    CombinedFaults,
    /// Fills the disk again and again.
    FullDisk,
    /// Writes the worst rows that the database accepts.
    HostileRows,
}

impl Scenario {
    /// All scenarios.
    pub fn all() -> &'static [Self] {
        Self::value_variants()
    }

    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }

    /// Whether it can run on this database. All processes of an SQLite file share the clock of
    /// their machine, and there is no connection to cut.
    pub const fn is_for(self, server: Server) -> bool {
        match server {
            Server::Postgres => true,
            Server::Mysql => !matches!(self, Self::PgBouncer),
            Server::Sqlite => {
                !matches!(self, Self::PgBouncer | Self::ClockSkew | Self::ConnectionCuts)
            }
        }
    }

    /// Runs it in a deployment of its own, which is removed unless a guarantee was broken.
    ///
    /// # Errors
    /// When the run could not be completed.
    pub async fn run(self, options: &RunOptions) -> Result<Vec<Finding>> {
        if self == Self::PgBouncer && !pgbouncer_process::is_installed() {
            let missing = "pgbouncer is not installed (Debian package `pgbouncer`)";
            return if is_required("pgbouncer") { Err(missing.into()) } else { skip(missing) };
        }
        if self == Self::FullDisk
            && let Err(reason) = Disk::is_available()
        {
            return skip(&format!("no disk to fill: {reason}"));
        }
        let env = Environment::open(options, self).await?;
        let found = match self {
            Self::ProcessFaults => process_faults::run(&env).await,
            Self::NoFaults => handover::no_faults(&env).await,
            Self::RollingRestart => handover::rolling_restart(&env).await,
            Self::Takeover => handover::takeover(&env).await,
            Self::CrashRecovery => crash_recovery::run(&env).await,
            Self::NoisyNeighbour => noisy_neighbour::run(&env).await,
            Self::PgBouncer => pgbouncer::run(&env).await,
            Self::ClockSkew => clock_skew::run(&env).await,
            Self::Memory => memory::growth(&env).await,
            Self::LargeBacklog => memory::large_backlog(&env).await,
            Self::ConnectionCuts => connection_cuts::run(&env).await,
            Self::CrashPoints => crash_points(&env).await,
            Self::CombinedFaults => combined_faults::run(&env).await,
            Self::FullDisk => full_disk::run(&env).await,
            Self::HostileRows => hostile_rows::run(&env).await,
        };
        let kept = env.deployment.path().display().to_string();
        let found = found.map_err(|error| format!("{error} (kept: {kept})"))?;
        env.close(&found).await?;
        Ok(found)
    }
}

#[cfg(feature = "crash-points")]
async fn crash_points(env: &Environment) -> Result<Vec<Finding>> {
    crash_points::run(env).await
}

#[cfg(not(feature = "crash-points"))]
#[expect(clippy::unused_async, reason = "stands in for one that waits")]
async fn crash_points(_: &Environment) -> Result<Vec<Finding>> {
    Err("there are no crash points in this build: build it with `--features crash-points`".into())
}

fn skip(reason: &str) -> Result<Vec<Finding>> {
    Ok(vec![Finding::info("skipped", reason)])
}

/// The options of one run of a scenario.
#[derive(Clone, Debug)]
pub struct RunOptions {
    /// The kind of database.
    pub server: Server,
    /// The URL of the server; empty for SQLite.
    pub base: String,
    /// The size of the run.
    pub scale: Scale,
    /// Seeds every random choice.
    pub seed: u64,
    /// How long `combined_faults` runs, if not as the scale says.
    pub seconds: Option<u64>,
    /// Limits `combined_faults` to kills of relays, until there were this many.
    pub kills: Option<u64>,
    /// How many relays `combined_faults` starts, if not as the seed says.
    pub relays: Option<u64>,
    /// The program of the relay processes.
    pub program: Program,
}

/// A run without progress for this long has stalled.
pub const PROGRESS_TIMEOUT: Duration = Duration::from_secs(240);
