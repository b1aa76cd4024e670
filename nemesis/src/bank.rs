//! The bank: accounts whose every change emits an event, on each database.

use pillarbox::{Accepted, Inbox, Outbox, PayloadHash, Result};
use sqlx::{MySqlPool, PgPool, SqlitePool};

use crate::load::{Part, Plan};
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

/// What has become of an account: the truth that deliveries are held to.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Account {
    /// How many ordered events it has committed.
    pub steps: i64,
    /// How many that are ordered by nothing.
    pub glimpses: i64,
    /// What is on it.
    pub balance: i64,
}

impl Account {
    /// All events it has committed.
    pub const fn events(&self) -> i64 {
        self.steps + self.glimpses
    }
}

/// What the events of an account have brought about.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Effect {
    /// How many events had an effect.
    pub events: i64,
    /// What they added up to.
    pub balance: i64,
}

const CREATE: &str = "
create table account (
    id bigint primary key, n bigint not null, g bigint not null, balance bigint not null
)";
const CREATE_EFFECT: &str = "
create table effect (account bigint primary key, n bigint not null, balance bigint not null)";

const COUNT_STEP: &str = "update account set n = n + 1, balance = balance + $1 where id = $2";
const COUNT_GLIMPSE: &str = "update account set g = g + 1, balance = balance + $1 where id = $2";

/// How many milliseconds ago an event was written, by the database's clock.
const AGE_POSTGRES: &str = "
select (extract(epoch from clock_timestamp() - created_at) * 1000)::bigint
from outbox_event where event_id = $1";
const AGE_MYSQL: &str = "
select timestampdiff(microsecond, created_at, utc_timestamp(6)) div 1000
from outbox_event where event_id = ?";
const AGE_SQLITE: &str = "
select cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) - created_at / 1000
from outbox_event where event_id = ?";

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

