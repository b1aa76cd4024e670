//! What can be seen of the bank, and of who is connected to it.

use pillarbox::Result;

use super::{Account, Bank, Effect};

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

impl Bank {
    /// How many milliseconds ago an event was written, by the database's clock; `None` when it is
    /// no longer there.
    ///
    /// # Errors
    /// When a statement fails.
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
    /// When a statement fails.
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
    /// When a statement fails.
    pub async fn done(&self) -> Result<Vec<String>> {
        let done = "select event_id from outbox_event where status = 1 order by seq desc limit 100";
        on_pool!(self, pool => {
            Ok(sqlx::query_scalar(done).persistent(self.names()).fetch_all(pool).await?)
        })
    }

    /// What the events of each account have brought about.
    ///
    /// # Errors
    /// When a statement fails.
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
    /// When a statement fails.
    pub async fn committed(&self) -> Result<Vec<Account>> {
        on_pool!(self, pool => {
            let mut tx = pool.begin().await?;
            let all = sqlx::query_as("select n, g, balance from account order by id");
            let committed: Vec<(i64, i64, i64)> =
                all.persistent(self.names()).fetch_all(&mut *tx).await?;
            tx.rollback().await?;
            let account = |(ordered, unordered, balance)| Account { ordered, unordered, balance };
            Ok(committed.into_iter().map(account).collect())
        })
    }

    /// Waits until no transaction is open any more that has changed an account.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn settled(&self) -> Result<()> {
        on_pool!(self, pool => {
            sqlx::raw_sql("update account set n = n").execute(pool).await?;
        });
        Ok(())
    }

    /// Has the server end the session of a client's port. Returns whether there was one.
    ///
    /// # Errors
    /// When a statement fails.
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
}
