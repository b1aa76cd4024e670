//! The roles of processes. Those of the crash point scenario run a short script each.

use std::sync::Arc;
use std::time::Duration;

use clap::ValueEnum;
use pillarbox::store::{Action, Filter};
use pillarbox::{Admin, ErrorKind, Outbox};
use tokio::signal::unix::{SignalKind, signal};

use crate::Result;
use crate::bank::{Bank, TxEnd};
use crate::config::ProcessConfig;
use crate::deployment::attach;
use crate::log::{Entry, Log};
use crate::relay::{attached, start, with_crash_points};
use crate::scenario::wait_until;

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub enum Role {
    /// Relays, and writes if its configuration says so.
    Relay,
    /// Writes without a relay.
    Write,
    /// Relays and writes a short script, until SIGTERM.
    RelayAndWrite,
    /// Writes a short script and stops while deliveries are in progress.
    StopUnderLoad,
    /// Replays all dead letters.
    Replay,
    /// Creates the tables.
    Migrate,
}

impl Role {
    /// Its name on the command line.
    pub fn name(self) -> String {
        self.to_possible_value().map(|value| value.get_name().to_owned()).unwrap_or_default()
    }
}

/// The number of accounts.
pub const ACCOUNTS: i64 = 4;

/// The number of transactions, including those that are rolled back.
const TURNS: i64 = 10;

/// How long the writer sleeps after each, so that the relay always has something to do.
const REST: Duration = Duration::from_millis(10);

/// The number of transactions over all accounts right before a stop.
const BURST: usize = 3;

/// How long a relay may take to acquire shards.
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(240);

/// How often an application retries a transaction.
const ATTEMPTS: usize = 50;

/// How long it waits between attempts.
const AGAIN: Duration = Duration::from_millis(50);

/// Runs a role of the crash point scenario to its end.
///
/// # Errors
/// Any failure but the crash that was ordered.
pub async fn run(role: Role, config: ProcessConfig) -> Result {
    match role {
        Role::RelayAndWrite => relay_and_write(config).await,
        Role::StopUnderLoad => stop_under_load(config).await,
        Role::Replay => replay(&config).await,
        Role::Migrate => migrate(&config).await,
        Role::Relay | Role::Write => Err("not a role of the crash point scenario".into()),
    }
}

async fn relay_and_write(config: ProcessConfig) -> Result {
    let mut end = signal(SignalKind::terminate())?;
    let log = Arc::new(Log::open(&config.log, &config.incarnation)?);
    let (store, bank) = attached(&config.url).await?;
    let (handle, outbox) = start(&store, &bank, &log, &config).await?;
    wait_until(ACQUIRE_TIMEOUT, async || Ok(store.stats().await?.owned_shards > 0)).await?;
    write(&bank, &outbox).await?;
    log.append(&Entry::WritesFinished)?;
    end.recv().await;
    handle.stop().await?;
    Ok(log.append(&Entry::Stopped)?)
}

/// Stops while some events are in delivery and others wait for a worker.
async fn stop_under_load(config: ProcessConfig) -> Result {
    let log = Arc::new(Log::open(&config.log, &config.incarnation)?);
    let (store, bank) = attached(&config.url).await?;
    let (handle, outbox) = start(&store, &bank, &log, &config).await?;
    wait_until(ACQUIRE_TIMEOUT, async || Ok(store.stats().await?.owned_shards > 0)).await?;
    write(&bank, &outbox).await?;
    let all: Vec<i64> = (0..ACCOUNTS).collect();
    for _ in 0..BURST {
        bank.transact(&outbox, &all, TxEnd::Commit).await?;
    }
    handle.stop().await?;
    Ok(log.append(&Entry::Stopped)?)
}

async fn replay(config: &ProcessConfig) -> Result {
    let (store, _) = attached(&config.url).await?;
    let store = with_crash_points(&store, config.settings.claim);
    Admin::new(store).operate_matching(Action::Replay, Filter::default()).run().await?;
    Ok(())
}

async fn migrate(config: &ProcessConfig) -> Result {
    let (store, _) = attach(&config.url).await?;
    Ok(store.migrate().await?)
}

/// One transaction after the other, over all accounts in turn.
async fn write(bank: &Bank, outbox: &Outbox) -> Result {
    for turn in 0..TURNS {
        let step = tokio::spawn(step(bank.clone(), outbox.clone(), turn));
        // A panic is the ordered crash; the accounts tell whether the transaction committed.
        if let Ok(failed) = step.await {
            failed?;
        }
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

/// Retries a transaction that certainly was not committed.
async fn step(bank: Bank, outbox: Outbox, turn: i64) -> pillarbox::Result<()> {
    let accounts = accounts(turn);
    for _ in 0..ATTEMPTS {
        let done = if turn % 2 == 0 {
            bank.transact(&outbox, &accounts, end(turn)).await
        } else {
            bank.transact_in_own_tx(&outbox, &accounts, end(turn)).await
        };
        match done {
            Err(error) if error.is_transient() => tokio::time::sleep(AGAIN).await,
            Err(error) if error.kind() == ErrorKind::CommitUnknown => return Ok(()),
            done => return done,
        }
    }
    Ok(())
}

/// One or two of them, in rising order, so that no two transactions wait for each other.
fn accounts(turn: i64) -> Vec<i64> {
    let mut accounts = vec![turn % ACCOUNTS, (turn * 3 + turn / 2 % 2) % ACCOUNTS];
    accounts.sort_unstable();
    accounts.dedup();
    accounts
}

const fn end(turn: i64) -> TxEnd {
    match turn {
        3 => TxEnd::Rollback,
        6 => TxEnd::Drop,
        _ => TxEnd::Commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_writes_to_every_account_more_than_once() {
        let written = (0..TURNS).filter(|turn| end(*turn) == TxEnd::Commit).flat_map(accounts);
        let written: Vec<i64> = written.collect();

        for account in 0..ACCOUNTS {
            assert!(written.iter().filter(|it| **it == account).count() > 1, "{written:?}");
        }
        assert!((5..=15).contains(&written.len()), "{written:?}");
    }
}
