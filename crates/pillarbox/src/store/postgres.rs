//! The PostgreSQL store.

mod admin;
mod claim;
mod columns;
mod dedicated;
mod due;
mod lease;
mod migrate;
mod notify;
mod pinned;
#[cfg(test)]
mod place;
#[cfg(test)]
mod plan;
mod read;
mod settle;
mod sql;
mod stats;

use std::{fmt, sync::Arc};

use async_trait::async_trait;
use sqlx::postgres::{PgConnectOptions, PgPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, PgPool, Postgres};

use self::dedicated::DedicatedPool;
use self::notify::PostgresBell;
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

/// Keeps events in PostgreSQL 13 or newer.
///
/// The tables are in the first schema of the connection's `search_path`.
///
/// # Rights
/// A role needs `select`, `insert`, `update` and `delete` on the tables. With `select` on the sequence
/// `outbox_event_seq_seq` it also notices a `seq` that was set back; without, it does not look. The
/// right to create tables is needed only while [`migrate`](Store::migrate) has something to do.
///
/// # Examples
/// ```no_run
/// use pillarbox::{PostgresStore, Store};
///
/// # async fn example() -> pillarbox::Result<()> {
/// let store = PostgresStore::connect("postgres://app@localhost/shop").await?;
/// store.migrate().await?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct PostgresStore {
    pool: PgPool,
    work: DedicatedPool,
    leases: DedicatedPool,
    tables: Tables,
    /// Whether statements have names in the server's sessions, so that they are parsed once.
    named: bool,
}

impl PostgresStore {
    /// A store on this pool, and on connections of its own while a relay runs: up to two for the
    /// lease, and up to four for events. They are opened with the pool's connect options; what its
    /// `after_connect` does is not done to them.
    pub fn new(pool: PgPool) -> Self {
        let (work, leases) = (DedicatedPool::default(), DedicatedPool::default());
        Self { pool, work, leases, tables: Tables::default(), named: true }
    }

    /// Behind a pooler in transaction mode, such as PgBouncer's: statements have no names, each is
    /// in a transaction, and commits elsewhere are noticed by polling alone.
    ///
    /// `?pooler=true` in the URL of [`connect`](Self::connect) says the same. The outbox of a relay knows
    /// it then; others say it with [`Outbox::pooler`](crate::Outbox::pooler).
    #[must_use]
    pub fn pooler(mut self) -> Self {
        self.named = false;
        self
    }

    /// Renews leases on connections of this pool, which need not go through the pooler: one that
    /// has no connection left for a renewal costs the lease.
    #[must_use]
    pub fn lease_pool(mut self, pool: PgPool) -> Self {
        self.leases = pool.into();
        self
    }

    /// Reads events and writes verdicts on connections of this pool. They should plan as the store's
    /// own do, with `plan_cache_mode = force_generic_plan`, `enable_seqscan = off` and `jit = off`: a
    /// plan made while the table is empty is kept when it is full.
    #[must_use]
    pub fn work_pool(mut self, pool: PgPool) -> Self {
        self.work = pool.into();
        self
    }

    /// Connects with a pool of its own.
    ///
    /// `?pooler=true` says that there is a [pooler](Self::pooler) in between.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`] for a URL that cannot be
    /// read or a server that says no, [`ErrorKind::Unavailable`] for a server out of reach.
    ///
    /// # Cancel safety
    /// Nothing is left behind.
    pub async fn connect(url: &str) -> Result<Self> {
        let (options, is_pooled) = Self::options(url)?;
        // One connection by hand: a pool would knock for half a minute before it says no.
        options.connect().await.map_err(Error::connecting)?.close().await?;
        let pool = PgPoolOptions::new().max_connections(10).connect_with(options).await?;
        Ok(Self { named: !is_pooled, ..Self::new(pool) })
    }

