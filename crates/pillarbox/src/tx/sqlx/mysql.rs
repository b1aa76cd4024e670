//! Rows into a MySQL or MariaDB transaction.

mod packet;

use sqlx::query_builder::Separated;
use sqlx::{
    AssertSqlSafe, Executor as _, MySql, MySqlConnection, QueryBuilder, SqlStr, Statement as _,
};
use time::{OffsetDateTime, PrimitiveDateTime};

use super::column::Column;
use super::private::{Required, Statements};
use super::{
    Asked, bytes, chunks, duplicate, ended, lease, no_places, partition_key, places_of, status,
    token,
};
use crate::clock::{Timestamp, micros};
use crate::envelope::{Delivery, Envelope};
use crate::error::sqlx::number;
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::id::{Seq, ShardId};
use crate::pooled::has_ended;
use crate::tx::{Accept, Accepted, Insert, Inserted, LocalLease, PayloadHash};

/// Stands around a value that must not be null, in the first row that goes into a transaction of the
/// caller's own: the statement itself fails where no transaction is open. Only MariaDB reads the inner
/// comment, and only it has that variable. Without autocommit a statement opens a transaction by
/// itself, and the variable says nothing.
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

/// One of 256 rows for each key: the first byte of its SHA-256. In order, so that two transactions
/// never wait for each other.
const LOCK: &str = "select slot from {p}outbox_key where slot in (";

/// Fails where the savepoint of [`BEGIN`](Statements::BEGIN) is not there. It is not put back: nothing
/// follows but the events and the commit.
const PROVE_BEGUN: &str = "release savepoint pillarbox_tx";

/// Outside of a transaction a savepoint is none, and cannot be released.
const PROVE: &str =
    "savepoint pillarbox_proof; release savepoint pillarbox_proof; select @@autocommit";

const UNDO: &str = "rollback to savepoint pillarbox_emit; release savepoint pillarbox_emit";

/// MariaDB gives two columns, every other server one. A statement is prepared once on each
/// connection: asking again costs nothing.
const IS_MARIADB: &str = "select 1 /*M!100000 , 1 */";

/// The rest of it names the table and the events.
const PLACES: &str =
    "select seq, shard, timestampdiff(microsecond, '1970-01-01', occurred_at) from ";

const MOST_ROWS: usize = 500;

/// Up to as many rows, each number has a statement of its own.
const FEW_ROWS: usize = 16;

impl Statements for MySql {
    /// One round trip. The savepoint is there as long as this transaction, and in no other one.
    const BEGIN: &'static str = "begin; savepoint pillarbox_tx";

    /// A deadlock or a DDL statement ends a transaction, and what follows commits statement by
    /// statement.
    async fn prove(connection: &mut MySqlConnection, required: Required) -> Result<()> {
        if required == Required::Begun {
            let proof = sqlx::raw_sql(PROVE_BEGUN).execute(connection).await;
            return proof.map(drop).map_err(ended_or_failed);
        }
        let row = sqlx::raw_sql(PROVE).fetch_one(connection).await.map_err(ended_or_failed)?;
        let autocommit: i64 = sqlx::Row::try_get(&row, 0)?;
        if autocommit == 1 { Ok(()) } else { Err(no_autocommit()) }
    }

