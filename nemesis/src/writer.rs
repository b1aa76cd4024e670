//! The writers: each transaction changes accounts and emits their steps; some are taken back.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use pillarbox::{ErrorKind, Outbox, Result};
use tokio::task::JoinSet;

use crate::bank::{Bank, TxEnd};
use crate::config::{Load, WriteLoad};
use crate::load::Plan;
use crate::log::{Entry, Log};
use crate::rng::SeededRng;

/// Writers at work.
#[derive(Debug)]
pub struct Writers {
    tasks: JoinSet<Result<()>>,
    telling: JoinSet<()>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    turn: AtomicU64,
    succeeded: AtomicU64,
    failed: AtomicU64,
    behind: AtomicBool,
}

/// How long a writer waits before it asks a server again that was away.
const AGAIN: Duration = Duration::from_millis(200);

/// How often the log is told how transactions end.
const TOLD: Duration = Duration::from_secs(1);

impl Writers {
    /// Starts them.
    pub fn start(bank: &Bank, outbox: &Outbox, writes: WriteLoad) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for number in 0..writes.writers {
            let writer = Writer {
                bank: bank.clone(),
                outbox: outbox.clone(),
                writes,
                rng: SeededRng::new(writes.first.wrapping_mul(37).wrapping_add(number)),
                shared: Arc::clone(&shared),
            };
            tasks.spawn(writer.write());
        }
        Self { tasks, telling: JoinSet::new(), shared }
    }

    /// Tells the log again and again how the transactions end, and has the writers wait while too
    /// many events do: a long run must not need more room than a short one.
    #[must_use]
    pub fn told_to(mut self, bank: &Bank, log: Arc<Log>) -> Self {
        let bank = bank.clone();
        self.shared.behind.store(true, Ordering::Relaxed);
        let shared = Arc::clone(&self.shared);
        let take = |count: &AtomicU64| count.swap(0, Ordering::Relaxed);
        self.telling.spawn(async move {
            loop {
                // Who cannot be asked has not changed.
                if let Ok(is_behind) = bank.is_behind().await {
                    shared.behind.store(is_behind, Ordering::Relaxed);
                }
                tokio::time::sleep(TOLD).await;
                let entry = Entry::Transactions {
                    succeeded: take(&shared.succeeded),
                    failed: take(&shared.failed),
                };
                if let Err(error) = log.append(&entry) {
                    eprintln!("cannot write to the log: {error}");
                }
            }
        });
        self
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

struct Writer {
    bank: Bank,
    outbox: Outbox,
    writes: WriteLoad,
    rng: SeededRng,
    shared: Arc<Shared>,
}

impl Writer {
    async fn write(mut self) -> Result<()> {
        while !self.shared.stop.load(Ordering::Relaxed) {
            if self.shared.behind.load(Ordering::Relaxed) {
                tokio::time::sleep(AGAIN).await;
                continue;
            }
            let turn = self.shared.turn.fetch_add(1, Ordering::Relaxed);
            if turn >= self.writes.transactions {
                break;
            }
            match self.transaction(turn).await {
                // A busy database is part of the load; whether it committed, the accounts tell.
                Err(error) if error.is_transient() || error.kind() == ErrorKind::CommitUnknown => {
                    self.shared.failed.fetch_add(1, Ordering::Relaxed);
                    if self.writes.load != Load::Even {
                        tokio::time::sleep(AGAIN).await;
                    }
                }
                Err(error) => return Err(error),
                Ok(()) => drop(self.shared.succeeded.fetch_add(1, Ordering::Relaxed)),
            }
            if self.writes.rest > 0 {
                tokio::time::sleep(Duration::from_millis(self.writes.rest)).await;
            }
        }
        Ok(())
    }

    async fn transaction(&mut self, turn: u64) -> Result<()> {
        match self.writes.load {
            Load::Even => {
                let accounts = accounts(self.writes.first + turn, self.writes);
                self.bank.transact(&self.outbox, &accounts, end(turn)).await
            }
            Load::Varied(longest) => {
                let longest = Duration::from_millis(longest);
                let plan = Plan::draw(&mut self.rng, self.writes.accounts, longest);
                self.bank.transfer(&self.outbox, &plan).await
            }
        }
    }
}

/// Three of ten are taken back, in both ways.
const fn end(turn: u64) -> TxEnd {
    match turn % 10 {
        3 | 6 => TxEnd::Rollback,
        9 => TxEnd::Drop,
        _ => TxEnd::Commit,
    }
}

/// Accounts in rising order, so that no two transactions wait for each other.
fn accounts(turn: u64, writes: WriteLoad) -> Vec<i64> {
    let turn = i64::try_from(turn % 1_000_000_007).unwrap_or(0);
    let account = |i: i64| (turn * 7 + i * 131) % writes.accounts;
    let mut accounts: Vec<i64> = (0..writes.batch).map(account).collect();
    accounts.sort_unstable();
    accounts.dedup();
    accounts
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_account_has_its_turn_and_none_twice_in_a_transaction() {
        let load = Load::Even;
        let writes = WriteLoad {
            accounts: 20,
            transactions: 0,
            writers: 1,
            batch: 4,
            rest: 0,
            first: 0,
            load,
        };

        let mut seen = std::collections::BTreeSet::new();
        for turn in 0..20 {
            let accounts = accounts(turn, writes);
            assert!(accounts.is_sorted_by(|a, b| a < b), "{accounts:?}");
            seen.extend(accounts);
        }

        assert_eq!(seen.len(), 20);
    }

    #[test]
    fn three_of_ten_are_taken_back() {
        assert_eq!((0..100).filter(|turn| end(*turn) != TxEnd::Commit).count(), 30);
    }
}
