//! A transaction on a pooled connection that never poisons its pool, wherever it is dropped.
//!
//! `sqlx::Transaction` is not safe to drop at every await: on PostgreSQL a BEGIN dropped before
//! its answer leaves the connection in the pool *inside* a transaction, where the next statement
//! commits with nobody; a nested one dropped half-way rolls the outer one back. On SQLite a
//! transaction that the database ended by itself comes back as one still open. On MySQL a statement
//! that is dropped while it is being prepared leaves answers behind that nobody takes: the next
//! call waits for ever, or takes them for its own.

use std::ops::{Deref, DerefMut};
use std::{fmt, mem, time::Duration};

use sqlx::pool::PoolConnection;
use sqlx::{Connection as _, Database, Pool, SqlSafeStr as _};
// What `sqlx::Transaction` is made of; sqlx itself does not export it.
use sqlx_core::transaction::TransactionManager as _;

use crate::error::sqlx::number;

/// An open transaction; dropping it rolls it back.
pub(crate) struct PooledTx<DB: Dropped> {
    connection: PoolConnection<DB>,
    /// Neither committed nor rolled back, as far as we know.
    open: bool,
    /// A call that opens or ends something is under way; dropped then, nobody knows its outcome.
    in_doubt: bool,
    /// A rollback to a savepoint was handed over, and its answer has not been taken yet.
    answer_due: bool,
    /// A call of the caller's was dropped half-way: nothing that follows can be believed.
    garbled: bool,
    /// A rollback to a savepoint found none: a statement had ended the transaction before.
    pub(crate) has_ended: bool,
    /// The answer to a rollback to a savepoint did not come: the connection is lost.
    pub(crate) is_lost: bool,
}

/// What a database needs when a transaction is dropped.
pub trait Dropped: Database {
    /// Whether the connection is worth keeping after a call was dropped half-way.
    const KEEP_IN_DOUBT: bool;

    /// Whether it is worth keeping after an open transaction was dropped: a call of the caller's
    /// may have been dropped with it.
    const KEEP_OPEN: bool;

    /// Whether no call is under way on the connection, as far as can be told without waiting.
    fn is_idle(connection: &mut Self::Connection) -> bool;

    /// Makes sure, without waiting, that the rollbacks that follow find a transaction with as
    /// many levels as sqlx counts.
    fn revive(connection: &mut Self::Connection, depth: usize);
}

/// How long a server may take over a rollback to a savepoint.
const ANSWER: Duration = Duration::from_secs(3);

type Answer = Result<(), sqlx::Error>;

impl<DB: Dropped> PooledTx<DB> {
    /// Begins with this statement, or with plain BEGIN.
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
            garbled: false,
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

    /// Fails when a call of the caller's was dropped half-way, and left the connection of a
    /// database without an answer to it that can be told from others.
    pub(crate) async fn is_sound(&mut self) -> bool {
        if self.garbled {
            return false;
        }
        // What was handed over is answered, or the answers do not belong together any more.
        let sound = if mem::take(&mut self.answer_due) {
            let answer = tokio::time::timeout(ANSWER, self.connection.flush()).await;
            self.has_ended = matches!(&answer, Ok(Err(refused)) if has_ended(refused));
            let sound = matches!(answer, Ok(Ok(())));
            self.is_lost = !sound && !self.has_ended;
            sound
        } else {
            DB::is_idle(&mut self.connection)
        };
        self.garbled = !sound;
        sound
    }

    /// Rolls back to the innermost savepoint before anything else happens.
    pub(crate) fn abandon(&mut self) {
        if self.garbled || !(self.answer_due || DB::is_idle(&mut self.connection)) {
            self.garbled = true;
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
            // Dropped, and with it the connection: the server rolls back.
            return Ok(());
        }
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

/// Whether the database refused a statement because the transaction, or the savepoint that it
/// names, is not there any more.
pub(crate) fn has_ended(refused: &sqlx::Error) -> bool {
    let Some(answer) = refused.as_database_error() else { return false };
    let code = answer.code().unwrap_or_default();
    // PostgreSQL: no transaction, no such savepoint. MySQL's number says the same of a savepoint.
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
            self.unwind_to_the_last();
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

/// A connection for statements outside of a transaction; closed when it is dropped before the end.
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

    /// Every statement was answered: the connection goes back to its pool.
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

    /// Its answer is at hand only if there is none to wait for.
    fn is_idle(connection: &mut sqlx::MySqlConnection) -> bool {
        let mut flushed = std::pin::pin!(connection.flush());
        let mut context = std::task::Context::from_waker(std::task::Waker::noop());
        matches!(flushed.as_mut().poll(&mut context), std::task::Poll::Ready(Ok(())))
    }

    /// MySQL answers a rollback without a transaction with success.
    fn revive(_: &mut sqlx::MySqlConnection, _: usize) {}
}

#[cfg(feature = "postgres")]
impl Dropped for sqlx::Postgres {
    const KEEP_IN_DOUBT: bool = false;
    const KEEP_OPEN: bool = true;

    /// Answers that nobody took are told by the protocol, and skipped.
    fn is_idle(_: &mut sqlx::PgConnection) -> bool {
        true
    }

    /// PostgreSQL answers a rollback without a transaction with a warning.
    fn revive(_: &mut sqlx::PgConnection, _: usize) {}
}

#[cfg(feature = "sqlite")]
impl Dropped for sqlx::Sqlite {
    /// The connection's own thread finishes or undoes what was dropped; and a database in memory
    /// would be gone with its connection.
    const KEEP_IN_DOUBT: bool = true;
    const KEEP_OPEN: bool = true;

    /// Answers come through a channel of each call's own.
    fn is_idle(_: &mut sqlx::SqliteConnection) -> bool {
        true
    }

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