    async fn insert(
        connection: &mut MySqlConnection,
        insert: &Insert<'_>,
        required: Required,
    ) -> Result<Vec<Option<Inserted>>> {
        match required {
            Required::Any => prove_unless_guarded(connection).await?,
            Required::Begun => Self::prove(connection, required).await?,
        }
        let most_bytes = packet::most_bytes(connection, insert.envelopes).await?;
        lock(connection, insert).await.map_err(|error| refused(error, &[]))?;
        let insert = &without_turns(insert);
        let columns = Column::needed_by(insert);
        let sql = Column::insert(insert.tables, &columns);
        let batches: Vec<_> = chunks(insert.envelopes, MOST_ROWS, most_bytes, packet::row)
            .flat_map(|rows| in_usual_numbers(rows))
            .collect();
        if let [envelopes] = *batches {
            let insert = Insert { envelopes, ..*insert };
            return write(connection, &sql, &columns, &insert, required).await;
        }
        // A refused statement undoes itself alone: what went before it must go too.
        sqlx::raw_sql("savepoint pillarbox_emit").execute(&mut *connection).await?;
        let mut places = Vec::new();
        for envelopes in batches {
            let insert = Insert { envelopes, ..*insert };
            match write(connection, &sql, &columns, &insert, required).await {
                Ok(written) => places.extend(written),
                Err(error) => {
                    // It may be gone with the whole transaction; what failed first is the news.
                    let _ = sqlx::raw_sql(UNDO).execute(connection).await;
                    return Err(error);
                }
            }
        }
        sqlx::raw_sql("release savepoint pillarbox_emit").execute(connection).await?;
        Ok(places)
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
            Err(error) => return Err(refused_by_guard(connection, error, &[]).await),
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

fn ended_or_failed(source: sqlx::Error) -> Error {
    if has_ended(&source) { ended().caused_by(source) } else { Error::from(source) }
}

/// MySQL has nothing that the statement itself could look at: another one looks right before it.
async fn prove_unless_guarded(connection: &mut MySqlConnection) -> Result<()> {
    let probe = (&mut *connection).prepare(SqlStr::from_static(IS_MARIADB)).await?;
    if probe.columns().len() == 2 { Ok(()) } else { MySql::prove(connection, Required::Any).await }
}

async fn write(
    connection: &mut MySqlConnection,
    sql: &str,
    columns: &[Column],
    insert: &Insert<'_>,
    required: Required,
) -> Result<Vec<Option<Inserted>>> {
    let envelopes = insert.envelopes;
    let mut query = QueryBuilder::<MySql>::new(sql);
    let mut is_guarded = required == Required::Any;
    query.push_values(envelopes, |mut row, envelope| {
        for column in columns {
            if is_guarded && *column == Column::EventType {
                row.push(GUARD)
                    .push_bind_unseparated(envelope.event_type().as_str())
                    .push_unseparated(", null)");
            } else {
                push(&mut row, *column, envelope, insert);
            }
        }
        is_guarded = false;
    });
    let written = match query.build().execute(&mut *connection).await {
        Ok(written) => written,
        Err(error) => return Err(refused_by_guard(connection, error, envelopes).await),
    };
    if written.rows_affected() != envelopes.len() as u64 {
        return Err(Error::new(ErrorKind::Database, "the database did not write every event"));
    }
    match Asked::by(insert) {
        Asked::Nothing => Ok(no_places(insert)),
        Asked::Places | Asked::Turns => places(connection, insert).await,
    }
}

/// Cuts rows into numbers of which there are few, so that each statement can be kept prepared. One that
/// is not kept is closed after its use: the server does not answer to that, and whatever is sent next
/// waits 40 ms for its acknowledgement (sqlx leaves Nagle's algorithm on).
fn in_usual_numbers<T>(mut rows: &[T]) -> Vec<&[T]> {
    let mut batches = Vec::new();
    while !rows.is_empty() {
        let count = match rows.len() {
            few @ ..=FEW_ROWS => few,
            MOST_ROWS => MOST_ROWS,
            many => 1 << many.ilog2(),
        };
        let (batch, rest) = rows.split_at(count);
        batches.push(batch);
        rows = rest;
    }
    batches
}

async fn lock(connection: &mut MySqlConnection, insert: &Insert<'_>) -> Result<(), sqlx::Error> {
    if insert.locks.is_empty() {
        return Ok(());
    }
    let mut query = QueryBuilder::<MySql>::new(&*insert.tables.render(LOCK));
    let mut slots = query.separated(", ");
    // One key again and again makes a usual number of them.
    let repeated = insert.locks.iter().cycle().take(insert.locks.len().next_power_of_two());
    for key in repeated {
        slots.push_bind(i16::from(PayloadHash::of(key).as_bytes()[0]));
    }
    query.push(") order by slot for update");
    query.build().execute(connection).await?;
    Ok(())
}

/// At its default isolation, an insert cannot tell what is before an event: the snapshot may be
/// older than the writer's lock.
fn without_turns<'a>(insert: &Insert<'a>) -> Insert<'a> {
    Insert { hot: insert.hot.map(|hot| LocalLease { keyed: false, ..hot }), ..*insert }
}

