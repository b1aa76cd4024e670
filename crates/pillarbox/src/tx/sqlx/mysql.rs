//! Rows into a MySQL or MariaDB transaction.

use sqlx::{
    AssertSqlSafe, Executor as _, MySql, MySqlConnection, QueryBuilder, SqlStr, Statement as _,
};
use time::{OffsetDateTime, PrimitiveDateTime};

use super::private::Statements;
use super::{chunks, duplicate, partition_key};
use crate::clock::{Timestamp, micros};
use crate::envelope::{Delivery, Envelope, Payload};
use crate::error::sqlx::number;
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::tx::{Accept, Accepted, Insert};

const INSERT: &str = "
insert into {p}outbox_event (
    event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, tenant_id,
    payload, payload_bytes, content_type, headers, occurred_at, available_at) ";

/// Stands around a value that must not be null: the statement itself fails where no transaction is
/// open. Only MariaDB reads the inner comment, and only it has that variable. Without autocommit
/// a statement opens a transaction by itself, and the variable says nothing.
const GUARD: &str = "if(@@autocommit = 1 /*M!100000 and @@in_transaction = 1 */, ";

/// Waits for a transaction that holds the same note uncommitted. No `on duplicate key`: sqlx asks
/// for rows found, and one found looks like one inserted.
const ACCEPT: &str = "
insert into {p}inbox_processed (consumer_name, source, event_id, tenant_id, payload_hash)
values (if(@@autocommit = 1 /*M!100000 and @@in_transaction = 1 */, ?, null), ?, ?, ?, ?)";

/// A locking read: at REPEATABLE READ a plain one may not see what stood in the way.
const ACCEPTED_BEFORE: &str = "
select payload_hash from {p}inbox_processed
where consumer_name = ? and source = ? and event_id = ?
lock in share mode";

/// Outside of a transaction a savepoint is none, and cannot be released.
const PROVE: &str =
    "savepoint pillarbox_proof; release savepoint pillarbox_proof; select @@autocommit";

const UNDO: &str = "rollback to savepoint pillarbox_emit; release savepoint pillarbox_emit";

/// MariaDB gives two columns, every other server one. A statement is prepared once on each
/// connection: asking again costs nothing.
const IS_MARIADB: &str = "select 1 /*M!100000 , 1 */";

const MOST_ROWS: usize = 500;

impl Statements for MySql {
    const BEGIN: Option<&'static str> = None;

    /// A deadlock or a DDL statement ends a transaction, and what follows commits statement by
    /// statement.
    async fn prove(connection: &mut MySqlConnection) -> Result<()> {
        let autocommit: i64 = match sqlx::raw_sql(PROVE).fetch_one(connection).await {
            Ok(row) => sqlx::Row::try_get(&row, 0)?,
            Err(sqlx::Error::Database(answer)) if number(&*answer) == Some(1305) => {
                return Err(ended());
            }
            Err(error) => return Err(error.into()),
        };
        if autocommit == 1 { Ok(()) } else { Err(no_autocommit()) }
    }

    async fn insert(connection: &mut MySqlConnection, insert: &Insert<'_>) -> Result<()> {
        prove_unless_guarded(connection).await?;
        let sql = insert.tables.render(INSERT);
        let batches: Vec<_> = chunks(insert.envelopes, MOST_ROWS).collect();
        if let [envelopes] = *batches {
            return write(connection, &sql, envelopes).await;
        }
        // A refused statement undoes itself alone: what went before it must go too.
        sqlx::raw_sql("savepoint pillarbox_emit").execute(&mut *connection).await?;
        for envelopes in batches {
            if let Err(error) = write(connection, &sql, envelopes).await {
                // It may be gone with the whole transaction; what failed first is the news.
                let _ = sqlx::raw_sql(UNDO).execute(connection).await;
                return Err(error);
            }
        }
        sqlx::raw_sql("release savepoint pillarbox_emit").execute(connection).await?;
        Ok(())
    }

    async fn accept(connection: &mut MySqlConnection, accept: &Accept<'_>) -> Result<Accepted> {
        prove_unless_guarded(connection).await?;
        let noted = sqlx::query(AssertSqlSafe(accept.tables.render(ACCEPT)))
            .bind(accept.consumer)
            .bind(accept.source)
            .bind(accept.event_id)
            .bind(accept.tenant_id)
            .bind(accept.payload_hash.as_bytes().as_slice())
            .execute(&mut *connection)
            .await;
        match noted {
            Ok(_) => return Ok(Accepted::FirstTime),
            Err(sqlx::Error::Database(answer)) if answer.is_unique_violation() => {}
            Err(error) => return Err(refused(error, &[])),
        }
        let known: Vec<u8> =
            sqlx::query_scalar(AssertSqlSafe(accept.tables.render(ACCEPTED_BEFORE)))
                .bind(accept.consumer)
                .bind(accept.source)
                .bind(accept.event_id)
                .fetch_one(connection)
                .await
                .map_err(|error| refused(error, &[]))?;
        let same = known == accept.payload_hash.as_bytes();
        if same { Ok(Accepted::Duplicate) } else { Ok(Accepted::Conflict) }
    }
}

