//! The store for MySQL and MariaDB.

mod candidate;
mod claims;
mod due;
mod events;
mod heads;
mod operations;
mod ownership;
#[cfg(test)]
mod plan;
mod read;
mod row;
mod schema;
mod server;
mod settle;
mod sql;
mod statistics;

use std::sync::{Arc, atomic::AtomicBool};
use std::{fmt, time::Duration};

use sqlx::mysql::{MySqlArguments, MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{
    AssertSqlSafe, ConnectOptions, Connection as _, Executor as _, FromRow, MySql, MySqlConnection,
    MySqlPool,
};

use self::server::Accepts;
use crate::error::{Error, ErrorKind, Result};
use crate::pooled::{PooledCall, PooledTx};
use crate::store::Schema;
use crate::table::{TablePrefix, Tables};

/// Keeps events in MariaDB 10.6 or newer, or in MySQL 8.0.17 or newer.
///
/// The tables are in the database that the URL names. TiDB is refused: nothing of this was tried
/// on it. The binary log, where there is one, must be `MIXED` or `ROW`. Where several servers take
/// writes (Galera, group replication in multi-primary mode), all writers of events must use the same
/// one: `seq` grows on each server by itself, so that order per key would be lost.
///
/// # Rights
/// A user needs `select`, `insert`, `update` and `delete` on the tables. The right to create tables and
/// procedures is needed only while [`migrate`](crate::store::Schema::migrate) has something to do.
///
/// # Transactions that the server ends
/// A deadlock or a DDL statement ends a transaction, and what follows commits by itself. An emit is
/// refused then. [`Outbox::begin`](crate::Outbox::begin) sets a savepoint, which is released right
/// before the events are inserted, and which only that transaction has. In a transaction of the
/// caller's own, the insert itself looks on MariaDB; on MySQL, which has nothing that a statement
/// could look at, another one looks right before it. A session without autocommit is refused there,
/// since an ended transaction cannot be told from a living one.
///
/// A transaction that is dropped costs its connection, since sqlx cannot say whether a call on it
/// was dropped half-way; `rollback` keeps it.
///
/// # Examples
/// ```no_run
/// use pillarbox::MysqlStore;
///
/// # async fn example() -> pillarbox::Result<()> {
/// let store = MysqlStore::connect("mysql://app@localhost/shop").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct MysqlStore {
    /// The caller's: it stays as the caller has set it up.
    pool: MySqlPool,
    /// For reads and settles, with settings of their own.
    relay: MySqlPool,
    /// Of its own: whatever uses up the others must not cost the lease.
    leases: MySqlPool,
    tables: Tables,
    /// Whether the last read found more rows than one statement should bring. A hint only.
    crowded: Arc<AtomicBool>,
    accepts: Accepts,
}

/// What a server or a caller may have set otherwise, and what the statements here rely on. At
/// REPEATABLE READ, the default, their locks would reach over gaps and stop business inserts; and
/// a lock that is not to be had is given up soon, for the relay must renew meanwhile. Newer MariaDBs
/// refuse a row that changed under a snapshot, where READ COMMITTED is to look at it anew. A session
/// that falls silent with locks in its hands is ended by the server, or nobody could take over from
/// a machine that is frozen or cut off until the network notices, which may take hours; MySQL knows
/// no idle transactions, only idle sessions. MySQL keeps statistics of a table for a day, its counter
/// among them, unless it is told not to.
const SESSION: &str = "
set session transaction isolation level read committed;
set session autocommit = 1, innodb_lock_wait_timeout = 3, time_zone = '+00:00',
    sql_mode = 'STRICT_ALL_TABLES,NO_ENGINE_SUBSTITUTION', sql_safe_updates = 0,
    sql_select_limit = default, wait_timeout = 60
    /*!80017 , information_schema_stats_expiry = 0 */
    /*M!100300 , idle_transaction_timeout = 5 */ /*M!110602 , innodb_snapshot_isolation = 0 */";

