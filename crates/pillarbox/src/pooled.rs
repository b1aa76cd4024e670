//! A transaction on a pooled connection that is safe to drop at every await.
//!
//! `sqlx::Transaction` is not: on PostgreSQL a BEGIN dropped before its answer leaves the
//! connection in the pool *inside* a transaction, where later statements never commit; a nested
//! begin that is dropped rolls the outer transaction back. On SQLite a transaction that the
//! database ended returns to the pool as an open one. On MySQL a statement that is dropped while it
//! is being prepared leaves unread answers on the connection: the next call waits for ever, or
//! reads them as its own.

use std::ops::{Deref, DerefMut};
use std::{fmt, mem, time::Duration};

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Database, Pool, SqlSafeStr as _};
// The implementation of `sqlx::Transaction`, which sqlx itself does not export.
use sqlx_core::transaction::TransactionManager as _;

use crate::error::sqlx::number;

/// An open transaction; dropping it rolls it back.
pub(crate) struct PooledTx<DB: Dropped> {
    connection: PoolConnection<DB>,
    /// Whether it is neither committed nor rolled back, as far as is known.
    open: bool,
    /// Whether a begin, commit or rollback is unanswered, so that its outcome is unknown.
    in_doubt: bool,
    /// Whether a rollback to a savepoint was sent and its answer was not read yet.
    answer_due: bool,
    /// Whether a call of the caller's was cancelled, so that later answers cannot be trusted.
    desynchronized: bool,
    /// Whether a rollback to a savepoint failed because a statement had ended the transaction.
    pub(crate) has_ended: bool,
    /// Whether the answer to a rollback to a savepoint timed out: the connection is lost.
    pub(crate) is_lost: bool,
}

/// How a database handles a dropped transaction.
pub trait Dropped: Database {
    /// Whether to keep the connection after a begin, commit or rollback was cancelled.
    const KEEP_IN_DOUBT: bool;

    /// Whether to keep the connection after an open transaction was dropped, possibly together with
    /// a call of the caller's.
    const KEEP_OPEN: bool;

    /// Returns whether no call is running on the connection, as far as is known without waiting.
    fn is_idle(connection: &mut Self::Connection) -> bool;

    /// Ensures, without waiting, that the following rollbacks find as many transaction levels as
    /// sqlx counts.
    fn revive(connection: &mut Self::Connection, depth: usize);
}

/// The time limit of a rollback to a savepoint.
const ROLLBACK_TIMEOUT: Duration = Duration::from_secs(3);

type Answer = Result<(), sqlx::Error>;

