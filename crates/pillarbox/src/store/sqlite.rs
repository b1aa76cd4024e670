//! The SQLite store.

mod admin;
mod claim;
mod lease;
mod migrate;
mod open;
#[cfg(test)]
mod plan;
mod read;
mod settle;
mod sql;
mod stats;
mod wait;

use std::{
    fmt,
    sync::{Arc, OnceLock},
};

use async_trait::async_trait;
use sqlx::sqlite::SqliteConnectOptions;
use sqlx::{AssertSqlSafe, Sqlite, SqlitePool};

use super::{
    AcquireShards, AuditEntry, Breakdown, Claim, Claims, DeadLetter, DeliveryMode, Due, Events,
    Filter, Heads, Join, Lease, List, Member, Notifications, Operated, Operation, Operations,
    OutboxConfig, OwnedShard, Ownership, Pending, Promote, Purge, Read, ReadHeads, ReadKeys,
    RenewRows, Renewal, RowLease, Schema, Settle, SettleRows, Settled, Starts, Statistics, Stats,
    StoredEvent,
};
use crate::error::{Error, ErrorKind, Result};
use crate::id::{EventId, OwnerId, Seq, ShardId};
use crate::pooled::PooledTx;
use crate::table::{TablePrefix, Tables};

/// Keeps events in a SQLite file: the embedded default, for one machine.
///
/// Several processes may share the file; one relay at a time delivers.
///
/// # Examples
/// ```no_run
/// use pillarbox::SqliteStore;
/// use pillarbox::store::Schema as _;
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
        url.parse().map_err(|source| Error::unreadable(url, source))
    }

    /// On the tables whose names begin with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = Tables::with_clock(prefix, sql::NOW);
        self
    }

    /// The pool, for business transactions on the same database.
    pub fn pool(&self) -> &SqlitePool {
        &self.pool
    }

    fn sql(&self, template: &'static str) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.tables.render(template))
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

#[async_trait]
impl Schema for SqliteStore {
    fn name(&self) -> &'static str {
        "sqlite"
    }

    fn prefix(&self) -> TablePrefix {
        self.tables.prefix().clone()
    }

    fn is_pooled(&self) -> bool {
        false
    }

    async fn migrate(&self) -> Result<()> {
        migrate::migrate(self).await
    }

    async fn config(&self) -> Result<OutboxConfig> {
        migrate::layout(self).await
    }

    async fn mark_seq(&self) -> Result<()> {
        migrate::mark_seq(self).await
    }

    async fn configure(&self, mode: &DeliveryMode) -> Result<()> {
        migrate::configure(self, *mode).await
    }
}

#[async_trait]
impl Ownership for SqliteStore {
    async fn join(&self, join: &Join) -> Result<()> {
        lease::join(self, join).await
    }

    async fn renew(&self, lease: &Lease) -> Result<Renewal> {
        lease::renew(self, lease).await
    }

    async fn members(&self) -> Result<Vec<Member>> {
        lease::members(self).await
    }

    async fn acquire_shards(&self, acquire: &AcquireShards) -> Result<Vec<OwnedShard>> {
        lease::acquire_shards(self, acquire).await
    }

    async fn release(&self, owner: &OwnerId, holdings: &[OwnedShard]) -> Result<u64> {
        lease::release(self, owner, holdings).await
    }

    async fn leave(&self, owner: &OwnerId) -> Result<()> {
        lease::leave(self, owner).await
    }
}

#[async_trait]
impl Events for SqliteStore {
    async fn read(&self, read: &Read) -> Result<Vec<Pending>> {
        read::read(self, read).await
    }

    async fn read_keys(&self, read: &ReadKeys) -> Result<Vec<Pending>> {
        read::read_keys(self, read).await
    }

    async fn read_heads(&self, read: &ReadHeads) -> Result<Heads> {
        read::read_heads(self, read).await
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

    async fn locked(&self, _: &[RowLease]) -> Result<Vec<Seq>> {
        // SQLite locks the whole file, never a row.
        Ok(Vec::new())
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        Ok(None)
    }

    async fn notify(&self) -> Result<()> {
        Ok(())
    }
}

#[async_trait]
impl Claims for SqliteStore {
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

    async fn record_starts(&self, starts: &Starts) -> Result<Vec<(Seq, u32)>> {
        claim::record_starts(self, starts).await
    }

    async fn settle_rows(&self, settle: &SettleRows) -> Result<Vec<Seq>> {
        claim::settle_rows(self, settle).await
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        claim::count_due(self, shards).await
    }
}

#[async_trait]
impl Operations for SqliteStore {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>> {
        admin::dead_letters(self, list).await
    }

    async fn count_dead(&self, filter: &Filter) -> Result<u64> {
        admin::count_dead(self, filter).await
    }

    async fn operate(&self, operation: &Operation) -> Result<Operated> {
        admin::operate(self, operation).await
    }

    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>> {
        admin::audit_trail(self, id).await
    }

    async fn purge(&self, purge: &Purge) -> Result<u64> {
        admin::purge(self, purge).await
    }

    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>> {
        admin::event(self, id).await
    }
}

#[async_trait]
impl Statistics for SqliteStore {
    async fn stats(&self) -> Result<Stats> {
        stats::stats(self).await
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        stats::breakdown(self).await
    }
}