impl MysqlStore {
    /// A store on this pool's database, with connections of its own for the relay.
    ///
    /// Up to as many as the pool may have, ten at most, and two for the lease. The pool itself is
    /// for business transactions and is not touched.
    pub fn new(pool: MySqlPool) -> Self {
        let options = (*pool.connect_options()).clone().charset("utf8mb4").set_names(true);
        let own = |connections, acquire_timeout| {
            MySqlPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(Duration::from_secs(acquire_timeout))
                .after_connect(|connection, _| {
                    Box::pin(async move { connection.execute(SESSION).await.map(drop) })
                })
                .connect_lazy_with(options.clone())
        };
        let most = pool.options().get_max_connections().clamp(2, 10);
        Self {
            relay: own(most, 30),
            leases: own(2, 3),
            pool,
            tables: Tables::default(),
            crowded: Arc::default(),
            accepts: Accepts::default(),
        }
    }

    /// Lets TiDB in, which is refused otherwise: for the conformance suites, to find out what is
    /// missing there.
    #[doc(hidden)]
    #[must_use]
    pub fn with_tidb(mut self) -> Self {
        self.accepts = Accepts::Tidb;
        self
    }

    /// Connects with pools of its own.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] for a URL that cannot be read, a server that says no or is too
    /// old, [`ErrorKind::Unavailable`] for a server out of reach.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn connect(url: &str) -> Result<Self> {
        let options = Self::options(url)?;
        // One connection by hand: a pool would knock for half a minute before it says no.
        let mut connection = options.connect().await.map_err(Error::connecting)?;
        server::of(&mut connection, Accepts::Tested).await?;
        connection.close().await?;
        Ok(Self::new(MySqlPoolOptions::new().max_connections(10).connect_lazy_with(options)))
    }

    /// What a URL says.
    pub(crate) fn options(url: &str) -> Result<MySqlConnectOptions> {
        let wrong = |message: &str| Err(Error::new(ErrorKind::Configuration, message));
        let scheme = url.to_ascii_lowercase();
        if !scheme.starts_with("mysql://") && !scheme.starts_with("mariadb://") {
            return wrong("a MySQL URL begins with mysql://user@host/database");
        }
        let options: MySqlConnectOptions =
            url.parse().map_err(|source| Error::invalid_url(url, source))?;
        if options.get_database().is_none_or(str::is_empty) {
            return wrong("the URL names no database: mysql://user@host/database");
        }
        Ok(options)
    }

    /// On the tables whose names begin with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = Tables::new(prefix);
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
    pub fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    fn sql(&self, template: &'static str) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.tables.render(template))
    }

    fn query(&self, template: &'static str) -> Query<'static, MySql, MySqlArguments> {
        sqlx::query(self.sql(template))
    }

    fn query_as<T>(&self, template: &'static str) -> QueryAs<'static, MySql, T, MySqlArguments>
    where
        T: for<'r> FromRow<'r, MySqlRow>,
    {
        sqlx::query_as(self.sql(template))
    }

    fn query_scalar<T>(
        &self,
        template: &'static str,
    ) -> QueryScalar<'static, MySql, T, MySqlArguments>
    where
        (T,): for<'r> FromRow<'r, MySqlRow>,
    {
        sqlx::query_scalar(self.sql(template))
    }

    /// Runs statements that need no transaction on one connection of this pool. A connection that is
    /// dropped half-way is closed.
    async fn run<T, E: Into<Error>>(
        &self,
        pool: &MySqlPool,
        statements: impl AsyncFnOnce(&mut MySqlConnection) -> Result<T, E>,
    ) -> Result<T> {
        let mut call = PooledCall::begin(pool).await?;
        let answer = statements(&mut call).await;
        call.end();
        answer.map_err(Into::into)
    }

    async fn begin(&self) -> Result<PooledTx<MySql>> {
        Ok(PooledTx::begin(&self.relay, None).await?)
    }

    async fn begin_move(&self) -> Result<PooledTx<MySql>> {
        Ok(PooledTx::begin(&self.leases, None).await?)
    }
}

impl fmt::Debug for MysqlStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MysqlStore").field("tables", &self.tables).finish_non_exhaustive()
    }
}