impl<DB: Dropped> PooledTx<DB> {
    /// Begins a transaction with this statement, or with BEGIN.
    pub(crate) async fn begin(
        pool: &Pool<DB>,
        statement: Option<&'static str>,
    ) -> Result<Self, sqlx::Error> {
        let connection = pool.acquire().await?;
        let mut tx = Self {
            connection,
            open: true,
            in_doubt: true,
            answer_due: false,
            desynchronized: false,
            is_lost: false,
            has_ended: false,
        };
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

    /// Returns whether answers on the connection can be trusted. They cannot after a call of the
    /// caller's was cancelled, if the protocol does not match answers with calls.
    pub(crate) async fn is_sound(&mut self) -> bool {
        if self.desynchronized {
            return false;
        }
        // The rollback must be answered, otherwise later answers cannot be matched.
        let sound = if mem::take(&mut self.answer_due) {
            let answer = tokio::time::timeout(ROLLBACK_TIMEOUT, self.connection.flush()).await;
            self.has_ended = matches!(&answer, Ok(Err(refused)) if has_ended(refused));
            let sound = matches!(answer, Ok(Ok(())));
            self.is_lost = !sound && !self.has_ended;
            sound
        } else {
            DB::is_idle(&mut self.connection)
        };
        self.desynchronized = !sound;
        sound
    }

    /// Rolls back to the innermost savepoint before the next statement.
    pub(crate) fn abandon(&mut self) {
        if self.desynchronized || !(self.answer_due || DB::is_idle(&mut self.connection)) {
            self.desynchronized = true;
            return;
        }
        self.answer_due = !DB::KEEP_OPEN;
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
        if !self.is_sound().await {
            // The connection is closed by the drop, and the server rolls back.
            return Ok(());
        }
        self.roll_back_to_outermost();
        self.in_doubt = true;
        let answer = <DB::TransactionManager>::rollback(&mut self.connection).await;
        self.in_doubt = false;
        self.open = answer.is_err();
        answer
    }

    /// Rolls back all levels except the outermost one. Every level that sqlx counts must exist,
    /// also if the database has ended the transaction.
    fn roll_back_to_outermost(&mut self) {
        let depth = <DB::TransactionManager>::get_transaction_depth(&self.connection);
        DB::revive(&mut self.connection, depth);
        for _ in 1..depth {
            <DB::TransactionManager>::start_rollback(&mut self.connection);
        }
    }
}

/// Returns whether the database rejected a statement because the transaction or the savepoint does
/// not exist any more.
pub(crate) fn has_ended(refused: &sqlx::Error) -> bool {
    let Some(answer) = refused.as_database_error() else { return false };
    let code = answer.code().unwrap_or_default();
    // PostgreSQL: no transaction, no such savepoint. MySQL: 1305, no such savepoint.
    matches!(&*code, "25P01" | "3B001")
        || number(answer) == Some(1305)
        || answer.message().starts_with("no such savepoint")
}

impl<DB: Dropped> Drop for PooledTx<DB> {
    fn drop(&mut self) {
        if !self.open {
            return;
        }
        let keep = if self.in_doubt { DB::KEEP_IN_DOUBT } else { DB::KEEP_OPEN };
        if !keep {
            self.connection.close_on_drop();
        } else if !self.in_doubt {
            self.roll_back_to_outermost();
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

/// A connection for statements outside of a transaction, which is closed if it is dropped early.
#[cfg(feature = "mysql")]
pub(crate) struct PooledCall<DB: Database> {
    connection: PoolConnection<DB>,
    ended: bool,
}

#[cfg(feature = "mysql")]
impl<DB: Database> PooledCall<DB> {
    pub(crate) async fn begin(pool: &Pool<DB>) -> Result<Self, sqlx::Error> {
        Ok(Self { connection: pool.acquire().await?, ended: false })
    }

    /// Returns the connection to its pool, after every statement was answered.
    pub(crate) fn end(mut self) {
        self.ended = true;
    }
}

#[cfg(feature = "mysql")]
impl<DB: Database> Drop for PooledCall<DB> {
    fn drop(&mut self) {
        if !self.ended {
            self.connection.close_on_drop();
        }
    }
}

#[cfg(feature = "mysql")]
impl<DB: Database> Deref for PooledCall<DB> {
    type Target = DB::Connection;

    fn deref(&self) -> &DB::Connection {
        &self.connection
    }
}

#[cfg(feature = "mysql")]
impl<DB: Database> DerefMut for PooledCall<DB> {
    fn deref_mut(&mut self) -> &mut DB::Connection {
        &mut self.connection
    }
}

#[cfg(feature = "mysql")]
impl Dropped for sqlx::MySql {
    const KEEP_IN_DOUBT: bool = false;
    const KEEP_OPEN: bool = false;

    /// A flush completes at once only if no answer is outstanding.
    fn is_idle(connection: &mut sqlx::MySqlConnection) -> bool {
        let mut flushed = std::pin::pin!(connection.flush());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        matches!(flushed.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(())))
    }

    /// Does nothing: a rollback without a transaction succeeds.
    fn revive(_: &mut sqlx::MySqlConnection, _: usize) {}
}

#[cfg(feature = "postgres")]
impl Dropped for sqlx::Postgres {
    const KEEP_IN_DOUBT: bool = false;
    const KEEP_OPEN: bool = true;

    /// Returns true: the protocol lets sqlx skip unread answers.
    fn is_idle(_: &mut sqlx::PgConnection) -> bool {
        true
    }

    /// Does nothing: a rollback without a transaction only causes a warning.
    fn revive(_: &mut sqlx::PgConnection, _: usize) {}
}

#[cfg(feature = "sqlite")]
impl Dropped for sqlx::Sqlite {
    // The connection's own thread finishes or undoes a cancelled call, and an in-memory database
    // would be lost with its connection.
    const KEEP_IN_DOUBT: bool = true;
    const KEEP_OPEN: bool = true;

    /// Returns true: each call has its own channel for answers.
    fn is_idle(_: &mut sqlx::SqliteConnection) -> bool {
        true
    }

    /// Begins again, because SQLite may have ended the transaction. In an open one BEGIN fails, and
    /// a savepoint may have the name of another one.
    fn revive(connection: &mut sqlx::SqliteConnection, depth: usize) {
        hand_over(connection, "begin".into_sql_str());
        for level in 1..depth {
            let savepoint = format!("savepoint _sqlx_savepoint_{level}");
            hand_over(connection, sqlx::AssertSqlSafe(savepoint).into_sql_str());
        }
    }
}

/// Sends a statement to the connection's thread with one poll; it runs before later statements.
#[cfg(feature = "sqlite")]
fn hand_over(connection: &mut sqlx::SqliteConnection, statement: sqlx::SqlStr) {
    let mut handed = std::pin::pin!(sqlx::raw_sql(statement).execute(connection));
    let _ = handed.as_mut().poll(&mut std::task::Context::from_waker(std::task::Waker::noop()));
}
