//! Transactions of sqlx.

#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::{fmt, iter, time::Duration};

use sqlx::{Connection as _, Database, Pool, Transaction};
// Savepoints that outlive a borrow need the trait that sqlx does not export.
use sqlx_core::transaction::TransactionManager as _;

use super::{Accept, Accepted, Begin, Insert, OpenTx, Tx};
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::event::Key;

/// A database whose sqlx transactions take events with them. Implemented here only.
pub trait Dialect: Database + private::Statements {}

impl<DB: private::Statements> Dialect for DB {}

mod private {
    use super::{Accept, Accepted, Database, Insert, Pool, Result, Transaction};

    /// What differs between the databases; each method works on an open transaction.
    pub trait Statements: Database {
        fn begin(
            pool: &Pool<Self>,
        ) -> impl Future<Output = Result<Transaction<'static, Self>>> + Send;

        /// Fails unless the database, not only sqlx, has a transaction open that can commit.
        fn prove(connection: &mut Self::Connection) -> impl Future<Output = Result<()>> + Send;

        /// Makes sure, without waiting, that a rollback finds a transaction: sqlx gives a
        /// connection back to its pool as one in a transaction when the rollback fails.
        fn revive(connection: &mut Self::Connection);

        fn insert(
            connection: &mut Self::Connection,
            insert: &Insert<'_>,
        ) -> impl Future<Output = Result<()>> + Send;

        fn accept(
            connection: &mut Self::Connection,
            accept: &Accept<'_>,
        ) -> impl Future<Output = Result<Accepted>> + Send;
    }
}

/// An owned sqlx transaction, as `outbox.begin(&pool)` opens it.
pub struct SqlxTx<DB: Dialect> {
    /// `None` only while it ends.
    tx: Option<Transaction<'static, DB>>,
}

impl<DB: Dialect> SqlxTx<DB> {
    fn open(&mut self) -> &mut Transaction<'static, DB> {
        self.tx.as_mut().expect(OWNED)
    }

    /// Nothing is written once sqlx believes the transaction over: it would commit by itself.
    fn live(&mut self) -> Result<&mut DB::Connection> {
        let tx = self.open();
        require_transaction::<DB>(tx)?;
        Ok(tx)
    }
}

const OWNED: &str = "only `commit`, `rollback` and `drop` take it, and they own it";

impl<DB: Dialect> Drop for SqlxTx<DB> {
    fn drop(&mut self) {
        if let Some(tx) = &mut self.tx {
            DB::revive(tx);
        }
    }
}

impl<DB: Dialect> fmt::Debug for SqlxTx<DB> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("SqlxTx").field("database", &DB::NAME).finish_non_exhaustive()
    }
}

impl<DB: Dialect> Begin for &Pool<DB> {
    type Tx = SqlxTx<DB>;

    async fn begin(self) -> Result<SqlxTx<DB>> {
        Ok(SqlxTx { tx: Some(DB::begin(self).await?) })
    }
}

impl<DB: Dialect> OpenTx for SqlxTx<DB> {
    type Connection = DB::Connection;

    fn connection(&self) -> &DB::Connection {
        self.tx.as_ref().expect(OWNED)
    }

    fn connection_mut(&mut self) -> &mut DB::Connection {
        self.open()
    }

    async fn insert(&mut self, insert: &Insert<'_>) -> Result<()> {
        DB::insert(self.live()?, insert).await
    }

    async fn prove(&mut self) -> Result<()> {
        DB::prove(self.live()?).await
    }

    async fn savepoint(&mut self) -> Result<()> {
        Ok(<DB::TransactionManager>::begin(self.live()?, None).await?)
    }

    async fn release(&mut self) -> Result<()> {
        Ok(<DB::TransactionManager>::commit(self.open()).await?)
    }

    async fn rollback_to(&mut self) -> Result<()> {
        Ok(<DB::TransactionManager>::rollback(self.open()).await?)
    }

    fn abandon(&mut self) {
        <DB::TransactionManager>::start_rollback(self.open());
    }

    async fn commit(mut self) -> Result<()> {
        let tx = self.tx.take().expect(OWNED);
        tx.commit().await.map_err(commit_failed)
    }

    async fn rollback(mut self) -> Result<()> {
        DB::revive(self.open());
        let tx = self.tx.take().expect(OWNED);
        Ok(tx.rollback().await?)
    }
}

impl<DB: Dialect> Tx for &mut Transaction<'_, DB> {
    async fn insert(self, insert: &Insert<'_>) -> Result<()> {
        DB::insert(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        DB::accept(self, accept).await
    }
}

#[cfg(feature = "postgres")]
impl Tx for &mut sqlx::PgConnection {
    async fn insert(self, insert: &Insert<'_>) -> Result<()> {
        insert_on::<sqlx::Postgres>(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        accept_on::<sqlx::Postgres>(self, accept).await
    }
}

#[cfg(feature = "sqlite")]
impl Tx for &mut sqlx::SqliteConnection {
    async fn insert(self, insert: &Insert<'_>) -> Result<()> {
        insert_on::<sqlx::Sqlite>(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        accept_on::<sqlx::Sqlite>(self, accept).await
    }
}

async fn insert_on<DB: Dialect>(
    connection: &mut DB::Connection,
    insert: &Insert<'_>,
) -> Result<()> {
    require_transaction::<DB>(connection)?;
    DB::insert(connection, insert).await
}

async fn accept_on<DB: Dialect>(
    connection: &mut DB::Connection,
    accept: &Accept<'_>,
) -> Result<Accepted> {
    require_transaction::<DB>(connection)?;
    DB::accept(connection, accept).await
}

fn require_transaction<DB: Database>(connection: &DB::Connection) -> Result<()> {
    if connection.is_in_transaction() {
        return Ok(());
    }
    Err(Error::new(
        ErrorKind::NoTransaction,
        "this connection has no transaction open: begin one with sqlx, and emit into that",
    ))
}

/// An answer means that the database decided against it; silence means nobody knows.
fn commit_failed(source: sqlx::Error) -> Error {
    let answered = match &source {
        sqlx::Error::Database(answer) => {
            let code = answer.code().unwrap_or_default();
            // A server that goes down may have committed before it said goodbye.
            !(code.len() == 5 && (code.starts_with("08") || code.starts_with("57P")))
        }
        _ => false,
    };
    if answered {
        return Error::from(source).leaving(TxFate::RolledBack);
    }
    let message = "the commit was sent and no answer came: it may or may not have happened";
    Error::new(ErrorKind::CommitUnknown, message).caused_by(source)
}

/// Statements are split so that none grows without bound.
fn chunks(envelopes: &[Envelope], most_rows: usize) -> impl Iterator<Item = &[Envelope]> {
    const MOST_BYTES: usize = 8 * 1024 * 1024;
    let mut rest = envelopes;
    iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(most_rows).take_while(|envelope| {
            bytes += envelope.payload().as_bytes().len();
            bytes <= MOST_BYTES
        });
        let (chunk, left) = rest.split_at(fits.count().max(1).min(rest.len()));
        rest = left;
        (!chunk.is_empty()).then_some(chunk)
    })
}

/// What a writer's key is in the `partition_key` column.
fn partition_key(envelope: &Envelope) -> Option<&str> {
    match envelope.partition_key() {
        Key::Aggregate => None,
        Key::Given(key) => Some(key),
        Key::Free => Some(""),
    }
}

/// A hundred years are as good as for ever, and never overflow a timestamp.
fn micros(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(duration.as_micros()).map_or(CENTURY, |micros| micros.min(CENTURY))
}
