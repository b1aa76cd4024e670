//! The PostgreSQL store.

mod arrays;
mod claims;
mod connections;
mod events;
mod notifications;
mod operations;
mod ownership;
#[cfg(test)]
mod place;
#[cfg(test)]
mod plan;
mod row;
mod schema;
mod settle;
mod sql;
mod statistics;

use std::{fmt, sync::Arc};

use sqlx::postgres::{PgArguments, PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::query::{Query, QueryAs, QueryScalar};
use sqlx::{AssertSqlSafe, ConnectOptions, Connection as _, FromRow, PgPool, Postgres};

use self::connections::DedicatedPool;
use crate::error::{Error, ErrorKind, Result};
use crate::pooled::PooledTx;
use crate::store::Schema;
use crate::table::{TablePrefix, Tables};

/// Keeps events in PostgreSQL 13 or newer.
///
/// The tables are in the first schema of the connection's `search_path`.
///
/// # Rights
/// A role needs `select`, `insert`, `update` and `delete` on the tables. With `select` on the sequence
/// `outbox_event_seq_seq` it also notices a `seq` that was set back; without, it does not look. The
/// right to create tables is needed only while [`migrate`](crate::store::Schema::migrate) has something to do.
///
/// # Examples
/// ```no_run
/// use pillarbox::PostgresStore;
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
        let options = plain.parse().map_err(|source| Error::invalid_url(url, source))?;
        Ok((options, is_pooled))
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
    pub fn pool(&self) -> &PgPool {
        &self.pool
    }

    fn sql(&self, template: &'static str) -> AssertSqlSafe<Arc<str>> {
        AssertSqlSafe(self.tables.render(template))
    }

    /// Behind a pooler no statement has a name, so each begins here.
    fn query(&self, template: &'static str) -> Query<'static, Postgres, PgArguments> {
        sqlx::query(self.sql(template)).persistent(self.named)
    }

    fn query_as<T>(&self, template: &'static str) -> QueryAs<'static, Postgres, T, PgArguments>
    where
        T: for<'r> FromRow<'r, PgRow>,
    {
        sqlx::query_as(self.sql(template)).persistent(self.named)
    }

    fn query_scalar<T>(
        &self,
        template: &'static str,
    ) -> QueryScalar<'static, Postgres, T, PgArguments>
    where
        (T,): for<'r> FromRow<'r, PgRow>,
    {
        sqlx::query_scalar(self.sql(template)).persistent(self.named)
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
