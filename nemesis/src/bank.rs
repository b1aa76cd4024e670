//! The bank: accounts whose every change emits an event, on each database.

use pillarbox::{Accepted, Inbox, Outbox, PayloadHash, Result};
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::{Glimpse, Step, Trouble};

/// A business database with accounts.
#[derive(Clone, Debug)]
pub enum Bank {
    /// On PostgreSQL.
    Postgres(PgPool),
    /// On MySQL or MariaDB.
    Mysql(MySqlPool),
    /// In an SQLite file.
    Sqlite(SqlitePool),
}

/// An account that there is none of: its steps are poison.
pub const POISONED: i64 = -1;

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

const CREATE: &str = "create table account (id bigint primary key, n bigint not null)";
const CREATE_EFFECT: &str = "create table effect (account bigint primary key, n bigint not null)";

/// Backlogs begin here, so that accounts and events of one run are told apart.
const FILL_POSTGRES: &str = "
insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
select
    '01J' || lpad(i::text, 23, '0'), 'nemesis.step', 'account', (i % $3)::text,
    json_build_object('account', i % $3, 'n', i / $3 + 1)
from generate_series($1, $2 - 1) i";

const FILL_MYSQL: &str = "
insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
with recursive digit (d) as (select 0 union all select d + 1 from digit where d < 9),
number (i) as (
    select ? + a.d + 10 * b.d + 100 * c.d + 1000 * d.d
    from digit a, digit b, digit c, digit d
)
select
    concat('01J', lpad(i, 23, '0')), 'nemesis.step', 'account', i % ?,
    json_object('account', i % ?, 'n', i div ? + 1)
from number where i < ? order by i";

const FILL_SQLITE: &str = "
insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
with recursive number (i) as (select ?1 union all select i + 1 from number where i < ?2 - 1)
select
    '01J' || printf('%023d', i), 'nemesis.step', 'account', i % ?3,
    json_object('account', i % ?3, 'n', i / ?3 + 1)
from number";

macro_rules! on_pool {
    ($bank:expr, $pool:ident => $work:expr) => {
        match $bank {
            Bank::Postgres($pool) => $work,
            Bank::Mysql($pool) => $work,
            Bank::Sqlite($pool) => $work,
        }
    };
}

impl Bank {
    /// Whether statements have names: before PostgreSQL there may be a pooler.
    const fn names(&self) -> bool {
        !matches!(self, Self::Postgres(_))
    }

    fn outbox(&self) -> Outbox {
        if self.names() { Outbox::new() } else { Outbox::new().pooler() }
    }

