//! The SQLite store.

mod claims;
mod events;
mod open;
mod operations;
mod ownership;
#[cfg(test)]
mod plan;
mod row;
mod schema;
mod settle;
mod sql;
mod statistics;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::sqlite::{SqliteArguments, SqliteConnectOptions, SqliteRow};
use sqlx::{AssertSqlSafe, FromRow, Sqlite, SqlitePool};

use crate::error::{Error, ErrorKind, Result};
use crate::pooled::PooledTx;
use crate::store::Schema;
use crate::table::{TablePrefix, Tables};

/// Keeps events in a SQLite file: the embedded default, for one machine.
///
/// Several processes may share the file; one relay at a time delivers.
///
/// # Examples
/// ```no_run
/// use pillarbox::SqliteStore;
///
/// # async fn example() -> pillarbox::Result<()> {
/// let store = SqliteStore::connect("sqlite://shop.db").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct SqliteStore {
    pool: SqlitePool,
    /// One connection, opened with the first write. SQLite changes a row by writing it anew, and an
    /// allocator keeps for each thread what a large row took: all writes have one thread.
    writer: Arc<OnceLock<SqlitePool>>,
    tables: Tables,
}

impl SqliteStore {
    /// A store on this pool.
    pub fn new(pool: SqlitePool) -> Self {
        let tables = Tables::with_clock(TablePrefix::default(), sql::NOW);
        Self { pool, writer: Arc::default(), tables }
    }

    /// Opens or creates a file with a pool of its own, in WAL mode with full synchronisation.
    ///
    /// `sqlite::memory:` gives a database that lives as long as the store, and has one
    /// connection: a second transaction waits until the first has ended.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] for a URL that cannot be
    /// read or a file that cannot be opened.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn connect(url: &str) -> Result<Self> {
        Ok(Self::new(open::open(url, Self::options(url)?).await?))
    }

    /// What a URL says.
    pub(crate) fn options(url: &str) -> Result<SqliteConnectOptions> {
        if !url.to_ascii_lowercase().starts_with("sqlite:") {
            let message = "a SQLite URL begins with sqlite:, as in sqlite://shop.db";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        url.parse().map_err(|source| Error::invalid_url(url, source))
    }

    /// On the tables whose names begin with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = Tables::with_clock(prefix, sql::NOW);
        self
    }

    /// Creates or updates the tables.
    ///
    /// Safe to run from many processes at once, and again after a crash half-way.
    ///
    /// # Errors
    /// Returns what the database answers.
    ///
    /// # Cancel safety
    /// If the future is dropped, call it again: it continues where it was.
    pub async fn migrate(&self) -> Result<()> {
        Schema::migrate(self).await
    }

    /// The pool, for business transactions on the same database.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    fn sql(&self, template: &'static str) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.tables.render(template))
    }

    fn query(&self, template: &'static str) -> Query<'static, Sqlite, SqliteArguments> {
        sqlx::query(self.sql(template))
    }

    fn query_as<T>(&self, template: &'static str) -> QueryAs<'static, Sqlite, T, SqliteArguments>
    where
        T: for<'r> FromRow<'r, SqliteRow>,
    {
        sqlx::query_as(self.sql(template))
    }

    fn query_scalar<T>(
        &self,
        template: &'static str,
    ) -> QueryScalar<'static, Sqlite, T, SqliteArguments>
    where
        (T,): for<'r> FromRow<'r, SqliteRow>,
    {
        sqlx::query_scalar(self.sql(template))
    }

    /// Immediate: a transaction that reads first and then writes could find its snapshot stale.
    async fn begin(&self) -> Result<PooledTx<Sqlite>> {
        Ok(PooledTx::begin(self.writer(), Some("begin immediate")).await?)
    }

    /// What the store writes with: a connection of its own, if there is more than one.
    fn writer(&self) -> &SqlitePool {
        let options = self.pool.options();
        if options.get_max_connections() == 1 {
            return &self.pool;
        }
        self.writer.get_or_init(|| {
            let options = options.clone().min_connections(0).max_connections(1);
            options.connect_lazy_with((*self.pool.connect_options()).clone())
        })
    }
}

impl fmt::Debug for SqliteStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqliteStore").field("tables", &self.tables).finish_non_exhaustive()
    }
}
