//! The writers: each transaction changes accounts and emits their steps; some are taken back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pillarbox::{ErrorKind, Outbox, Result};
use tokio::task::JoinSet;

use crate::bank::{Bank, Fate};
use crate::orders::Writing;

/// Writers at work.
#[derive(Debug)]
pub struct Writers {
    tasks: JoinSet<Result<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    turn: AtomicU64,
}

impl Writers {
    /// Starts them.
    pub fn start(bank: &Bank, outbox: &Outbox, writing: Writing) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for _ in 0..writing.writers {
            tasks.spawn(write(bank.clone(), outbox.clone(), writing, Arc::clone(&shared)));
        }
        Self { tasks, shared }
    }

    /// Stops them.
    ///
    /// # Errors
    /// What a writer failed with.
    pub async fn stop(self) -> Result<()> {
        self.shared.stop.store(true, Ordering::Relaxed);
        self.finish().await
    }

    /// Waits until they have written everything.
    ///
    /// # Errors
    /// What a writer failed with.
    ///
    /// # Panics
    /// When a writer panicked.
    pub async fn finish(mut self) -> Result<()> {
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("writers do not panic")?;
        }
        Ok(())
    }
}

async fn write(bank: Bank, outbox: Outbox, writing: Writing, shared: Arc<Shared>) -> Result<()> {
    while !shared.stop.load(Ordering::Relaxed) {
        let turn = shared.turn.fetch_add(1, Ordering::Relaxed);
        if turn >= writing.transactions {
            break;
        }
        let accounts = accounts(writing.first + turn, writing);
        let fate = fate(turn);
        match bank.step(&outbox, &accounts, fate).await {
            // A busy database is part of the load; whether it committed, the accounts tell.
            Err(error) if error.is_transient() || error.kind() == ErrorKind::CommitUnknown => {}
            Err(error) => return Err(error),
            Ok(()) => {}
        }
        if writing.rest > 0 {
            tokio::time::sleep(Duration::from_millis(writing.rest)).await;
        }
    }
    Ok(())
}

/// Three of ten are taken back, in both ways.
const fn fate(turn: u64) -> Fate {
    match turn % 10 {
        3 | 6 => Fate::Rollback,
        9 => Fate::Drop,
        _ => Fate::Commit,
    }
}

/// Accounts in rising order, so that no two transactions wait for each other.
fn accounts(turn: u64, writing: Writing) -> Vec<i64> {
    let turn = i64::try_from(turn % 1_000_000_007).unwrap_or(0);
    let account = |i: i64| (turn * 7 + i * 131) % writing.accounts;
    let mut accounts: Vec<i64> = (0..writing.batch).map(account).collect();
    accounts.sort_unstable();
    accounts.dedup();
    accounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_has_its_turn_and_none_twice_in_a_transaction() {
        let writing =
            Writing { accounts: 20, transactions: 0, writers: 1, batch: 4, rest: 0, first: 0 };

        let mut seen = std::collections::BTreeSet::new();
        for turn in 0..20 {
            let accounts = accounts(turn, writing);
            assert!(accounts.is_sorted_by(|a, b| a < b), "{accounts:?}");
            seen.extend(accounts);
        }

        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn three_of_ten_are_taken_back() {
        assert_eq!((0..100).filter(|turn| fate(*turn) != Fate::Commit).count(), 30);
    }
}