    /// What a URL says: of the server, and whether there is a pooler before it.
    pub(crate) fn options(url: &str) -> Result<(PgConnectOptions, bool)> {
        let scheme = url.to_ascii_lowercase();
        if !scheme.starts_with("postgres://") && !scheme.starts_with("postgresql://") {
            let message = "a PostgreSQL URL begins with postgres://user@host/database";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
        let (plain, is_pooled) = pooler(url)?;
        let options = plain.parse().map_err(|source| Error::unreadable(url, source))?;
        Ok((options, is_pooled))
    }

    /// On the tables whose names begin with this prefix.
    #[must_use]
    pub fn prefix(mut self, prefix: TablePrefix) -> Self {
        self.tables = Tables::new(prefix);
        self
    }

    /// The pool, for business transactions on the same database.
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn sql(&self, template: &'static str) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.tables.render(template))
    }

    /// Each statement must see what others committed, whatever the server's default isolation.
    async fn begin(&self) -> Result<PooledTx<Postgres>> {
        self.begin_on(&self.pool).await
    }

    async fn begin_on(&self, pool: &PgPool) -> Result<PooledTx<Postgres>> {
        Ok(PooledTx::begin(pool, Some("begin isolation level read committed")).await?)
    }
}

/// Takes `pooler=true` out of a URL: it is for us, not for the server.
fn pooler(url: &str) -> Result<(String, bool)> {
    let Some((base, query)) = url.split_once('?') else { return Ok((url.to_owned(), false)) };
    let (ours, others): (Vec<&str>, Vec<&str>) =
        query.split('&').partition(|pair| pair.starts_with("pooler="));
    let is_pooled = match ours.as_slice() {
        [] | ["pooler=false"] => false,
        ["pooler=true"] => true,
        _ => {
            let message = "pooler is true or false, once: postgres://…?pooler=true";
            return Err(Error::new(ErrorKind::Configuration, message));
        }
    };
    let others = others.join("&");
    let joint = if others.is_empty() { "" } else { "?" };
    Ok((format!("{base}{joint}{others}"), is_pooled))
}

impl fmt::Debug for PostgresStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PostgresStore").field("tables", &self.tables).finish_non_exhaustive()
    }
}

#[async_trait]
impl Schema for PostgresStore {
    fn name(&self) -> &'static str {
        "postgres"
    }

    fn prefix(&self) -> TablePrefix {
        self.tables.prefix().clone()
    }

    fn is_pooled(&self) -> bool {
        !self.named
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
impl Ownership for PostgresStore {
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
impl Events for PostgresStore {
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
        due::promote(self, promote).await
    }

    async fn postpone(&self, rows: &[RowLease]) -> Result<u64> {
        due::postpone(self, rows).await
    }

    async fn settle(&self, settle: &Settle) -> Result<Settled> {
        settle::settle(self, settle).await
    }

    async fn locked(&self, rows: &[RowLease]) -> Result<Vec<Seq>> {
        claim::locked(self, rows).await
    }

    async fn subscribe(&self) -> Result<Option<Box<dyn Notifications>>> {
        if !self.named {
            // LISTEN belongs to a session, and behind a pooler there is none.
            return Ok(None);
        }
        Ok(Some(Box::new(PostgresBell::connect(self).await?)))
    }

    async fn notify(&self) -> Result<()> {
        notify::notify(self).await
    }
}

#[async_trait]
impl Claims for PostgresStore {
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
        settle::settle_rows(self, settle).await
    }

    async fn count_due(&self, shards: &[ShardId]) -> Result<u64> {
        claim::count_due(self, shards).await
    }
}

#[async_trait]
impl Operations for PostgresStore {
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
impl Statistics for PostgresStore {
    async fn stats(&self) -> Result<Stats> {
        stats::stats(self).await
    }

    async fn breakdown(&self) -> Result<Breakdown> {
        stats::breakdown(self).await
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pooler_is_told_in_the_url_and_not_to_the_server() {
        let cases = [
            ("postgres://a@h/d", "postgres://a@h/d", false),
            ("postgres://a@h/d?pooler=true", "postgres://a@h/d", true),
            ("postgres://a@h/d?x=1&pooler=true&y=2", "postgres://a@h/d?x=1&y=2", true),
            ("postgres://a@h/d?pooler=false", "postgres://a@h/d", false),
        ];
        for (url, rest, is_pooled) in cases {
            assert_eq!(pooler(url).unwrap(), (rest.to_owned(), is_pooled), "{url}");
        }
        let error = pooler("postgres://a@h/d?pooler=maybe").unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
    }

    #[tokio::test]
    async fn the_outbox_of_a_relay_knows_of_the_pooler() {
        let store = || PostgresStore::new(PgPool::connect_lazy("postgres://a@h/d").unwrap());
        let is_named = |store: PostgresStore| {
            let relay = crate::Relay::new(store, crate::Listeners::new());
            relay.outbox().tables().are_statements_named()
        };

        assert!(is_named(store()));
        assert!(!is_named(store().pooler()));
    }
}
