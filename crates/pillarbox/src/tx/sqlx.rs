//! Transactions of sqlx.

mod column;
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
use self::private::Required;
use super::{Accept, Accepted, Insert, Inserted, LocalLease, Tx};
use crate::envelope::{Delivery, Envelope, Payload};
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::event::Key;
use crate::store::Status;

/// A database whose sqlx transactions take events with them. Implemented here only.
pub trait Dialect: Database + private::Statements {}

impl<DB: private::Statements> Dialect for DB {}

mod private {
    use super::{Accept, Accepted, Database, Insert, Inserted, Result};
    use crate::pooled::Dropped;

    /// Which transaction has to be open.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub enum Required {
        /// Whichever is open on the connection: the caller's own.
        Any,
        /// The one that [`Statements::BEGIN`] began, with no savepoint open in it, right before its
        /// commit: it can be told apart once.
        Begun,
    }

    /// What differs between the databases; each method works on an open transaction.
    pub trait Statements: Database + Dropped {
        /// Begins a transaction that can be told from one that is begun later on the same
        /// connection.
        const BEGIN: &'static str;

        /// Fails unless the database, not only sqlx, has the transaction open, and it can commit.
        fn prove(
            connection: &mut Self::Connection,
            required: Required,
        ) -> impl Future<Output = Result<()>> + Send;

        /// Writes all of the events, or none if the transaction is not open.
        fn insert(
            connection: &mut Self::Connection,
            insert: &Insert<'_>,
            required: Required,
        ) -> impl Future<Output = Result<Vec<Option<Inserted>>>> + Send;

        fn accept(
            connection: &mut Self::Connection,
            accept: &Accept<'_>,
        ) -> impl Future<Output = Result<Accepted>> + Send;
    }
}

impl<DB: Dialect> Tx for &mut Transaction<'_, DB> {
    async fn insert(self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        DB::insert(self, insert, Required::Any).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        DB::accept(self, accept).await
    }
}

#[cfg(feature = "mysql")]
impl Tx for &mut sqlx::MySqlConnection {
    async fn insert(self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        insert_on::<sqlx::MySql>(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        accept_on::<sqlx::MySql>(self, accept).await
    }
}

#[cfg(feature = "postgres")]
impl Tx for &mut sqlx::PgConnection {
    async fn insert(self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        insert_on::<sqlx::Postgres>(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        accept_on::<sqlx::Postgres>(self, accept).await
    }
}

#[cfg(feature = "sqlite")]
impl Tx for &mut sqlx::SqliteConnection {
    async fn insert(self, insert: &Insert<'_>) -> Result<Vec<Option<Inserted>>> {
        insert_on::<sqlx::Sqlite>(self, insert).await
    }

    async fn accept(self, accept: &Accept<'_>) -> Result<Accepted> {
        accept_on::<sqlx::Sqlite>(self, accept).await
    }
}

async fn insert_on<DB: Dialect>(
    connection: &mut DB::Connection,
    insert: &Insert<'_>,
) -> Result<Vec<Option<Inserted>>> {
    require_transaction::<DB>(connection)?;
    DB::insert(connection, insert, Required::Any).await
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

/// No transaction is open, or another one than ours.
fn ended() -> Error {
    let message = "the transaction has ended already: a COMMIT, a ROLLBACK or a DDL statement was \
        sent over its connection, or the database ended it";
    Error::new(ErrorKind::NoTransaction, message).leaving(TxFate::Ended)
}

/// The largest statement, where the server does not ask for smaller ones.
const MOST_BYTES: usize = 8 * 1024 * 1024;

/// Splits events, so that no statement grows without bound.
fn chunks(
    envelopes: &[Envelope],
    most_rows: usize,
    most_bytes: usize,
    size: impl Fn(&Envelope) -> usize,
) -> impl Iterator<Item = &[Envelope]> {
    let mut rest = envelopes;
    iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(most_rows).take_while(|envelope| {
            bytes += size(envelope);
            bytes <= most_bytes
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

/// What goes into the `payload_bytes` column.
fn bytes(envelope: &Envelope) -> Option<&[u8]> {
    match envelope.payload() {
        Payload::Json(_) => None,
        Payload::Bytes(bytes) => Some(bytes),
    }
}

/// The lease that an event is born under, if it goes hot.
fn lease<'a>(insert: &Insert<'a>, envelope: &Envelope) -> Option<LocalLease<'a>> {
    insert.hot.filter(|_| LocalLease::leases(envelope))
}

fn token(insert: &Insert<'_>, envelope: &Envelope) -> i32 {
    lease(insert, envelope).map_or(0, |_| LocalLease::TOKEN.0)
}

/// New, or waiting where the event is delayed.
fn status(envelope: &Envelope) -> i16 {
    let is_delayed = match envelope.delivery() {
        Delivery::AtOnce => false,
        Delivery::At(_) => true,
        Delivery::After(delay) => !delay.is_zero(),
    };
    if is_delayed { Status::Waiting.code() } else { Status::New.code() }
}

/// What is asked about the rows that an insert writes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asked {
    Nothing,
    /// Where they are.
    Places,
    /// And whether something of their key is before them.
    Turns,
}

impl Asked {
    fn by(insert: &Insert<'_>) -> Self {
        let Some(hot) = insert.hot else { return Self::Nothing };
        let mut asked =
            insert.envelopes.iter().filter(|envelope| hot.wants_position(envelope)).peekable();
        if asked.peek().is_none() {
            Self::Nothing
        } else if asked.any(Envelope::is_ordered) {
            Self::Turns
        } else {
            Self::Places
        }
    }
}

/// Nobody asked.
fn no_places(insert: &Insert<'_>) -> Vec<Option<Inserted>> {
    vec![None; if insert.hot.is_some() { insert.envelopes.len() } else { 0 }]
}

/// The place of each event, of those asked for: `seq` follows the order of the events.
fn places_of(insert: &Insert<'_>, mut places: Vec<Inserted>) -> Vec<Option<Inserted>> {
    places.sort_unstable_by_key(|place| place.seq);
    let is_asked = |envelope: &Envelope| insert.hot.is_some_and(|hot| hot.wants_position(envelope));
    let events = insert.envelopes.iter().zip(places);
    events.map(|(envelope, place)| is_asked(envelope).then_some(place)).collect()
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
