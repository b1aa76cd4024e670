//! Actors: the processes of the crash matrix, each with a short script.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{Action, Filter};
use pillarbox::{Admin, ErrorKind, Outbox};
use tokio::signal::unix::{SignalKind, signal};

use crate::Result;
use crate::bank::{Bank, Fate};
use crate::log::{Entry, Log};
use crate::orders::Orders;
use crate::place::attach;
use crate::relay::{attached, start};
use crate::show::wait;

/// What an actor can be: one that relays and writes until SIGTERM, one that stops as soon as it has
/// written, an operator who replays all dead letters, and one that migrates.
pub const ROLES: [&str; 4] = ["act", "leave", "operate", "migrate"];

/// As many accounts are written to.
pub const ACCOUNTS: i64 = 4;

/// As many transactions, those that are taken back included.
const TURNS: i64 = 10;

/// How long the writer rests after each, so that the relay has something to do at every time.
const REST: Duration = Duration::from_millis(10);

/// As many transactions over all accounts right before a stop.
const BURST: usize = 3;

/// How long a relay may take to have shards.
const PATIENCE: Duration = Duration::from_secs(240);

/// An application asks so often before it gives up.
const ATTEMPTS: usize = 50;

/// And waits for so long in between.
const AGAIN: Duration = Duration::from_millis(50);

/// Plays a role to its end.
///
/// # Errors
/// What goes wrong beside the crash that was ordered.
pub async fn run(role: &str, orders: Orders) -> Result {
    match role {
        "act" => act(orders).await,
        "leave" => leave(orders).await,
        "operate" => operate(&orders).await,
        _ => migrate(&orders).await,
    }
}

async fn act(orders: Orders) -> Result {
    let mut end = signal(SignalKind::terminate())?;
    let log = Arc::new(Log::open(&orders.log, &orders.life)?);
    let (store, bank) = attached(&orders.url).await?;
    let (handle, outbox) = start(&store, &bank, &log, &orders).await?;
    wait(PATIENCE, async || Ok(store.stats().await?.owned_shards > 0)).await?;
    write(&bank, &outbox).await?;
    log.note(&Entry::Wrote)?;
    end.recv().await;
    handle.stop().await?;
    Ok(log.note(&Entry::Stopped)?)
}

/// Something is in delivery, and something waits for a worker when it stops.
async fn leave(orders: Orders) -> Result {
    let log = Arc::new(Log::open(&orders.log, &orders.life)?);
    let (store, bank) = attached(&orders.url).await?;
    let (handle, outbox) = start(&store, &bank, &log, &orders).await?;
    wait(PATIENCE, async || Ok(store.stats().await?.owned_shards > 0)).await?;
    write(&bank, &outbox).await?;
    let all: Vec<i64> = (0..ACCOUNTS).collect();
    for _ in 0..BURST {
        bank.step(&outbox, &all, Fate::Commit).await?;
    }
    handle.stop().await?;
    Ok(log.note(&Entry::Stopped)?)
}

async fn operate(orders: &Orders) -> Result {
    let (store, _) = attached(&orders.url).await?;
    Admin::new(store).operate_matching(Action::Replay, Filter::default()).run().await?;
    Ok(())
}

async fn migrate(orders: &Orders) -> Result {
    let (store, _) = attach(&orders.url).await?;
    Ok(store.migrate().await?)
}

/// One transaction after the other, over all accounts in turn.
async fn write(bank: &Bank, outbox: &Outbox) -> Result {
    for turn in 0..TURNS {
        let step = tokio::spawn(step(bank.clone(), outbox.clone(), turn));
        // A panic is what was ordered; whether it was committed, the accounts tell.
        if let Ok(failed) = step.await {
            failed?;
        }
        tokio::time::sleep(REST).await;
    }
    Ok(())
}

/// Tries again what surely was not committed.
async fn step(bank: Bank, outbox: Outbox, turn: i64) -> pillarbox::Result<()> {
    let accounts = accounts(turn);
    for _ in 0..ATTEMPTS {
        let done = if turn % 2 == 0 {
            bank.step(&outbox, &accounts, fate(turn)).await
        } else {
            bank.step_by_hand(&outbox, &accounts, fate(turn)).await
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

const fn fate(turn: i64) -> Fate {
    match turn {
        3 => Fate::Rollback,
        6 => Fate::Drop,
        _ => Fate::Commit,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_script_writes_to_every_account_more_than_once() {
        let written = (0..TURNS).filter(|turn| fate(*turn) == Fate::Commit).flat_map(accounts);
        let written: Vec<i64> = written.collect();

        for account in 0..ACCOUNTS {
            assert!(written.iter().filter(|it| **it == account).count() > 1, "{written:?}");
        }
        assert!((5..=15).contains(&written.len()), "{written:?}");
    }
}
