//! The writers: each transaction changes an account and emits a step; some are taken back.

use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use pillarbox::{Outbox, Result};
use sqlx::{MySqlPool, PgPool, SqlitePool};
use tokio::task::JoinSet;

use crate::Step;

/// How many accounts there are.
pub const ACCOUNTS: i64 = 20;

/// A business database with accounts.
pub trait Bank: Clone + Send + Sync + 'static {
    /// Creates the accounts.
    fn prepare(&self) -> impl Future<Output = Result<()>> + Send;

    /// Counts the account up, which locks it, then emits the step, then commits or takes back.
    fn step(
        &self,
        outbox: &Outbox,
        account: i64,
        fate: Fate,
    ) -> impl Future<Output = Result<Step>> + Send;
}

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    /// It commits.
    Commit,
    /// It rolls back.
    Rollback,
    /// It is dropped.
    Drop,
}

macro_rules! bank {
    ($pool:ty, $insert:literal, $count:literal, $look:literal) => {
        impl Bank for $pool {
            async fn prepare(&self) -> Result<()> {
                let create = "create table account (id bigint primary key, n bigint not null)";
                sqlx::query(create).execute(self).await?;
                for id in 0..ACCOUNTS {
                    sqlx::query($insert).bind(id).execute(self).await?;
                }
                Ok(())
            }

            async fn step(&self, outbox: &Outbox, account: i64, fate: Fate) -> Result<Step> {
                let mut tx = outbox.begin(self).await?;
                sqlx::query($count).bind(account).execute(&mut *tx).await?;
                let n = sqlx::query_scalar($look).bind(account).fetch_one(&mut *tx).await?;
                let step = Step { account, n };
                tx.emit(&step).await?;
                match fate {
                    Fate::Commit => tx.commit().await?,
                    Fate::Rollback => tx.rollback().await?,
                    Fate::Drop => drop(tx),
                }
                Ok(step)
            }
        }
    };
}

bank!(
    PgPool,
    "insert into account (id, n) values ($1, 0)",
    "update account set n = n + 1 where id = $1",
    "select n from account where id = $1"
);
bank!(
    SqlitePool,
    "insert into account (id, n) values (?, 0)",
    "update account set n = n + 1 where id = ?",
    "select n from account where id = ?"
);
bank!(
    MySqlPool,
    "insert into account (id, n) values (?, 0)",
    "update account set n = n + 1 where id = ?",
    "select n from account where id = ?"
);

/// Writers at work.
#[derive(Debug)]
pub struct Writers {
    tasks: JoinSet<Result<()>>,
    shared: Arc<Shared>,
}

#[derive(Debug, Default)]
struct Shared {
    stop: AtomicBool,
    turn: AtomicI64,
    committed: Mutex<Vec<Step>>,
}

impl Writers {
    /// Starts this many writers.
    pub fn start(bank: &impl Bank, count: usize) -> Self {
        let shared = Arc::new(Shared::default());
        let mut tasks = JoinSet::new();
        for _ in 0..count {
            tasks.spawn(write(bank.clone(), Arc::clone(&shared)));
        }
        Self { tasks, shared }
    }

    /// Stops them and returns what was committed.
    ///
    /// # Errors
    /// What a writer failed with.
    ///
    /// # Panics
    /// When a writer panicked.
    pub async fn stop(mut self) -> Result<Vec<Step>> {
        self.shared.stop.store(true, Ordering::Relaxed);
        while let Some(ended) = self.tasks.join_next().await {
            ended.expect("writers do not panic")?;
        }
        let committed = self.shared.committed.lock().unwrap_or_else(PoisonError::into_inner);
        Ok(committed.clone())
    }
}

async fn write(bank: impl Bank, shared: Arc<Shared>) -> Result<()> {
    let outbox = Outbox::new();
    while !shared.stop.load(Ordering::Relaxed) {
        let turn = shared.turn.fetch_add(1, Ordering::Relaxed);
        // Three of ten are taken back, in both ways.
        let fate = match turn % 10 {
            3 | 6 => Fate::Rollback,
            9 => Fate::Drop,
            _ => Fate::Commit,
        };
        let step = match bank.step(&outbox, turn * 7 % ACCOUNTS, fate).await {
            // Nothing was committed: a busy database is part of the load.
            Err(error) if error.is_transient() => continue,
            step => step?,
        };
        if fate == Fate::Commit {
            shared.committed.lock().unwrap_or_else(PoisonError::into_inner).push(step);
        }
        tokio::time::sleep(Duration::from_millis(2)).await;
    }
    Ok(())
}
