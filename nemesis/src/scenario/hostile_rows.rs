//! A table that other programs and operators fill as badly as they can, while relays deliver
//! well-formed events from it.

mod locked_row;
mod rows;
mod steady_load;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::store::{Action, ClaimMode, Filter};
use pillarbox::{Admin, Headers, MAX_HEADER, Outbox, RelaySettings};

use self::rows::{FOLLOWERS, LATER, Row};
use self::steady_load::{Commits, p99};
use super::environment::{Environment, wait_until};
use crate::Result;
use crate::bank::{RowCount, TxEnd};
use crate::check::Faults;
use crate::finding::Finding;
use crate::process::{Process, Usage};
use crate::settings::long_lease;

/// How the table writes that a row is done, or holds its key.
const DONE: i16 = 1;
const HELD: i16 = 4;

/// The most memory that a relay may ever have had, in KiB.
const MEMORY: u64 = 256 * 1024;

/// The largest that the headers of an event may be together, in bytes of JSON.
const HEADERS: usize = 64 * 1024;

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let settings = settings(env);
    let mut found = vec![Finding::info("claim", format!("{:?}", settings.claim))];
    found.extend(locked_row::run(env, &settings).await?);
    start_over(env).await?;
    let calm = undisturbed(env).await?;
    start_over(env).await?;
    let attack = Box::pin(Attack::run(env)).await?;
    found.extend(attack.findings(calm));
    Ok(found)
}

/// By shards or by rows, as the seed says: relays read a table in two ways.
fn settings(env: &Environment) -> RelaySettings {
    let claim = if env.options.seed % 2 == 1 { ClaimMode::Shards } else { ClaimMode::Rows };
    // Rows that are done stay, to be counted.
    RelaySettings { claim, retention_done: Duration::from_secs(3600), ..long_lease() }
}

/// Empties the tables and the log.
async fn start_over(env: &Environment) -> Result {
    env.deployment.bank.clear().await?;
    env.deployment.bank.foreign_client().await?.run("update account set n = 0, g = 0").await?;
    Ok(std::fs::write(env.deployment.log(), "")?)
}

fn relays(env: &Environment) -> Result<Vec<Process>> {
    ["r1", "r2"]
        .iter()
        .map(|incarnation| env.relay(&env.relay_config(incarnation, &settings(env))))
        .collect()
}

/// The load alone: the latency that the attack is compared with.
async fn undisturbed(env: &Environment) -> Result<Duration> {
    let relays = relays(env)?;
    let commits = load(env, &AtomicBool::new(true)).await?;
    env.drained().await?;
    for relay in relays {
        relay.stop().await?;
    }
    Ok(p99(&commits, &env.deployment.read_log()?))
}

async fn load(env: &Environment, over: &AtomicBool) -> Result<Commits> {
    let transactions = env.options.scale.pick(200, 1_000, 3_000);
    steady_load::run(&env.deployment.bank, env.accounts / 2, transactions, over).await
}

/// What came of the hostile rows, and of the events beside them.
struct Attack {
    /// Rows written and refused, by what is wrong with them.
    written: BTreeMap<&'static str, (i64, i64)>,
    /// Where the rows were when no more of them were settled.
    settled: Vec<RowCount>,
    /// What waited after an operator had skipped every held row.
    stuck: i64,
    burdened: usize,
    usage: Usage,
    p99: Duration,
    panics: usize,
    report: crate::check::Report,
}

impl Attack {
    async fn run(env: &Environment) -> Result<Self> {
        let relays = relays(env)?;
        let over = AtomicBool::new(false);
        let attack = async {
            let (written, burdened) = tokio::try_join!(write(env), burden(env))?;
            let settled = settled(env).await?;
            over.store(true, Ordering::Relaxed);
            Ok((written, burdened, settled))
        };
        let ((written, burdened, settled), commits) = tokio::try_join!(attack, load(env, &over))?;
        let stuck = skip(env).await?;
        let mut usage = Usage::default();
        for relay in relays {
            usage = usage.max(relay.usage()?);
            relay.stop().await?;
        }
        let p99 = p99(&commits, &env.deployment.read_log()?);
        let errors = std::fs::read_to_string(env.deployment.errors())?;
        let panics = errors.matches("panicked at").count();
        let report = env.report(&Faults::default()).await?;
        Ok(Self { written, settled, stuck, burdened, usage, p99, panics, report })
    }

    fn findings(&self, calm: Duration) -> Vec<Finding> {
        let mut found: Vec<Finding> = self.written.keys().map(|kind| self.of_kind(kind)).collect();
        let report = &self.report;
        let what = "held and blocked rows after an operator skipped all";
        found.push(Finding::guarantee(what, self.stuck, "0", self.stuck == 0));
        found.push(Finding::must_happen("events with 64 KiB of headers", self.burdened));
        found.push(Finding::info("well-formed events", report.committed));
        found.push(Finding::must_be_zero("of them lost", report.lost));
        found.push(Finding::must_be_zero("ghosts", report.ghosts));
        found.push(Finding::must_be_zero("duplicates", report.duplicates));
        found.push(Finding::must_be_zero(
            "first deliveries of a key out of order",
            report.inversions,
        ));
        found.push(Finding::must_be_zero("panics", self.panics));
        let memory = format!("{} MiB", self.usage.memory / 1024);
        let fits = self.usage.memory <= MEMORY;
        found.push(Finding::guarantee("most memory of a relay", memory, "<= 256 MiB", fits));
        let value = format!("{} of {}", millis(self.p99), millis(calm));
        let is_soon = self.p99 <= 3 * calm;
        found.push(Finding::target(
            "p99 latency, with and without such rows",
            value,
            "<= 3 x",
            is_soon,
        ));
        found
    }

