//! A connection for one statement on its own.
//!
//! A pooler in transaction mode may give every transaction another connection to the server. sqlx
//! sends a statement's text and its arguments in two steps: outside of a transaction the second
//! could meet a connection that knows nothing of the first, or knows another client's.

use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{PgConnection, PgPool, Postgres};

use super::PostgresStore;
use crate::error::Result;
use crate::pooled::PooledTx;

/// A connection that stays the same until its statement has been answered.
pub(super) enum PinnedConnection {
    Plain(PoolConnection<Postgres>),
    /// Behind a pooler: in a transaction.
    Pinned(PooledTx<Postgres>),
}

impl PostgresStore {
    pub(super) async fn link(&self, pool: &PgPool) -> Result<PinnedConnection> {
        if self.named {
            return Ok(PinnedConnection::Plain(pool.acquire().await?));
        }
        Ok(PinnedConnection::Pinned(self.begin_on(pool).await?))
    }
}

impl PinnedConnection {
    /// The statement was answered: what it wrote is to stay.
    pub(super) async fn end(self) -> Result<()> {
        match self {
            Self::Plain(_) => Ok(()),
            Self::Pinned(tx) => Ok(tx.commit().await?),
        }
    }
}

impl Deref for PinnedConnection {
    type Target = PgConnection;

    fn deref(&self) -> &PgConnection {
        match self {
            Self::Plain(connection) => connection,
            Self::Pinned(tx) => tx,
        }
    }
}

impl DerefMut for PinnedConnection {
    fn deref_mut(&mut self) -> &mut PgConnection {
        match self {
            Self::Plain(connection) => connection,
            Self::Pinned(tx) => tx,
        }
    }
}