    /// Creates this many accounts.
    ///
    /// # Errors
    /// What the database says.
    pub async fn prepare(&self, accounts: i64) -> Result<()> {
        let inserts = ["insert into account (id, n)", "insert into effect (account, n)"]
            .map(|insert| self.sql(&format!("{insert} values ($1, 0)")));
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

    /// Counts the accounts up, which locks them, emits the steps, then commits or takes back.
    ///
    /// # Errors
    /// What the database says.
    pub async fn step(&self, outbox: &Outbox, accounts: &[i64], fate: Fate) -> Result<()> {
        let count = self.sql("update account set n = n + 1 where id = $1");
        let look = self.sql("select n from account where id = $1");
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            for account in accounts {
                let count = sqlx::query(sqlx::AssertSqlSafe(count.clone())).persistent(self.names());
                count.bind(account).execute(&mut *tx).await?;
                let look = sqlx::query_scalar(sqlx::AssertSqlSafe(look.clone())).persistent(self.names());
                let n = look.bind(account).fetch_one(&mut *tx).await?;
                tx.emit(&Step { account: *account, n }).await?;
                tx.emit(&Glimpse { account: *account, n }).await?;
            }
            match fate {
                Fate::Commit => tx.commit().await?,
                Fate::Rollback => tx.rollback().await?,
                Fate::Drop => drop(tx),
            }
        });
        Ok(())
    }

    /// Has the effect of an event on its account, unless it had it before.
    ///
    /// # Errors
    /// What the database says.
    pub async fn book(&self, inbox: &Inbox, id: &str, account: i64) -> Result<()> {
        let book = self.sql("update effect set n = n + 1 where account = $1");
        let hash = PayloadHash::of(id.as_bytes());
        // Deliveries are dropped at their timeout. A transaction of sqlx's own that is dropped while
        // it begins stays open in the pool, and takes what comes next with it.
        let outbox = self.outbox();
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            if inbox.accept(&mut *tx, "bank", id, hash).await? == Accepted::FirstTime {
                let book = sqlx::query(sqlx::AssertSqlSafe(book)).persistent(self.names());
                book.bind(account).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        });
        Ok(())
    }

    /// How many effects each account has had.
    ///
    /// # Errors
    /// What the database says.
    pub async fn effects(&self) -> Result<Vec<i64>> {
        on_pool!(self, pool => {
            let all = sqlx::query_scalar("select n from effect order by account");
            Ok(all.persistent(self.names()).fetch_all(pool).await?)
        })
    }

    /// How many steps each account has committed: the truth that deliveries are held to.
    ///
    /// # Errors
    /// What the database says.
    pub async fn truth(&self) -> Result<Vec<i64>> {
        on_pool!(self, pool => {
            let mut tx = pool.begin().await?;
            let all = sqlx::query_scalar("select n from account order by id").persistent(self.names());
            let truth = all.fetch_all(&mut *tx).await?;
            tx.rollback().await?;
            Ok(truth)
        })
    }

    /// Lets the database clean up after the last backlog and see the one there is.
    ///
    /// # Errors
    /// What the database says.
    pub async fn tidy(&self) -> Result<()> {
        let tidy = match self {
            Self::Postgres(_) => "vacuum analyze outbox_event",
            Self::Mysql(_) => "analyze table outbox_event",
            Self::Sqlite(_) => "analyze outbox_event",
        };
        on_pool!(self, pool => {
            sqlx::raw_sql(tidy).execute(pool).await?;
        });
        Ok(())
    }

    /// Adds the steps from one number up to another to the backlog by plain inserts, spread over
    /// the accounts, without glimpses.
    ///
    /// # Errors
    /// What the database says.
    pub async fn fill(&self, from: i64, to: i64, accounts: i64) -> Result<()> {
        match self {
            Self::Postgres(pool) => {
                let fill = sqlx::query(FILL_POSTGRES).bind(from).bind(to).bind(accounts);
                fill.execute(pool).await?;
            }
            Self::Mysql(pool) => {
                for start in (from..to).step_by(10_000) {
                    let mut fill = sqlx::query(FILL_MYSQL).bind(start);
                    for _ in 0..3 {
                        fill = fill.bind(accounts);
                    }
                    fill.bind(to).execute(pool).await?;
                }
            }
            Self::Sqlite(pool) => {
                let fill = sqlx::query(FILL_SQLITE).bind(from).bind(to).bind(accounts);
                fill.execute(pool).await?;
            }
        }
        self.count_filled(to, accounts).await
    }

    async fn count_filled(&self, to: i64, accounts: i64) -> Result<()> {
        let whole = self.sql("update account set n = $1 + case when id < $2 then 1 else 0 end");
        let whole = sqlx::AssertSqlSafe(whole);
        let (all, rest) = (to / accounts, to % accounts);
        on_pool!(self, pool => sqlx::query(whole).bind(all).bind(rest).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Adds events that make trouble: so many steps of the poisoned account, and so many troubles.
    ///
    /// # Errors
    /// What the database says.
    pub async fn trouble(&self, steps: i64, troubles: i64) -> Result<()> {
        let outbox = Outbox::new();
        let poison: Vec<Step> = (1..=steps).map(|n| Step { account: POISONED, n }).collect();
        let troubles: Vec<Trouble> = (0..troubles).map(|id| Trouble { id }).collect();
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            tx.emit_all(&poison).await?;
            tx.emit_all(&troubles).await?;
            tx.commit().await?;
        });
        Ok(())
    }

    /// Deletes every event.
    ///
    /// # Errors
    /// What the database says.
    pub async fn clear(&self) -> Result<()> {
        on_pool!(self, pool => {
            sqlx::query("delete from outbox_event").execute(pool).await.map(drop)?;
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