    /// Every row is done, or dead or held with its cause; what is never due waits.
    fn of_kind(&self, kind: &str) -> Finding {
        let (written, refused) = self.written.get(kind).copied().unwrap_or_default();
        let row_counts = || self.settled.iter().filter(|it| it.tenant == kind);
        let rows = |statuses: &[i16]| -> i64 {
            row_counts().filter(|it| statuses.contains(&it.status)).map(|it| it.rows).sum()
        };
        let (open, done, dead, held) = (rows(&[0, 2]), rows(&[DONE]), rows(&[3]), rows(&[HELD]));
        let gone = written - open - done - dead - held;
        let without_error: i64 =
            row_counts().filter(|it| it.status > 2).map(|it| it.without_error).sum();
        let (goal, met) = match kind {
            LATER => ("they wait", open == written),
            FOLLOWERS => ("they wait or are done", gone + dead + held == 0),
            _ => ("none open", gone + open == 0 && without_error == 0),
        };
        let mut value = format!("{done} done, {dead} dead, {held} held, {open} open");
        let others = [
            (gone, "gone"),
            (without_error, "without a cause"),
            (refused, "refused by the database"),
        ];
        for (count, what) in others {
            if count != 0 {
                value += &format!(", {count} {what}");
            }
        }
        Finding::guarantee(format!("{kind}, {written} rows"), value, goal, met)
    }
}

fn millis(time: Duration) -> String {
    format!("{:.1} ms", time.as_secs_f64() * 1000.0)
}

/// Inserts every hostile row, and replaces some again and again.
async fn write(env: &Environment) -> Result<BTreeMap<&'static str, (i64, i64)>> {
    let server = env.deployment.server;
    let mut program = env.deployment.bank.foreign_client().await?;
    let replaced = rows::replaced(env.options.scale.pick(12, 100, 500));
    let mut all: Vec<Row> = rows::small(server);
    all.extend(replaced.iter().cloned());
    all.extend(rows::large(server, env.options.scale.pick(15, 30, 100)));
    let mut written: BTreeMap<&'static str, (i64, i64)> = BTreeMap::new();
    for row in &all {
        let counts = written.entry(row.0).or_default();
        if program.run(&rows::insert(row)).await? {
            counts.0 += 1;
        } else {
            counts.1 += 1;
        }
    }
    for round in 0..3 {
        for (number, row) in replaced.iter().enumerate() {
            program.run(&rows::replace(row)[(number + round) % 3]).await?;
        }
    }
    Ok(written)
}

/// Emits events with the largest headers there may be. Returns how many.
async fn burden(env: &Environment) -> Result<usize> {
    let (first, outbox, headers) = (env.accounts / 2, Outbox::new(), largest_headers()?);
    let transactions = env.options.scale.pick(10, 50, 200);
    for turn in 0..transactions {
        let start = first + turn * 5 % (first - 5);
        let accounts: Vec<i64> = (start..start + 5).collect();
        let bank = &env.deployment.bank;
        while let Err(error) =
            bank.transact_with_headers(&outbox, &accounts, TxEnd::Commit, &headers).await
        {
            if !error.is_transient() {
                return Err(error.into());
            }
        }
    }
    Ok(usize::try_from(transactions * 10)?)
}

/// Headers whose JSON has exactly as many bytes as are allowed.
fn largest_headers() -> Result<Headers> {
    let mut headers = Headers::new();
    for name in 'a'.. {
        let used = headers.to_json().map_or(1, |json| json.len());
        // What a header adds besides its value: `"a":"",`.
        let Some(room) = (HEADERS - used).checked_sub(7).filter(|room| *room > 0) else { break };
        headers.insert(name.to_string(), "x".repeat(room.min(MAX_HEADER - 1)))?;
    }
    Ok(headers)
}

/// Waits until every row is settled that will be, and tells where all of them are then.
async fn settled(env: &Environment) -> Result<Vec<RowCount>> {
    let waits =
        |it: &RowCount| [0, 2].contains(&it.status) && ![LATER, FOLLOWERS].contains(&&*it.tenant);
    let timeout = Duration::from_secs(env.options.scale.pick(60, 120, 240));
    // What is still open then is counted.
    let _ = wait_until(timeout, async || {
        Ok(!env.deployment.bank.row_counts().await?.iter().any(waits))
    })
    .await;
    Ok(env.deployment.bank.row_counts().await?)
}

/// Lets every held key go on, and counts the rows that are held or behind them nevertheless.
async fn skip(env: &Environment) -> Result<i64> {
    let admin = Admin::new(env.deployment.store.clone());
    let _ = admin.operate_matching(Action::Skip, Filter::default()).run().await?;
    let stuck = async || -> Result<i64> {
        let row_counts = env.deployment.bank.row_counts().await?;
        let is_stuck =
            |it: &&RowCount| it.status == HELD || (it.tenant == FOLLOWERS && it.status != DONE);
        Ok(row_counts.iter().filter(is_stuck).map(|it| it.rows).sum())
    };
    let timeout = Duration::from_secs(env.options.scale.pick(60, 60, 120));
    let _ = wait_until(timeout, async || Ok(stuck().await? == 0)).await;
    stuck().await
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_largest_headers_fill_their_limit() {
        let json = largest_headers().unwrap().to_json().unwrap();

        assert_eq!(json.len(), HEADERS);
    }
}
