//! Connections of the store's own: business transactions that use up the pool cost neither a
//! delivery nor the lease.
//!
//! A pooler in transaction mode may give every transaction another connection to the server. sqlx
//! sends a statement's text and its arguments in two steps: outside of a transaction the second
//! could meet a connection that knows nothing of the first, or knows another client's.

use std::sync::{Arc, OnceLock};
use std::time::Duration;

use sqlx::postgres::PgPoolOptions;
use sqlx::{Connection as _, PgConnection, PgPool};

use super::PostgresStore;
use crate::error::{Error, Result};

/// A plan is made once and kept for weeks. The server may make it while the table is empty, and
/// would then read all of it, also when it is full; so no statement here may be served that way,
/// unless there is no other. Those look so dear to the server then that it would compile them.
pub(super) const STEADY: &str =
    "set plan_cache_mode = force_generic_plan; set enable_seqscan = off; set jit = off";

/// One read, one settle of each kind, and something now and then.
const WORK: u32 = 4;
const LEASES: u32 = 2;
const ACQUIRE_TIMEOUT: Duration = Duration::from_secs(3);
/// A connection that was just used is not asked whether it is still there: that would take as long
/// as a small statement, and what is lost with it is asked again.
const RECENT: Duration = Duration::from_secs(1);

/// A pool that is opened when it is first used, unless one was given.
#[derive(Clone, Default)]
pub(super) struct DedicatedPool(Arc<OnceLock<PgPool>>);

impl From<PgPool> for DedicatedPool {
    fn from(pool: PgPool) -> Self {
        Self(Arc::new(OnceLock::from(pool)))
    }
}

impl PostgresStore {
    /// Runs statements on one connection of this pool. Behind a pooler they are in a transaction,
    /// which commits if all of them succeed.
    pub(super) async fn run<T, E: Into<Error>>(
        &self,
        pool: &PgPool,
        statements: impl AsyncFnOnce(&mut PgConnection) -> Result<T, E>,
    ) -> Result<T> {
        if self.named {
            let mut connection = pool.acquire().await?;
            return statements(&mut connection).await.map_err(Into::into);
        }
        let mut tx = self.begin_on(pool).await?;
        let answer = statements(&mut tx).await.map_err(Into::into)?;
        tx.commit().await?;
        Ok(answer)
    }

    /// Where rows are read, and verdicts are written.
    pub(super) fn work(&self) -> &PgPool {
        self.work.0.get_or_init(|| self.own(WORK))
    }

    /// Where leases are renewed.
    pub(super) fn leases(&self) -> &PgPool {
        self.leases.0.get_or_init(|| self.own(LEASES))
    }

    fn own(&self, most: u32) -> PgPool {
        let mut options = PgPoolOptions::new()
            .max_connections(most)
            .acquire_timeout(ACQUIRE_TIMEOUT)
            .test_before_acquire(false)
            .before_acquire(|connection, used| {
                Box::pin(
                    async move { Ok(used.idle_for < RECENT || connection.ping().await.is_ok()) },
                )
            });
        // Behind a pooler a session is anybody's, and plans are not kept.
        if self.named {
            options = options.after_connect(|connection, _| {
                Box::pin(async move { sqlx::raw_sql(STEADY).execute(connection).await.map(drop) })
            });
        }
        options.connect_lazy_with((*self.pool.connect_options()).clone())
    }
}
