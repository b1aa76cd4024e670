//! Rows into a PostgreSQL transaction.

use sha2::{Digest as _, Sha256};
use sqlx::postgres::{PgArguments, PgRow};
use sqlx::query::Query;
use sqlx::{AssertSqlSafe, PgConnection, Postgres, Row as _};
use time::OffsetDateTime;

use super::column::Column;
use super::private::{Required, Statements};
use super::{
    Asked, MOST_BYTES, bytes, chunks, duplicate, ended, lease, no_places, partition_key, places_of,
    status, token,
};
use crate::clock::micros;
use crate::envelope::{Delivery, Envelope};
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::id::{Seq, ShardId};
use crate::pooled::has_ended;
use crate::table::Tables;
use crate::tx::{Accept, Accepted, Insert, Inserted};

/// The application may have advisory locks of its own: ours are told apart by a name.
const LOCK: &str = "
select pg_advisory_xact_lock(hashtextextended('pillarbox {p} ' || key, 0))
from unnest($1::text[]) as key";

/// Whether the transaction is the one that we began: its mark goes with it. No subquery, which takes
/// longer to start: the server asks once, before the first row.
const IS_BEGUN: &str = "current_setting('pillarbox.tx', true) = 'begun'";

/// Whether any transaction is open: it has our mark, or an id, which a statement outside of a
/// transaction does not have before it writes. If neither is there, this leaves a mark, which stays
/// only inside of a transaction: a second statement finds it there, and only there.
macro_rules! is_any {
    () => {
        "(select case
            when coalesce(current_setting('pillarbox.tx', true), '') <> ''
                or pg_current_xact_id_if_assigned() is not null then true
            else set_config('pillarbox.tx', 'seen', true) is null end)"
    };
}

/// Waits for a transaction that holds the same note uncommitted. Answers whether a transaction is
/// open, and whether the note is new.
const ACCEPT: &str = concat!(
    "with state as materialized (select ",
    is_any!(),
    " as is_open), noted as (
    insert into {p}inbox_processed (consumer_name, source, event_id, tenant_id, payload_hash)
    select $1, $2, $3, $4, $5 from state where is_open
    on conflict do nothing returning 1
)
select is_open, exists (select from noted) from state"
);

const ACCEPTED_BEFORE: &str = "
select payload_hash from {p}inbox_processed
where consumer_name = $1 and source = $2 and event_id = $3";

const PLACES: &str = " returning seq, shard, occurred_at, true";

/// A statement sees no row of its own, and at read committed every row that was committed before it
/// began: the writer who holds the lock of a key then knows what is before its event.
const TURNS: &str = " returning seq, shard, occurred_at, ordering_key is null or (
    current_setting('transaction_isolation') = 'read committed'
    and not exists (
        select from {p}outbox_event as older
        where older.shard = {p}outbox_event.shard
            and older.ordering_key = {p}outbox_event.ordering_key
            and older.status + 0 = {new}
    )
    and not exists (
        select from {p}outbox_event as older
        where older.shard = {p}outbox_event.shard
            and older.ordering_key = {p}outbox_event.ordering_key
            and older.status in ({waiting}, {held})
    )
)";

const MOST_ROWS: usize = 5000;

/// As many as `migrate` lays down; a power of two.
const SHARDS: i16 = 64;

impl Statements for Postgres {
    /// One round trip. The mark is gone when the transaction ends, however it does.
    const BEGIN: &'static str = "begin; set local pillarbox.tx = 'begun'";

    /// Any statement fails in an aborted transaction, whose COMMIT would answer with success. Only
    /// asked of what we began.
    async fn prove(connection: &mut PgConnection, _: Required) -> Result<()> {
        let sql = "select current_setting('pillarbox.tx', true)";
        let row = sqlx::raw_sql(sql).fetch_one(connection).await;
        let mark: Result<Option<String>, _> = row.and_then(|row| row.try_get(0));
        let mark = mark.map_err(|error| refused(error, &[]))?;
        if mark.as_deref() == Some("begun") { Ok(()) } else { Err(ended()) }
    }

