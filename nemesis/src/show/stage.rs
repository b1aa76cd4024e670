//! What every show needs: a place, relay processes, and waiting for something to be true.

use std::time::Duration;

use pillarbox::RelaySettings;
use tokio::time::Instant;

use super::{PATIENCE, Scale, Set, Show};
use crate::Result;
use crate::check::{Faults, Report};
use crate::log::Tail;
use crate::orders::{Load, Manner, Orders, Trouble, Writing};
use crate::place::Place;
use crate::process::{Process, Program};
use crate::table::{Finding, Verdict};

/// Where a show takes place.
#[derive(Debug)]
pub struct Stage {
    /// Its database and directory.
    pub place: Place,
    /// Where its server is, for a show that needs more places.
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
    /// How many accounts there are, each a key.
    pub accounts: i64,
}

impl Stage {
    pub(super) async fn open(set: &Set, show: Show) -> Result<Self> {
        let accounts = set.scale.pick(40, 200, 1000);
        let place = match show {
            Show::Disk => {
                Place::on_small_disk(set.server, &set.base, show.name(), accounts).await?
            }
            Show::Pooler => Place::behind_pooler(&set.base, show.name(), accounts).await?,
            _ => Place::open(set.server, &set.base, show.name(), accounts).await?,
        };
        let (base, program) = (set.base.clone(), set.program.clone());
        let Set { scale, seed, seconds, kills, relays, .. } = *set;
        Ok(Self { place, base, scale, seed, seconds, kills, relays, program, accounts })
    }

    /// Kept if something is wrong with what was found, to be looked at.
    pub(super) async fn close(self, found: &[Finding]) -> Result {
        if found.iter().any(|it| matches!(it.verdict, Verdict::Broken | Verdict::Void)) {
            eprintln!("kept: {}", self.place.path().display());
            return Ok(());
        }
        self.place.close().await
    }

    /// Orders for a relay that delivers and does nothing else.
    pub fn orders(&self, life: &str, settings: &RelaySettings) -> Orders {
        Orders {
            url: self.place.url.clone(),
            log: self.place.log(),
            life: life.to_owned(),
            settings: settings.clone(),
            listener: Manner::Plain,
            trouble: Trouble::None,
            writing: None,
            backoff: 60_000,
            ahead: 0,
        }
    }

    /// Starts a relay process.
    ///
    /// # Errors
    /// When it does not start.
    pub fn relay(&self, orders: &Orders) -> Result<Process> {
        self.program.start("relay", orders, &self.place.errors())
    }

    /// A load for writers of this process.
    pub const fn writing(&self, transactions: u64) -> Writing {
        let accounts = self.accounts;
        let load = Load::Even;
        Writing { accounts, transactions, writers: 4, batch: 5, rest: 0, first: 0, load }
    }

    /// Follows the log.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn tail(&self) -> Result<Tail> {
        Tail::open(&self.place.log())
    }

    /// Waits until no event waits any more.
    ///
    /// # Errors
    /// When that takes too long.
    pub async fn drained(&self) -> Result {
        let drained = wait(PATIENCE, async || Ok(self.place.pending().await? == 0)).await;
        let stats = self.place.store.stats().await;
        drained.map_err(|error| format!("something is stuck ({error}): {stats:?}").into())
    }

    /// How many steps were committed so far, whoever wrote them.
    ///
    /// # Errors
    /// When the accounts cannot be read.
    pub async fn steps(&self) -> Result<i64> {
        Ok(self.place.bank.truth().await?.iter().map(|account| account.steps).sum())
    }

    /// Compares the accounts with the log.
    ///
    /// # Errors
    /// When either cannot be read.
    pub async fn report(&self, faults: &Faults) -> Result<Report> {
        let truth = self.place.bank.truth().await?;
        let log = self.place.read_log()?;
        let report = Report::of(&truth, &log, faults);
        eprint!("{}", report.excerpt(&log));
        Ok(report)
    }
}

/// Looks again and again until something is true.
///
/// # Errors
/// When it is not in time, or cannot be told.
pub async fn wait(patience: Duration, mut reached: impl AsyncFnMut() -> Result<bool>) -> Result {
    let deadline = now() + patience;
    while !reached().await? {
        if now() > deadline {
            return Err(format!("waited for {patience:?} in vain").into());
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