/// Counts an account up, which locks it, and returns its count.
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

    /// Counts the accounts up, which locks them, emits the steps, then commits or takes back.
    ///
    /// # Errors
    /// What the database says.
    pub async fn step(&self, outbox: &Outbox, accounts: &[i64], fate: Fate) -> Result<()> {
        let count = self.sql("update account set n = n + 1, g = g + 1 where id = $1");
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

    /// The same in a transaction of sqlx's own, whose end the outbox does not see.
    ///
    /// # Errors
    /// What the database says.
    pub async fn step_by_hand(&self, outbox: &Outbox, accounts: &[i64], fate: Fate) -> Result<()> {
        let count = self.sql("update account set n = n + 1, g = g + 1 where id = $1");
        let look = self.sql("select n from account where id = $1");
        on_pool!(self, pool => {
            let mut tx = pool.begin().await?;
            for account in accounts {
                let count = sqlx::query(sqlx::AssertSqlSafe(count.clone())).bind(account);
                count.execute(&mut *tx).await?;
                let look = sqlx::query_scalar(sqlx::AssertSqlSafe(look.clone())).bind(account);
                let n = look.fetch_one(&mut *tx).await?;
                outbox.emit(&mut tx, &Step { account: *account, n }).await?;
                outbox.emit(&mut tx, &Glimpse { account: *account, n }).await?;
            }
            match fate {
                Fate::Commit => tx.commit().await?,
                Fate::Rollback => tx.rollback().await?,
                Fate::Drop => drop(tx),
            }
        });
        outbox.wake();
        Ok(())
    }

    /// Does what the plan says, then commits or takes back. What is taken back on purpose says so
    /// by its count, which is below one.
    ///
    /// # Errors
    /// What the database says.
    pub async fn transfer(&self, outbox: &Outbox, plan: &Plan) -> Result<()> {
        let sign = if plan.fate == Fate::Commit { 1 } else { -1 };
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            for part in &plan.parts {
                if part.is_taken_back {
                    let mut savepoint = tx.savepoint().await?;
                    let n = change!(self, &mut **savepoint, part);
                    savepoint.emit_envelope(part.event(-n).envelope(part.is_ordered)?).await?;
                    savepoint.rollback().await?;
                } else {
                    let n = change!(self, &mut *tx, part);
                    tx.emit_envelope(part.event(sign * n).envelope(part.is_ordered)?).await?;
                }
            }
            tokio::time::sleep(plan.linger).await;
            match plan.fate {
                Fate::Commit => tx.commit().await?,
                Fate::Rollback => tx.rollback().await?,
                Fate::Drop => drop(tx),
            }
        });
        Ok(())
    }

    /// The statements that count and look.
    fn change(&self, part: &Part) -> (String, String) {
        let (count, look) = if part.is_ordered {
            (COUNT_STEP, "select n from account where id = $1")
        } else {
            (COUNT_GLIMPSE, "select g from account where id = $1")
        };
        (self.sql(count), self.sql(look))
    }

    /// Has the effect of an event on its account, unless it had it before.
    ///
    /// # Errors
    /// What the database says.
    pub async fn book(&self, inbox: &Inbox, id: &str, account: i64, amount: i64) -> Result<()> {
        let book =
            self.sql("update effect set n = n + 1, balance = balance + $1 where account = $2");
        let hash = PayloadHash::of(id.as_bytes());
        // Deliveries are dropped at their timeout. A transaction of sqlx's own that is dropped while
        // it begins stays open in the pool, and takes what comes next with it.
        let outbox = self.outbox();
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            if inbox.accept(&mut *tx, "bank", id, hash).await? == Accepted::FirstTime {
                let book = sqlx::query(sqlx::AssertSqlSafe(book)).persistent(self.names());
                book.bind(amount).bind(account).execute(&mut *tx).await?;
            }
            tx.commit().await?;
        });
        Ok(())
    }

    /// How many milliseconds ago an event was written, by the database's clock; `None` when it is
    /// no longer there.
    ///
    /// # Errors
    /// What the database says.
    pub async fn age(&self, id: &str) -> Result<Option<i64>> {
        let age = match self {
            Self::Postgres(_) => AGE_POSTGRES,
            Self::Mysql(_) => AGE_MYSQL,
            Self::Sqlite(_) => AGE_SQLITE,
        };
        on_pool!(self, pool => {
            let age = sqlx::query_scalar(age).persistent(self.names());
            Ok(age.bind(id).fetch_optional(pool).await?)
        })
    }

    /// Whether more events wait than anybody needs to wait.
    ///
    /// # Errors
    /// What the database says.
    pub async fn is_behind(&self) -> Result<bool> {
        let waiting = "
select count(*) from (select 1 from outbox_event where status in (0, 2) limit 1000) as waiting";
        on_pool!(self, pool => {
            let count = sqlx::query_scalar::<_, i64>(waiting).persistent(self.names());
            Ok(count.fetch_one(pool).await? >= 1000)
        })
    }

    /// Some of the events that are done and not yet purged, the latest first.
    ///
    /// # Errors
    /// What the database says.
    pub async fn done(&self) -> Result<Vec<String>> {
        let done = "select event_id from outbox_event where status = 1 order by seq desc limit 100";
        on_pool!(self, pool => {
            Ok(sqlx::query_scalar(done).persistent(self.names()).fetch_all(pool).await?)
        })
    }

    /// What the events of each account have brought about.
    ///
    /// # Errors
    /// What the database says.
    pub async fn effects(&self) -> Result<Vec<Effect>> {
        on_pool!(self, pool => {
            let all = sqlx::query_as("select n, balance from effect order by account");
            let all: Vec<(i64, i64)> = all.persistent(self.names()).fetch_all(pool).await?;
            Ok(all.into_iter().map(|(events, balance)| Effect { events, balance }).collect())
        })
    }

    /// What each account has committed.
    ///
    /// # Errors
    /// What the database says.
    pub async fn truth(&self) -> Result<Vec<Account>> {
        on_pool!(self, pool => {
            let mut tx = pool.begin().await?;
            let all = sqlx::query_as("select n, g, balance from account order by id");
            let truth: Vec<(i64, i64, i64)> =
                all.persistent(self.names()).fetch_all(&mut *tx).await?;
            tx.rollback().await?;
            let account = |(steps, glimpses, balance)| Account { steps, glimpses, balance };
            Ok(truth.into_iter().map(account).collect())
        })
    }

    /// Has the server end the session of a client's port. Returns whether there was one.
    ///
    /// # Errors
    /// What the database says.
    pub async fn terminate(&self, port: u16) -> Result<bool> {
        match self {
            Self::Postgres(pool) => {
                let end =
                    "select pg_terminate_backend(pid) from pg_stat_activity where client_port = $1";
                let ended = sqlx::query_scalar(end).bind(i32::from(port)).fetch_optional(pool);
                Ok(ended.await?.unwrap_or(false))
            }
            Self::Mysql(pool) => {
                let find = "select id from information_schema.processlist where host like ?";
                let session = sqlx::query_scalar::<_, i64>(find).bind(format!("%:{port}"));
                let Some(session) = session.fetch_optional(pool).await? else { return Ok(false) };
                sqlx::raw_sql(sqlx::AssertSqlSafe(format!("kill {session}"))).execute(pool).await?;
                Ok(true)
            }
            Self::Sqlite(_) => Ok(false),
        }
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