/// Not from the number that the insert gave: how far apart the others are is the server's secret.
async fn places(
    connection: &mut MySqlConnection,
    insert: &Insert<'_>,
) -> Result<Vec<Option<Inserted>>> {
    let mut query = QueryBuilder::<MySql>::new(PLACES);
    query.push(insert.tables.prefix().as_str()).push("outbox_event where event_id in ");
    query.push_tuples(insert.envelopes, |mut one, envelope| {
        one.push_bind(envelope.event_id().as_str());
    });
    let places = query.build_query_as().fetch_all(connection).await?;
    let place = |(seq, shard, at): (i64, i16, i64)| Inserted {
        seq: Seq(seq),
        shard: ShardId(shard),
        occurred_at: Timestamp::from_unix_micros(at),
        is_next: true,
    };
    Ok(places_of(insert, places.into_iter().map(place).collect()))
}

fn push(
    row: &mut Separated<'_, MySql, &'static str>,
    column: Column,
    event: &Envelope,
    insert: &Insert<'_>,
) {
    match column {
        Column::EventId => row.push_bind(event.event_id().as_str()),
        Column::EventType => row.push_bind(event.event_type().as_str()),
        Column::EventVersion => row.push_bind(i64::from(event.event_version())),
        Column::AggregateType => row.push_bind(event.aggregate_type().as_str()),
        Column::AggregateId => row.push_bind(event.aggregate_id()),
        Column::PartitionKey => row.push_bind(partition_key(event)),
        Column::TenantId => row.push_bind(event.tenant_id()),
        Column::Payload => row.push_bind(event.payload().as_json()),
        Column::PayloadBytes => row.push_bind(bytes(event)),
        Column::ContentType => row.push_bind(event.given_content_type()),
        Column::Headers => row.push_bind(event.header_map().to_json()),
        Column::OccurredAt => row
            .push("coalesce(")
            .push_bind_unseparated(event.moment().map(utc))
            .push_unseparated(", utc_timestamp(6))"),
        Column::AvailableAt => {
            let (at, delay) = due(event);
            row.push("coalesce(")
                .push_bind_unseparated(at)
                .push_unseparated(", utc_timestamp(6) + interval ")
                .push_bind_unseparated(delay)
                .push_unseparated(" microsecond)")
        }
        Column::LockedBy => row.push_bind(lease(insert, event).map(|hot| hot.owner.to_string())),
        Column::LockedUntil => row
            .push("utc_timestamp(6) + interval ")
            .push_bind_unseparated(lease(insert, event).map(|hot| micros(hot.length)))
            .push_unseparated(" microsecond"),
        Column::LockToken => row.push_bind(token(insert, event)),
        Column::Status => row.push_bind(status(event)),
        // The table computes these two.
        Column::OrderingKey | Column::Shard => row,
    };
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

/// The guard refuses with a null where none may be, and a session that is not strict makes an empty
/// text of the null, which a check refuses: the transaction has ended, or autocommit is off.
async fn refused_by_guard(
    connection: &mut MySqlConnection,
    source: sqlx::Error,
    envelopes: &[Envelope],
) -> Error {
    let is_guard = source
        .as_database_error()
        .is_some_and(|answer| number(answer) == Some(1048) || answer.is_check_violation());
    if is_guard && let Err(error) = MySql::prove(connection, Required::Any).await {
        return error;
    }
    refused(source, envelopes)
}

/// A refused statement is undone by itself, and the transaction goes on without it; but a deadlock
/// ends it.
fn refused(source: sqlx::Error, envelopes: &[Envelope]) -> Error {
    let Some(answer) = source.as_database_error() else { return Error::from(source) };
    match number(answer) {
        Some(1213) => Error::from(source).leaving(TxFate::RolledBack),
        _ if answer.is_unique_violation() => Error::new(ErrorKind::Duplicate, duplicate(envelopes))
            .caused_by(source)
            .leaving(TxFate::Open),
        _ => Error::from(source),
    }
}

fn no_autocommit() -> Error {
    let message = "autocommit is off in this session: a transaction that the database ended \
        cannot be told from a living one";
    Error::new(ErrorKind::Configuration, message)
}
