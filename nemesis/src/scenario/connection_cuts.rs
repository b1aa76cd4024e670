//! One connection is cut at the first chunk that goes over it, in the next run at the second, and so
//! on until a run ends before there is anything to cut: every answer is lost once.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::{ErrorKind, Outbox, RelaySettings};

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, now, wait_until};
use crate::Result;
use crate::bank::{Bank, TxEnd};
use crate::check::{Faults, Report};
use crate::finding::Finding;
use crate::log::Log;
use crate::proxy::{Cut, Proxy, authority};
use crate::relay;
use crate::settings::short_lease;

/// What is written: one account once, and three accounts five times, which are two events and ten.
const LOADS: [(&str, &[i64]); 2] = [("one", &[0]), ("ten", &[0, 0, 1, 1, 2])];

/// An application asks so often before it gives up.
const ATTEMPTS: usize = 20;

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let stride = env.options.scale.pick(23, 5, 1);
    let mut swept = CutResults::default();
    for (name, accounts) in LOADS {
        for (word, cut) in [("before", Cut::Before as fn(u64) -> Cut), ("after", Cut::After)] {
            let mut number = 1;
            while swept.cut(env, &format!("{name}-{word}-{number}"), accounts, cut(number)).await? {
                number += stride;
                let report = env.report(&swept.faults).await?;
                if report.is_broken() {
                    return Ok(swept.findings(&report));
                }
            }
        }
    }
    Ok(swept.findings(&env.report(&swept.faults).await?))
}

/// What the cuts came to.
#[derive(Default)]
struct CutResults {
    faults: Faults,
    cuts: u64,
    unknown: u64,
    refused: u64,
    slowest: Duration,
    last: String,
}

impl CutResults {
    /// A relay and a writer behind one proxy, from their first connection to the last verdict.
    /// Returns whether there was something to cut.
    async fn cut(
        &mut self,
        env: &Environment,
        incarnation: &str,
        accounts: &[i64],
        cut: Cut,
    ) -> Result<bool> {
        let begun = now();
        let proxy = Proxy::start(authority(&env.deployment.url)?, Some(cut)).await?;
        let mut config = env.relay_config(incarnation, &settings());
        config.url = proxy.in_front_of(&env.deployment.url)?;
        let log = Arc::new(Log::open(&config.log, incarnation)?);
        let (store, bank) = relay::attached(&config.url).await?;
        let (handle, outbox) = relay::start(&store, &bank, &log, &config).await?;
        self.write(&bank, &outbox, accounts).await?;
        // A commit whose answer was lost may be on its way: what waits is known when it is over.
        env.deployment.bank.settled().await?;
        let drained =
            wait_until(PROGRESS_TIMEOUT, async || Ok(env.deployment.pending().await? == 0)).await;
        drained.map_err(|error| format!("{incarnation}: {error}"))?;
        handle.stop().await?;
        let (Cut::Before(number) | Cut::After(number)) = cut;
        let was_cut = proxy.chunks() >= number;
        if was_cut {
            self.cuts += 1;
            incarnation.clone_into(&mut self.last);
            self.faults.paused(incarnation);
            self.slowest = self.slowest.max(begun.elapsed());
        }
        Ok(was_cut)
    }

    /// Tries again what surely was not committed, as an application would.
    async fn write(&mut self, bank: &Bank, outbox: &Outbox, accounts: &[i64]) -> Result {
        for _ in 0..ATTEMPTS {
            match bank.transact(outbox, accounts, TxEnd::Commit).await {
                Err(error) if error.kind() == ErrorKind::CommitUnknown => {
                    self.unknown += 1;
                    return Ok(());
                }
                Err(error) if error.is_transient() => self.refused += 1,
                Err(error) => return Err(error.into()),
                Ok(()) => return Ok(()),
            }
        }
        Err("the database refuses again and again".into())
    }

    fn findings(&self, report: &Report) -> Vec<Finding> {
        vec![
            Finding::guarantee("connections cut", self.cuts, "> 0", self.cuts > 0),
            Finding::info("the last cut", &self.last),
            Finding::info("transactions that failed and were retried", self.refused),
            Finding::info("commits with an unknown outcome", self.unknown),
            Finding::info("events committed", report.committed),
            Finding::must_be_zero("lost", report.lost),
            Finding::must_be_zero("ghosts", report.ghosts),
            Finding::must_be_zero("first deliveries of a key out of order", report.inversions),
            Finding::info("duplicates", report.duplicates),
            Finding::must_be_zero("duplicates without a cut", report.unexplained),
            Finding::guarantee(
                "most duplicates of one cut",
                report.worst,
                "<= 10",
                report.worst <= 10,
            ),
            Finding::info(
                "longest from the start to the last verdict",
                format!("{:.1?}", self.slowest),
            ),
        ]
    }
}

fn settings() -> RelaySettings {
    RelaySettings {
        lease: Duration::from_secs(2),
        delivery_timeout: Duration::from_secs(1),
        ..short_lease()
    }
}