    async fn insert(
        connection: &mut PgConnection,
        insert: &Insert<'_>,
        required: Required,
    ) -> Result<Vec<Option<Inserted>>> {
        lock(connection, insert).await.map_err(|error| refused(error, &[]))?;
        let columns = Column::complete(insert);
        let is_open = match required {
            Required::Any => is_any!(),
            Required::Begun => IS_BEGUN,
        };
        let mut places = Vec::new();
        for envelopes in chunks(insert.envelopes, MOST_ROWS, MOST_BYTES, Envelope::size) {
            let insert = Insert { envelopes, ..*insert };
            let mut written = write(connection, is_open, &columns, &insert).await;
            if matches!(written, Ok(None)) && required == Required::Any {
                written = write(connection, is_open, &columns, &insert).await;
            }
            let written = written.map_err(|error| refused(error, envelopes))?;
            places.extend(written.ok_or_else(ended)?);
        }
        Ok(places)
    }

    async fn accept(connection: &mut PgConnection, accept: &Accept<'_>) -> Result<Accepted> {
        let named = accept.tables.are_statements_named();
        let mut noted = note(connection, accept).await;
        if matches!(noted, Ok((false, _))) {
            noted = note(connection, accept).await;
        }
        match noted.map_err(|error| refused(error, &[]))? {
            (false, _) => return Err(ended()),
            (true, true) => return Ok(Accepted::FirstTime),
            (true, false) => {}
        }
        let known: Vec<u8> =
            sqlx::query_scalar(AssertSqlSafe(accept.tables.render(ACCEPTED_BEFORE)))
                .persistent(named)
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

/// Whether a transaction is open, and the note is new.
async fn note(
    connection: &mut PgConnection,
    accept: &Accept<'_>,
) -> Result<(bool, bool), sqlx::Error> {
    sqlx::query_as(AssertSqlSafe(accept.tables.render(ACCEPT)))
        .persistent(accept.tables.are_statements_named())
        .bind(accept.consumer)
        .bind(accept.source)
        .bind(accept.event_id)
        .bind(accept.tenant_id)
        .bind(accept.payload_hash.as_bytes().as_slice())
        .fetch_one(connection)
        .await
}

/// A statement of its own: the insert after it sees what was committed while this one waited.
async fn lock(connection: &mut PgConnection, insert: &Insert<'_>) -> Result<(), sqlx::Error> {
    if !insert.locks.is_empty() {
        let sql = AssertSqlSafe(insert.tables.render(LOCK));
        let query = sqlx::query(sql).persistent(insert.tables.are_statements_named());
        query.bind(insert.locks).execute(connection).await?;
    }
    Ok(())
}

/// One event, which is most of them: setting arrays up would cost half of the transaction.
fn one_row(tables: &Tables, columns: &[Column], is_open: &str) -> String {
    let mut marks = (1..).map(|n| format!("${n}"));
    let mut mark = || marks.next().unwrap_or_default();
    let values: Vec<String> = columns.iter().map(|column| value(*column, &mut mark)).collect();
    let (insert, values) = (Column::insert(tables, columns), values.join(", "));
    format!("{insert}select {values} where {is_open}")
}

/// Where an event is, is said only of those that may go hot.
fn returning(insert: &Insert<'_>) -> String {
    match Asked::by(insert) {
        Asked::Nothing => String::new(),
        Asked::Places => PLACES.to_owned(),
        Asked::Turns => insert.tables.render(TURNS).to_string(),
    }
}

/// `order by n` after `unnest`: `seq` must follow the order in which the events were given.
fn many_rows(tables: &Tables, columns: &[Column], is_open: &str) -> String {
    let (mut arrays, mut names) = (Vec::new(), Vec::new());
    let mut values = Vec::new();
    for column in columns {
        let mut types = types(*column).iter();
        values.push(value(*column, &mut || {
            let n = names.len() + 1;
            arrays.push(format!("${n}::{}[]", types.next().unwrap_or(&"text")));
            names.push(format!("v{n}"));
            format!("v{n}")
        }));
    }
    let (insert, values) = (Column::insert(tables, columns), values.join(", "));
    let (arrays, names) = (arrays.join(", "), names.join(", "));
    format!(
        "{insert}select {values} from unnest({arrays}) with ordinality as v ({names}, n)
        where {is_open} order by n"
    )
}

/// What stands for the column's value; asks for a name for each argument that it takes.
fn value(column: Column, name: &mut impl FnMut() -> String) -> String {
    match column {
        Column::Payload | Column::Headers => format!("{}::text::json", name()),
        Column::OccurredAt => format!("coalesce({}, clock_timestamp())", name()),
        // `clock_timestamp`, never `now`: a slow transaction must not shorten the lease.
        Column::LockedUntil => {
            format!("clock_timestamp() + {} * interval '1 microsecond'", name())
        }
        Column::AvailableAt => format!(
            "coalesce({}, clock_timestamp() + {} * interval '1 microsecond')",
            name(),
            name()
        ),
        _ => name(),
    }
}

/// The types of the arguments that the column takes.
const fn types(column: Column) -> &'static [&'static str] {
    match column {
        Column::EventVersion | Column::LockToken => &["integer"],
        Column::Shard | Column::Status => &["smallint"],
        Column::LockedUntil => &["bigint"],
        Column::PayloadBytes => &["bytea"],
        Column::OccurredAt => &["timestamptz"],
        Column::AvailableAt => &["timestamptz", "bigint"],
        _ => &["text"],
    }
}

/// `None` where no transaction is open: nothing was written then.
async fn write(
    connection: &mut PgConnection,
    is_open: &str,
    columns: &[Column],
    insert: &Insert<'_>,
) -> Result<Option<Vec<Option<Inserted>>>, sqlx::Error> {
    let places = returning(insert);
    if let [event] = insert.envelopes {
        let sql = one_row(insert.tables, columns, is_open) + &places;
        return write_one(connection, sql, columns, insert, event).await;
    }
    let sql = many_rows(insert.tables, columns, is_open) + &places;
    write_many(connection, sql, columns, insert).await
}

async fn write_one(
    connection: &mut PgConnection,
    sql: String,
    columns: &[Column],
    insert: &Insert<'_>,
    event: &Envelope,
) -> Result<Option<Vec<Option<Inserted>>>, sqlx::Error> {
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for column in columns {
        query = match column {
            Column::EventId => query.bind(event.event_id().as_str()),
            Column::EventType => query.bind(event.event_type().as_str()),
            Column::EventVersion => query.bind(version(event)),
            Column::AggregateType => query.bind(event.aggregate_type().as_str()),
            Column::AggregateId => query.bind(event.aggregate_id()),
            Column::PartitionKey => query.bind(partition_key(event)),
            Column::TenantId => query.bind(event.tenant_id()),
            Column::Payload => query.bind(event.payload().as_json()),
            Column::PayloadBytes => query.bind(bytes(event)),
            Column::ContentType => query.bind(event.given_content_type()),
            Column::Headers => query.bind(event.header_map().to_json()),
            Column::OccurredAt => query.bind(event.moment().map(OffsetDateTime::from)),
            Column::AvailableAt => query.bind(deliver_at(event)).bind(delay(event)),
            Column::Status => query.bind(status(event)),
            Column::LockedBy => query.bind(lease(insert, event).map(|hot| hot.owner.as_str())),
            Column::LockedUntil => query.bind(lease(insert, event).map(|hot| micros(hot.length))),
            Column::LockToken => query.bind(token(insert, event)),
            Column::OrderingKey => query.bind(event.ordering_key()),
            Column::Shard => query.bind(shard(event)),
        };
    }
    run(connection, query, insert).await
}

async fn write_many(
    connection: &mut PgConnection,
    sql: String,
    columns: &[Column],
    insert: &Insert<'_>,
) -> Result<Option<Vec<Option<Inserted>>>, sqlx::Error> {
    fn all<'e, T>(events: &'e [Envelope], value: impl Fn(&'e Envelope) -> T) -> Vec<T> {
        events.iter().map(value).collect()
    }
    let events = insert.envelopes;
    let mut query = sqlx::query(AssertSqlSafe(sql));
    for column in columns {
        query =
            match column {
                Column::EventId => query.bind(all(events, |event| event.event_id().as_str())),
                Column::EventType => query.bind(all(events, |event| event.event_type().as_str())),
                Column::EventVersion => query.bind(all(events, version)),
                Column::AggregateType => {
                    query.bind(all(events, |event| event.aggregate_type().as_str()))
                }
                Column::AggregateId => query.bind(all(events, Envelope::aggregate_id)),
                Column::PartitionKey => query.bind(all(events, partition_key)),
                Column::TenantId => query.bind(all(events, Envelope::tenant_id)),
                Column::Payload => query.bind(all(events, |event| event.payload().as_json())),
                Column::PayloadBytes => query.bind(all(events, bytes)),
                Column::ContentType => query.bind(all(events, Envelope::given_content_type)),
                Column::Headers => query.bind(all(events, |event| event.header_map().to_json())),
                Column::OccurredAt => {
                    query.bind(all(events, |event| event.moment().map(OffsetDateTime::from)))
                }
                Column::AvailableAt => query.bind(all(events, deliver_at)).bind(all(events, delay)),
                Column::Status => query.bind(all(events, status)),
                Column::LockedBy => query
                    .bind(all(events, |event| lease(insert, event).map(|hot| hot.owner.as_str()))),
                Column::LockedUntil => query
                    .bind(all(events, |event| lease(insert, event).map(|hot| micros(hot.length)))),
                Column::LockToken => query.bind(all(events, |event| token(insert, event))),
                Column::OrderingKey => query.bind(all(events, Envelope::ordering_key)),
                Column::Shard => query.bind(all(events, shard)),
            };
    }
    run(connection, query, insert).await
}

async fn run(
    connection: &mut PgConnection,
    query: Query<'_, Postgres, PgArguments>,
    insert: &Insert<'_>,
) -> Result<Option<Vec<Option<Inserted>>>, sqlx::Error> {
    let query = query.persistent(insert.tables.are_statements_named());
    if Asked::by(insert) == Asked::Nothing {
        let written = query.execute(connection).await?.rows_affected();
        return Ok((written > 0).then(|| no_places(insert)));
    }
    let rows = query.fetch_all(connection).await?;
    if rows.is_empty() {
        return Ok(None);
    }
    let place = |row: &PgRow| {
        let occurred_at: OffsetDateTime = row.try_get(2)?;
        Ok(Inserted {
            seq: Seq(row.try_get(0)?),
            shard: ShardId(row.try_get(1)?),
            occurred_at: occurred_at.into(),
            is_next: row.try_get(3)?,
        })
    };
    let places = rows.iter().map(place).collect::<Result<_, sqlx::Error>>()?;
    Ok(Some(places_of(insert, places)))
}

/// As `outbox_event_complete` computes it for the rows of others.
fn shard(envelope: &Envelope) -> i16 {
    let key = envelope.ordering_key();
    let hashed = key.as_deref().unwrap_or(envelope.event_id().as_str());
    let [first, ..] = <[u8; 32]>::from(Sha256::digest(hashed));
    i16::from(first) & (SHARDS - 1)
}

fn version(envelope: &Envelope) -> i32 {
    i32::try_from(envelope.event_version()).unwrap_or(i32::MAX)
}

fn deliver_at(envelope: &Envelope) -> Option<OffsetDateTime> {
    match envelope.delivery() {
        Delivery::At(moment) => Some(moment.into()),
        Delivery::AtOnce | Delivery::After(_) => None,
    }
}

fn delay(envelope: &Envelope) -> i64 {
    match envelope.delivery() {
        Delivery::After(delay) => micros(delay),
        Delivery::AtOnce | Delivery::At(_) => 0,
    }
}

/// Every error aborts the transaction on PostgreSQL.
fn refused(source: sqlx::Error, envelopes: &[Envelope]) -> Error {
    let code = source.as_database_error().and_then(|answer| answer.code());
    match code.as_deref() {
        Some("23505") => Error::new(ErrorKind::Duplicate, duplicate(envelopes))
            .caused_by(source)
            .leaving(TxFate::Aborted),
        Some("25P02") => Error::new(
            ErrorKind::NoTransaction,
            "an earlier statement failed and the database has aborted the transaction",
        )
        .caused_by(source)
        .leaving(TxFate::Aborted),
        _ if has_ended(&source) => ended().caused_by(source),
        _ => Error::from(source).leaving(TxFate::Aborted),
    }
}
