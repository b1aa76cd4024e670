//! The workload: accounts whose every change emits events, on each database.

use pillarbox::{Accepted, Envelope, Headers, Inbox, Outbox, PayloadHash, Result};
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::load::{Part, Plan};
use crate::{OrderedEvent, UnorderedEvent};

/// The application's view of a database with accounts.
#[derive(Clone, Debug)]
pub enum Bank {
    /// On PostgreSQL.
    Postgres(PgPool),
    /// On MySQL or MariaDB.
    Mysql(MySqlPool),
    /// In an SQLite file.
    Sqlite(SqlitePool),
}

/// An account that does not exist; its events fail on every attempt.
pub const POISONED_ACCOUNT: i64 = -1;

/// How a transaction ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TxEnd {
    /// It commits.
    Commit,
    /// It rolls back.
    Rollback,
    /// It is dropped.
    Drop,
}

/// What an account has committed, which deliveries are compared with.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// The number of ordered events.
    pub ordered: i64,
    /// The number of events without a key.
    pub unordered: i64,
    /// The balance.
    pub balance: i64,
}

impl Account {
    /// The number of all events.
    pub const fn events(&self) -> i64 {
        self.ordered + self.unordered
    }
}

/// The effects of the events of an account.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// The number of events with an effect.
    pub events: i64,
    /// The sum of their amounts.
    pub balance: i64,
}

const CREATE: &str = "
create table account (
    id bigint primary key, n bigint not null, g bigint not null, balance bigint not null
)";
const CREATE_EFFECT: &str = "
create table effect (account bigint primary key, n bigint not null, balance bigint not null)";

const COUNT_ORDERED: &str = "update account set n = n + 1, balance = balance + $1 where id = $2";
const COUNT_UNORDERED: &str = "update account set g = g + 1, balance = balance + $1 where id = $2";

/// Increments an account's count, which locks it, and returns it.
macro_rules! change {
    ($bank:expr, $on:expr, $part:expr) => {{
        let (count, look) = $bank.change($part);
        let count = sqlx::query(sqlx::AssertSqlSafe(count)).persistent($bank.names());
        count.bind($part.amount()).bind($part.account).execute($on).await?;
        let look = sqlx::query_scalar(sqlx::AssertSqlSafe(look)).persistent($bank.names());
        let n: i64 = look.bind($part.account).fetch_one($on).await?;
        n
    }};
}

macro_rules! on_pool {
    ($bank:expr, $pool:ident => $work:expr) => {
        match $bank {
            Bank::Postgres($pool) => $work,
            Bank::Mysql($pool) => $work,
            Bank::Sqlite($pool) => $work,
        }
    };
}

// Below the macro that they use.
mod backlog;
mod foreign;
mod query;

pub use self::foreign::{ForeignClient, RowCount};

impl Bank {
    /// Whether statements are named: PostgreSQL may be behind a pooler.
    const fn names(&self) -> bool {
        !matches!(self, Self::Postgres(_))
    }

    fn outbox(&self) -> Outbox {
        if self.names() { Outbox::new() } else { Outbox::new().pooler() }
    }

    /// Creates this many accounts.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn prepare(&self, accounts: i64) -> Result<()> {
        let inserts = [
            "insert into account (id, n, g, balance) values ($1, 0, 0, 0)",
            "insert into effect (account, n, balance) values ($1, 0, 0)",
        ]
        .map(|insert| self.sql(insert));
        on_pool!(self, pool => {
            sqlx::raw_sql(CREATE).execute(pool).await?;
            sqlx::raw_sql(CREATE_EFFECT).execute(pool).await?;
            let mut tx = pool.begin().await?;
            for (id, insert) in (0..accounts).flat_map(|id| inserts.iter().map(move |it| (id, it))) {
                let insert = sqlx::query(sqlx::AssertSqlSafe(insert.clone())).persistent(self.names());
                insert.bind(id).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        });
        Ok(())
    }

