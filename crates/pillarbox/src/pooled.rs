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

    /// Makes sure, without waiting, that the rollbacks that follow find a transaction with as
    /// many levels as sqlx counts.
    fn revive(connection: &mut Self::Connection, depth: usize);
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
        let answer = <DB::TransactionManager>::begin(&mut self.connection, None).await;
        self.in_doubt = false;
        answer
    }

    pub(crate) async fn release(&mut self) -> Answer {
        self.in_doubt = true;
        let answer = <DB::TransactionManager>::commit(&mut self.connection).await;
        self.in_doubt = false;
        answer
    }

    pub(crate) async fn rollback_to(&mut self) -> Answer {
        self.in_doubt = true;
        let answer = <DB::TransactionManager>::rollback(&mut self.connection).await;
        self.in_doubt = false;
        answer
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
        self.unwind_to_the_last();
        self.in_doubt = true;
        let answer = <DB::TransactionManager>::rollback(&mut self.connection).await;
        self.in_doubt = false;
        self.open = answer.is_err();
        answer
    }

    /// Leaves one level, which a rollback ends: every level that sqlx counts must be there for
    /// it, also where the database has ended the transaction by itself.
    fn unwind_to_the_last(&mut self) {
        let depth = <DB::TransactionManager>::get_transaction_depth(&self.connection);
        DB::revive(&mut self.connection, depth);
        for _ in 1..depth {
            <DB::TransactionManager>::start_rollback(&mut self.connection);
        }
    }
}

impl<DB: Dropped> Drop for PooledTx<DB> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        if !self.in_doubt {
            self.unwind_to_the_last();
        } else if !DB::KEEP_IN_DOUBT {
            self.connection.close_on_drop();
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
    fn revive(_: &mut sqlx::PgConnection, _: usize) {}
}

#[cfg(feature = "sqlite")]
impl Dropped for sqlx::Sqlite {
    /// The connection's own thread finishes or undoes what was dropped; and a database in memory
    /// would be gone with its connection.
    const KEEP_IN_DOUBT: bool = true;

    /// SQLite may have ended the transaction by itself; a live one answers BEGIN with an error,
    /// and takes a savepoint of a name that exists.
    fn revive(connection: &mut sqlx::SqliteConnection, depth: usize) {
        hand_over(connection, "begin".into_sql_str());
        for level in 1..depth {
            let savepoint = format!("savepoint _sqlx_savepoint_{level}");
            hand_over(connection, sqlx::AssertSqlSafe(savepoint).into_sql_str());
        }
    }
}

/// One poll hands the statement to the connection's thread, which runs it before what follows.
#[cfg(feature = "sqlite")]
fn hand_over(connection: &mut sqlx::SqliteConnection, statement: sqlx::SqlStr) {
    let mut handed = std::pin::pin!(sqlx::raw_sql(statement).execute(connection));
    let _ = handed.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
}
