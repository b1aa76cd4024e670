//! The store for MySQL and MariaDB.

mod admin;
mod candidate;
mod claim;
mod heads;
mod lease;
mod migrate;
#[cfg(test)]
mod plan;
mod read;
mod server;
mod settle;
mod sql;
mod stats;
mod wait;

use std::sync::{Arc, atomic::AtomicBool};
use std::{fmt, time::Duration};

use async_trait::async_trait;
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, Executor as _, MySql, MySqlPool};

use self::server::Accepts;
use super::{
    AuditEntry, Bell, Breakdown, Claim, DeadLetter, Due, Filter, Heads, Holding, Join, Layout,
    Lease, List, Member, Mode, Operated, Operation, Pending, Promote, Purge, Read, ReadHeads,
    ReadKeys, RenewRows, Renewal, RowLease, Settle, SettleRows, Settled, Stats, Store, StoredEvent,
    Suspects, Take,
};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{EventId, OwnerId, Seq, ShardId};
use crate::pooled::{PooledCall, PooledTx};
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
/// procedures is needed only while [`migrate`](Store::migrate) has something to do.
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
/// use pillarbox::{MysqlStore, Store};
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
        let own = |connections, patience| {
            MySqlPoolOptions::new()
                .max_connections(connections)
                .acquire_timeout(Duration::from_secs(patience))
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
            url.parse().map_err(|source| Error::unreadable(url, source))?;
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

    /// The pool, for business transactions on the same database.
    pub fn pool(&self) -> &MySqlPool {
        &self.pool
    }

    fn sql(&self, template: &'static str) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.tables.render(template))
    }

    /// For statements that need no transaction.
    async fn call(&self) -> Result<PooledCall<MySql>> {
        Ok(PooledCall::begin(&self.relay).await?)
    }

    /// The same, for the lease.
    async fn lease_call(&self) -> Result<PooledCall<MySql>> {
        Ok(PooledCall::begin(&self.leases).await?)
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

#[async_trait]
impl Store for MysqlStore {
    fn name(&self) -> &'static str {
        "mysql"
    }

    fn prefix(&self) -> TablePrefix {
        self.tables.prefix().clone()
    }

    async fn migrate(&self) -> Result<()> {
        migrate::migrate(self).await
    }

    async fn layout(&self) -> Result<Layout> {
        migrate::layout(self).await
    }

    async fn mark_seq(&self) -> Result<()> {
        migrate::mark_seq(self).await
    }

    async fn configure(&self, mode: &Mode) -> Result<()> {
        migrate::configure(self, *mode).await
    }

    async fn join(&self, join: &Join) -> Result<()> {
        lease::join(self, join).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        lease::renew(self, lease).await
    }

    async fn members(&self) -> Result<Vec<Member>> {
        lease::members(self).await
    }

    async fn take(&self, take: &Take) -> Result<Vec<Holding>> {
        lease::take(self, take).await
    }

    async fn release(&self, owner: &OwnerId, holdings: &[Holding]) -> Result<u64> {
        lease::release(self, owner, holdings).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        lease::leave(self, owner).await
    }

    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        read::read(self, read).await
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        read::read_keys(self, read).await
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        heads::read_heads(self, read).await
    }

    async fn promote(&self, promote: &Promote) -> Result<Due> {
        wait::promote(self, promote).await
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        wait::postpone(self, rows).await
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        settle::settle(self, settle).await
    }

    async fn claim(&self, claim: &Claim) -> Result<Vec<Pending>> {
        claim::claim(self, claim).await
    }

    async fn renew_rows(&self, renew: &RenewRows) -> Result<Vec<Seq>> {
        claim::renew_rows(self, renew).await
    }

    async fn release_rows(&self, owner: &OwnerId, rows: &[RowLease]) -> Result<u64> {
        claim::release_rows(self, owner, rows).await
    }

    async fn reclaim(&self, rows: &[RowLease]) -> Result<u64> {
        claim::reclaim(self, rows).await
    }

    async fn suspect(&self, suspects: &Suspects) -> Result<Vec<(Seq, u32)>> {
        claim::suspect(self, suspects).await
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        claim::settle_rows(self, settle).await
    }

    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>> {
        claim::locked(self, rows).await
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        claim::count_due(self, shards).await
    }

    async fn hear(&self) -> Result<Option<Box<dyn Bell>>> {
        Ok(None)
    }

    async fn ring(&self) -> Result<()> {
        Ok(())
    }

    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        admin::dead_letters(self, list).await
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        admin::count_dead(self, filter).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        admin::operate(self, operation).await
    }

    async fn trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        admin::trail(self, id).await
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        admin::purge(self, purge).await
    }

    async fn stats(&self) -> Result<Stats> {
        stats::stats(self).await
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        stats::breakdown(self).await
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        admin::event(self, id).await
    }
}
