//! Another program's connection: it writes whatever the database accepts.

use pillarbox::{Error, Result};
use sqlx::{AssertSqlSafe, MySqlConnection, PgConnection, SqliteConnection, raw_sql};

use super::Bank;

/// A connection that runs SQL as it is.
#[derive(Debug)]
pub enum ForeignClient {
    /// To PostgreSQL.
    Postgres(PgConnection),
    /// To MySQL or MariaDB.
    Mysql(MySqlConnection),
    /// To an SQLite file.
    Sqlite(SqliteConnection),
}

/// How many rows of one tenant have one status.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct RowCount {
    /// The tenant, which names what is wrong with the rows.
    pub tenant: String,
    /// The status as the table has it.
    pub status: i16,
    /// How many rows.
    pub rows: i64,
    /// How many of them have no error text.
    pub without_error: i64,
}

const TALLY: &str = "
select tenant_id, status, count(*), count(case when coalesce(last_error, '') = '' then 1 end)
from outbox_event where tenant_id is not null group by tenant_id, status";

const BESIDE: &str = "
select count(*) from outbox_event
where status in (0, 2, 4) and aggregate_type = 'account' and aggregate_id <> $1";

impl ForeignClient {
    /// Runs a statement. Returns whether the database accepted it.
    ///
    /// # Errors
    /// When the connection fails.
    pub async fn run(&mut self, sql: &str) -> Result<bool> {
        loop {
            let sql = raw_sql(AssertSqlSafe(sql.to_owned()));
            let done = match self {
                Self::Postgres(connection) => sql.execute(connection).await.map(drop),
                Self::Mysql(connection) => sql.execute(connection).await.map(drop),
                Self::Sqlite(connection) => sql.execute(connection).await.map(drop),
            };
            match done {
                Ok(()) => return Ok(true),
                Err(sqlx::Error::Database(refused)) => {
                    // A busy SQLite file is asked again; it waits before it answers.
                    if !Error::from(sqlx::Error::Database(refused)).is_transient() {
                        return Ok(false);
                    }
                }
                Err(error) => return Err(error.into()),
            }
        }
    }
}

impl Bank {
    /// A connection of another program. On MySQL it turns off the checks that a session can turn off.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn foreign_client(&self) -> Result<ForeignClient> {
        Ok(match self {
            Self::Postgres(pool) => ForeignClient::Postgres(pool.acquire().await?.detach()),
            Self::Mysql(pool) => {
                let mut foreign = ForeignClient::Mysql(pool.acquire().await?.detach());
                foreign.run("set session sql_mode = 'NO_BACKSLASH_ESCAPES'").await?;
                foreign
            }
            Self::Sqlite(pool) => ForeignClient::Sqlite(pool.acquire().await?.detach()),
        })
    }

    /// What became of the rows that have a tenant.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn row_counts(&self) -> Result<Vec<RowCount>> {
        on_pool!(self, pool => {
            let all: Vec<(String, i16, i64, i64)> = sqlx::query_as(TALLY).fetch_all(pool).await?;
            let tally = |(tenant, status, rows, without_error)| RowCount { tenant, status, rows, without_error };
            Ok(all.into_iter().map(tally).collect())
        })
    }

    /// How many events wait that are of other accounts than this one.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn waiting_beside(&self, account: i64) -> Result<i64> {
        let beside = sqlx::AssertSqlSafe(self.sql(BESIDE));
        on_pool!(self, pool => {
            Ok(sqlx::query_scalar(beside).bind(account.to_string()).fetch_one(pool).await?)
        })
    }
}
