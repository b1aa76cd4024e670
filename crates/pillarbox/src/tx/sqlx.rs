//! Transactions of sqlx.

#[cfg(feature = "mysql")]
mod mysql;
mod open;
#[cfg(feature = "postgres")]
mod postgres;
#[cfg(feature = "sqlite")]
mod sqlite;

use std::{collections::HashSet, iter};

use sqlx::{Connection as _, Database, Transaction};

pub use self::open::SqlxTx;
use super::{Accept, Accepted, Insert, Tx};
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::event::Key;

/// A database whose sqlx transactions take events with them. Implemented here only.
pub trait Dialect: Database + private::Statements {}

impl<DB: private::Statements> Dialect for DB {}

mod private {
    use super::{Accept, Accepted, Database, Insert, Result};
    use crate::pooled::Dropped;

    /// What differs between the databases; each method works on an open transaction.
    pub trait Statements: Database + Dropped {
        /// How a transaction begins, where plain BEGIN will not do.
        const BEGIN: Option<&'static str>;

        /// Fails unless the database, not only sqlx, has a transaction open that can commit.
        fn prove(connection: &mut Self::Connection) -> impl Future<Output = Result<()>> + Send;

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

impl<DB: Dialect> Tx for &mut Transaction<'_, DB> {
    async fn insert(self, insert: &Insert<'_>) -> Result<()> {
        DB::insert(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        DB::accept(self, accept).await
    }
}

#[cfg(feature = "mysql")]
impl Tx for &mut sqlx::MySqlConnection {
    async fn insert(self, insert: &Insert<'_>) -> Result<()> {
        insert_on::<sqlx::MySql>(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        accept_on::<sqlx::MySql>(self, accept).await
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
        "sqlx has no transaction open on this connection: begin one with sqlx, and emit into \
         that (a BEGIN sent by hand is not seen)",
    ))
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

/// Names the id that exists already, as far as it can be told.
fn duplicate(envelopes: &[Envelope]) -> String {
    let mut seen = HashSet::new();
    let twice = envelopes.iter().find(|envelope| !seen.insert(envelope.event_id()));
    match (twice, envelopes) {
        (Some(envelope), _) => {
            format!("two of these events have the same id (event={})", envelope.event_id())
        }
        (None, [envelope]) => {
            format!("an event with this id exists already (event={})", envelope.event_id())
        }
        (None, _) => format!("one of these {} events exists already", envelopes.len()),
    }
}
