//! What every scenario needs: a deployment, relay processes, and waiting for a condition.

use std::time::Duration;

use pillarbox::RelaySettings;
use tokio::time::Instant;

use super::{PROGRESS_TIMEOUT, RunOptions, Scenario};
use crate::Result;
use crate::check::{Faults, Report};
use crate::config::{Load, ProcessConfig, WriteLoad};
use crate::deployment::Deployment;
use crate::finding::{Finding, Verdict};
use crate::log::Tail;
use crate::process::Process;
use crate::role::Role;

/// The environment of one run of a scenario.
#[derive(Debug)]
pub struct Environment {
    /// Its database and directory.
    pub deployment: Deployment,
    /// The options of the run.
    pub options: RunOptions,
    /// The number of accounts, each a key.
    pub accounts: i64,
}

impl Environment {
    pub(super) async fn open(options: &RunOptions, scenario: Scenario) -> Result<Self> {
        let RunOptions { server, base, scale, .. } = options;
        let (accounts, name) = (scale.pick(40, 200, 1000), &*scenario.name());
        let deployment = match scenario {
            Scenario::FullDisk => Deployment::on_small_disk(*server, base, name, accounts).await?,
            Scenario::PgBouncer => Deployment::behind_pgbouncer(base, name, accounts).await?,
            _ => Deployment::open(*server, base, name, accounts).await?,
        };
        Ok(Self { deployment, options: options.clone(), accounts })
    }

    /// Removes the deployment, unless a finding is bad: then it is kept for inspection.
    pub(super) async fn close(self, found: &[Finding]) -> Result {
        if found.iter().any(|it| matches!(it.verdict, Verdict::Broken | Verdict::Invalid)) {
            eprintln!("kept: {}", self.deployment.path().display());
            return Ok(());
        }
        self.deployment.close().await
    }

    /// ProcessConfig for a relay that delivers and does nothing else.
    pub fn relay_config(&self, incarnation: &str, settings: &RelaySettings) -> ProcessConfig {
        ProcessConfig::relay(&self.deployment, incarnation, settings.clone())
    }

    /// Starts a relay process.
    ///
    /// # Errors
    /// When it does not start.
    pub fn relay(&self, config: &ProcessConfig) -> Result<Process> {
        self.options.program.start(Role::Relay, config, &self.deployment.errors())
    }

    /// A load of this many transactions.
    pub const fn write_load(&self, transactions: u64) -> WriteLoad {
        let accounts = self.accounts;
        let load = Load::Even;
        WriteLoad { accounts, transactions, writers: 4, batch: 5, rest: 0, first: 0, load }
    }

    /// Follows the log.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn tail(&self) -> Result<Tail> {
        Tail::open(&self.deployment.log())
    }

    /// Waits until no event is pending.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn drained(&self) -> Result {
        let drained =
            wait_until(PROGRESS_TIMEOUT, async || Ok(self.deployment.pending().await? == 0)).await;
        let stats = self.deployment.store.stats().await;
        drained.map_err(|error| format!("events are not delivered ({error}): {stats:?}").into())
    }

    /// The number of ordered events committed so far, by all processes.
    ///
    /// # Errors
    /// When the accounts cannot be read.
    pub async fn ordered_events(&self) -> Result<i64> {
        Ok(self.deployment.bank.committed().await?.iter().map(|account| account.ordered).sum())
    }

    /// Compares the accounts with the log.
    ///
    /// # Errors
    /// When either cannot be read.
    pub async fn report(&self, faults: &Faults) -> Result<Report> {
        let committed = self.deployment.bank.committed().await?;
        let log = self.deployment.read_log()?;
        let report = Report::of(&committed, &log, faults);
        eprint!("{}", report.excerpt(&log));
        Ok(report)
    }
}

/// Polls a condition until it is true.
///
/// # Errors
/// When it does not become true in time, or cannot be evaluated.
pub async fn wait_until(
    timeout: Duration,
    mut reached: impl AsyncFnMut() -> Result<bool>,
) -> Result {
    let deadline = now() + timeout;
    while !reached().await? {
        if now() > deadline {
            return Err(format!("timed out after {timeout:?}").into());
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    Ok(())
}

/// The monotonic now.
#[expect(clippy::disallowed_methods, reason = "real processes live in real time")]
pub fn now() -> Instant {
    Instant::now()
}