    /// Increments the counts of accounts, which locks them, emits two events for each, and ends.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn transact(&self, outbox: &Outbox, accounts: &[i64], end: TxEnd) -> Result<()> {
        self.transact_with_headers(outbox, accounts, end, &Headers::new()).await
    }

    /// The same, with these headers on every event.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn transact_with_headers(
        &self,
        outbox: &Outbox,
        accounts: &[i64],
        end: TxEnd,
        headers: &Headers,
    ) -> Result<()> {
        let count = self.sql("update account set n = n + 1, g = g + 1 where id = $1");
        let look = self.sql("select n from account where id = $1");
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            for account in accounts {
                let count = sqlx::query(sqlx::AssertSqlSafe(count.clone())).persistent(self.names());
                count.bind(account).execute(&mut *tx).await?;
                let look = sqlx::query_scalar(sqlx::AssertSqlSafe(look.clone())).persistent(self.names());
                let n = look.bind(account).fetch_one(&mut *tx).await?;
                let (step, unordered) = (OrderedEvent { account: *account, n }, UnorderedEvent { account: *account, n });
                tx.emit_envelope(Envelope::of(&step)?.headers(headers.clone())).await?;
                tx.emit_envelope(Envelope::of(&unordered)?.headers(headers.clone())).await?;
            }
            match end {
                TxEnd::Commit => tx.commit().await?,
                TxEnd::Rollback => tx.rollback().await?,
                TxEnd::Drop => drop(tx),
            }
        });
        Ok(())
    }

    /// The same in a plain sqlx transaction, whose end the outbox does not see.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn transact_in_own_tx(
        &self,
        outbox: &Outbox,
        accounts: &[i64],
        end: TxEnd,
    ) -> Result<()> {
        let count = self.sql("update account set n = n + 1, g = g + 1 where id = $1");
        let look = self.sql("select n from account where id = $1");
        on_pool!(self, pool => {
            let mut tx = pool.begin().await?;
            for account in accounts {
                let count = sqlx::query(sqlx::AssertSqlSafe(count.clone())).bind(account);
                count.execute(&mut *tx).await?;
                let look = sqlx::query_scalar(sqlx::AssertSqlSafe(look.clone())).bind(account);
                let n = look.fetch_one(&mut *tx).await?;
                outbox.emit(&mut tx, &OrderedEvent { account: *account, n }).await?;
                outbox.emit(&mut tx, &UnorderedEvent { account: *account, n }).await?;
            }
            match end {
                TxEnd::Commit => tx.commit().await?,
                TxEnd::Rollback => tx.rollback().await?,
                TxEnd::Drop => drop(tx),
            }
        });
        outbox.wake();
        Ok(())
    }

    /// Carries out a plan. Events that are rolled back on purpose have a count below one.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn transfer(&self, outbox: &Outbox, plan: &Plan) -> Result<()> {
        let sign = if plan.end == TxEnd::Commit { 1 } else { -1 };
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            for part in &plan.parts {
                if part.is_rolled_back {
                    let mut savepoint = tx.savepoint().await?;
                    let n = change!(self, &mut **savepoint, part);
                    savepoint.emit_envelope(part.event(-n).envelope(part.is_ordered)?).await?;
                    savepoint.rollback().await?;
                } else {
                    let n = change!(self, &mut *tx, part);
                    tx.emit_envelope(part.event(sign * n).envelope(part.is_ordered)?).await?;
                }
            }
            tokio::time::sleep(plan.open_for).await;
            match plan.end {
                TxEnd::Commit => tx.commit().await?,
                TxEnd::Rollback => tx.rollback().await?,
                TxEnd::Drop => drop(tx),
            }
        });
        Ok(())
    }

    /// The statements that increment and read a count.
    fn change(&self, part: &Part) -> (String, String) {
        let (count, look) = if part.is_ordered {
            (COUNT_ORDERED, "select n from account where id = $1")
        } else {
            (COUNT_UNORDERED, "select g from account where id = $1")
        };
        (self.sql(count), self.sql(look))
    }

    /// Applies the effect of an event to its account, once by way of the inbox.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn apply(&self, inbox: &Inbox, id: &str, account: i64, amount: i64) -> Result<()> {
        let update =
            self.sql("update effect set n = n + 1, balance = balance + $1 where account = $2");
        let hash = PayloadHash::of(id.as_bytes());
        // Deliveries are dropped at their timeout. A transaction of sqlx's own that is dropped while
        // it begins stays open in the pool, and takes what comes next with it.
        let outbox = self.outbox();
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            if inbox.accept(&mut *tx, "bank", id, hash).await? == Accepted::FirstTime {
                let update = sqlx::query(sqlx::AssertSqlSafe(update)).persistent(self.names());
                update.bind(amount).bind(account).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        });
        Ok(())
    }

    /// PostgreSQL numbers its parameters, the others do not.
    fn sql(&self, sql: &str) -> String {
        match self {
            Self::Postgres(_) => sql.to_owned(),
            Self::Mysql(_) | Self::Sqlite(_) => sql.replace("$1", "?").replace("$2", "?"),
        }
    }
}
