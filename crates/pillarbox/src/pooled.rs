//! A transaction on a pooled connection that never poisons its pool, wherever it is dropped.
//!
//! `sqlx::Transaction` is not safe to drop at every await: on PostgreSQL a BEGIN dropped before
//! its answer leaves the connection in the pool *inside* a transaction, where the next statement
//! commits with nobody; a nested one dropped half-way rolls the outer one back. On SQLite a
//! transaction that the database ended by itself comes back as one still open.

use std::fmt;
use std::ops::{Deref, DerefMut};

use sqlx::pool::PoolConnection;
use sqlx::{Database, Pool, SqlSafeStr as _};
// What `sqlx::Transaction` is made of; sqlx itself does not export it.
use sqlx_core::transaction::TransactionManager as _;

/// An open transaction; dropping it rolls it back.
pub(crate) struct PooledTx<DB: Dropped> {
    connection: PoolConnection<DB>,
    /// Neither committed nor rolled back, as far as we know.
    open: bool,
    /// A call that opens or ends something is under way; dropped then, nobody knows its outcome.
    in_doubt: bool,
}

/// What a database needs when a transaction is dropped.
pub trait Dropped: Database {
    /// Whether the connection is worth keeping after a call was dropped half-way.
    const KEEP_IN_DOUBT: bool;

    /// Makes sure, without waiting, that the rollback that follows finds a transaction.
    fn revive(connection: &mut Self::Connection);
}

type Answer = Result<(), sqlx::Error>;

impl<DB: Dropped> PooledTx<DB> {
    /// Begins with this statement, or with plain BEGIN.
    pub(crate) async fn begin(
        pool: &Pool<DB>,
        statement: Option<&'static str>,
    ) -> Result<Self, sqlx::Error> {
        let mut tx = Self { connection: pool.acquire().await?, open: true, in_doubt: true };
        let statement = statement.map(|begin| begin.into_sql_str());
        <DB::TransactionManager>::begin(&mut tx.connection, statement).await?;
        tx.in_doubt = false;
        Ok(tx)
    }

    pub(crate) async fn savepoint(&mut self) -> Answer {
        self.in_doubt = true;
        <DB::TransactionManager>::begin(&mut self.connection, None).await?;
        self.in_doubt = false;
        Ok(())
    }

    pub(crate) async fn release(&mut self) -> Answer {
        self.in_doubt = true;
        <DB::TransactionManager>::commit(&mut self.connection).await?;
        self.in_doubt = false;
        Ok(())
    }

    pub(crate) async fn rollback_to(&mut self) -> Answer {
        self.in_doubt = true;
        <DB::TransactionManager>::rollback(&mut self.connection).await?;
        self.in_doubt = false;
        Ok(())
    }

    /// Rolls back to the innermost savepoint before anything else happens.
    pub(crate) fn abandon(&mut self) {
        <DB::TransactionManager>::start_rollback(&mut self.connection);
    }

    pub(crate) async fn commit(mut self) -> Answer {
        self.in_doubt = true;
        let committed = <DB::TransactionManager>::commit(&mut self.connection).await;
        self.in_doubt = false;
        self.open = committed.is_err();
        committed
    }

    pub(crate) async fn rollback(mut self) -> Answer {
        DB::revive(&mut self.connection);
        self.in_doubt = true;
        <DB::TransactionManager>::rollback(&mut self.connection).await?;
        (self.in_doubt, self.open) = (false, false);
        Ok(())
    }
}

impl<DB: Dropped> Drop for PooledTx<DB> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if self.in_doubt && !DB::KEEP_IN_DOUBT {
            self.connection.close_on_drop();
        }
        if !self.in_doubt {
            DB::revive(&mut self.connection);
        }
        <DB::TransactionManager>::start_rollback(&mut self.connection);
    }
}

impl<DB: Dropped> Deref for PooledTx<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

impl<DB: Dropped> DerefMut for PooledTx<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

impl<DB: Dropped> fmt::Debug for PooledTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PooledTx").field("database", &DB::NAME).finish_non_exhaustive()
    }
}

#[cfg(feature = "postgres")]
impl Dropped for sqlx::Postgres {
    const KEEP_IN_DOUBT: bool = false;

    /// PostgreSQL answers a rollback without a transaction with a warning.
    fn revive(_: &mut sqlx::PgConnection) {}
}

#[cfg(feature = "sqlite")]
impl Dropped for sqlx::Sqlite {
    /// The connection's own thread finishes or undoes what was dropped; and a database in memory
    /// would be gone with its connection.
    const KEEP_IN_DOUBT: bool = true;

    /// SQLite may have ended the transaction by itself; a live one answers BEGIN with an error.
    /// One poll hands the statement to the connection's thread, which runs it before the rollback.
    fn revive(connection: &mut sqlx::SqliteConnection) {
        let mut begin = std::pin::pin!(sqlx::raw_sql("begin").execute(connection));
        let _ = begin.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
    }
}