/// MySQL has nothing that the statement itself could look at: another one looks right before it.
async fn prove_unless_guarded(connection: &mut MySqlConnection) -> Result<()> {
    let probe = (&mut *connection).prepare(SqlStr::from_static(IS_MARIADB)).await?;
    if probe.columns().len() == 2 { Ok(()) } else { MySql::prove(connection).await }
}

async fn write(connection: &mut MySqlConnection, sql: &str, envelopes: &[Envelope]) -> Result<()> {
    let mut insert = QueryBuilder::<MySql>::new(sql);
    insert.push_values(envelopes, |mut row, envelope| {
        let (at, delay) = due(envelope);
        row.push_bind(envelope.event_id().as_str())
            .push(GUARD)
            .push_bind_unseparated(envelope.event_type().as_str())
            .push_unseparated(", null)")
            .push_bind(i64::from(envelope.event_version()))
            .push_bind(envelope.aggregate_type().as_str())
            .push_bind(envelope.aggregate_id())
            .push_bind(partition_key(envelope))
            .push_bind(envelope.tenant_id())
            .push_bind(envelope.payload().as_json())
            .push_bind(bytes(envelope))
            .push_bind(envelope.given_content_type())
            .push_bind(envelope.header_map().to_json())
            .push("coalesce(")
            .push_bind_unseparated(envelope.moment().map(utc))
            .push_unseparated(", utc_timestamp(6))")
            .push("coalesce(")
            .push_bind_unseparated(at)
            .push_unseparated(", utc_timestamp(6) + interval ")
            .push_bind_unseparated(delay)
            .push_unseparated(" microsecond)");
    });
    // The text differs with the number of rows: few rows and a full statement are worth keeping
    // prepared, others not.
    let usual = envelopes.len() <= 8 || envelopes.len() == MOST_ROWS;
    let written = insert.build().persistent(usual).execute(connection).await;
    match written {
        Ok(written) if written.rows_affected() == envelopes.len() as u64 => Ok(()),
        Ok(_) => Err(Error::new(ErrorKind::Database, "the database did not write every event")),
        Err(error) => Err(refused(error, envelopes)),
    }
}

fn bytes(envelope: &Envelope) -> Option<&[u8]> {
    match envelope.payload() {
        Payload::Json(_) => None,
        Payload::Bytes(bytes) => Some(bytes),
    }
}

/// The moment that was given, or else how many microseconds from now.
fn due(envelope: &Envelope) -> (Option<PrimitiveDateTime>, i64) {
    match envelope.delivery() {
        Delivery::AtOnce => (None, 0),
        Delivery::At(moment) => (Some(utc(moment)), 0),
        Delivery::After(delay) => (None, micros(delay)),
    }
}

fn utc(moment: Timestamp) -> PrimitiveDateTime {
    let moment = OffsetDateTime::from(moment);
    PrimitiveDateTime::new(moment.date(), moment.time())
}

/// A refused statement is undone by itself, and the transaction goes on without it; but a deadlock
/// ends it. The guard refuses with a null where none may be.
fn refused(source: sqlx::Error, envelopes: &[Envelope]) -> Error {
    let Some(answer) = source.as_database_error() else { return Error::from(source) };
    match number(answer) {
        Some(1048) => ended().caused_by(source),
        // A session that is not strict makes an empty text of the null, which a check refuses.
        _ if answer.is_check_violation() => ended().caused_by(source),
        Some(1213) => Error::from(source).leaving(TxFate::RolledBack),
        _ if answer.is_unique_violation() => Error::new(ErrorKind::Duplicate, duplicate(envelopes))
            .caused_by(source)
            .leaving(TxFate::Open),
        _ => Error::from(source),
    }
}

/// Whether it was rolled back, or committed by a DDL statement, nobody can tell.
fn ended() -> Error {
    let message = "the database has no transaction open: a deadlock or a DDL statement ended it, \
        or autocommit is off, where that could not be told";
    Error::new(ErrorKind::NoTransaction, message)
}

fn no_autocommit() -> Error {
    let message = "autocommit is off in this session: a transaction that the database ended \
        cannot be told from a living one";
    Error::new(ErrorKind::Configuration, message)
}
