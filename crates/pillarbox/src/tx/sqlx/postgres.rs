//! Rows into a PostgreSQL transaction.

use std::sync::Arc;

use sqlx::{AssertSqlSafe, PgConnection, Postgres};
use time::OffsetDateTime;

use super::private::Statements;
use super::{chunks, duplicate, partition_key};
use crate::clock::micros;
use crate::envelope::{Delivery, Envelope, Payload};
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::tx::{Accept, Accepted, Insert};

/// `order by n` after `unnest`: `seq` must follow the order in which the events were given.
const INSERT: &str = "
insert into {p}outbox_event (
    event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, tenant_id,
    payload, payload_bytes, content_type, headers, occurred_at, available_at)
select
    event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, tenant_id,
    payload::json, payload_bytes, content_type, headers::json,
    coalesce(occurred_at, clock_timestamp()),
    coalesce(deliver_at, clock_timestamp() + delay * interval '1 microsecond')
from unnest(
        $1::text[], $2::text[], $3::integer[], $4::text[], $5::text[], $6::text[], $7::text[],
        $8::text[], $9::bytea[], $10::text[], $11::text[], $12::timestamptz[],
        $13::timestamptz[], $14::bigint[]
    ) with ordinality as v (
        event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key,
        tenant_id, payload, payload_bytes, content_type, headers, occurred_at, deliver_at, delay,
        n)
order by n";

/// One event, which is most of them: setting the arrays up would cost half of the transaction.
const INSERT_ONE: &str = "
insert into {p}outbox_event (
    event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, tenant_id,
    payload, payload_bytes, content_type, headers, occurred_at, available_at)
values (
    $1, $2, $3, $4, $5, $6, $7, $8::text::json, $9, $10, $11::text::json,
    coalesce($12, clock_timestamp()),
    coalesce($13, clock_timestamp() + $14 * interval '1 microsecond'))";

/// Waits for a transaction that holds the same note uncommitted.
const ACCEPT: &str = "
insert into {p}inbox_processed (consumer_name, source, event_id, tenant_id, payload_hash)
values ($1, $2, $3, $4, $5)
on conflict do nothing";

const ACCEPTED_BEFORE: &str = "
select payload_hash from {p}inbox_processed
where consumer_name = $1 and source = $2 and event_id = $3";

const MOST_ROWS: usize = 5000;

impl Statements for Postgres {
    const BEGIN: Option<&'static str> = None;

    /// Any statement fails in an aborted transaction, whose COMMIT would answer with success.
    async fn prove(connection: &mut PgConnection) -> Result<()> {
        sqlx::query("select 1").execute(connection).await.map_err(|error| refused(error, &[]))?;
        Ok(())
    }

    async fn insert(connection: &mut PgConnection, insert: &Insert<'_>) -> Result<()> {
        if let [envelope] = insert.envelopes {
            let sql = insert.tables.render(INSERT_ONE);
            let written = write_one(connection, sql, envelope).await;
            return written.map_err(|error| refused(error, insert.envelopes));
        }
        let sql = insert.tables.render(INSERT);
        for envelopes in chunks(insert.envelopes, MOST_ROWS) {
            let written = write(connection, Arc::clone(&sql), envelopes).await;
            written.map_err(|error| refused(error, envelopes))?;
        }
        Ok(())
    }

    async fn accept(connection: &mut PgConnection, accept: &Accept<'_>) -> Result<Accepted> {
        let noted = sqlx::query(AssertSqlSafe(accept.tables.render(ACCEPT)))
            .bind(accept.consumer)
            .bind(accept.source)
            .bind(accept.event_id)
            .bind(accept.tenant_id)
            .bind(accept.payload_hash.as_bytes().as_slice())
            .execute(&mut *connection)
            .await?;
        if noted.rows_affected() == 1 {
            return Ok(Accepted::FirstTime);
        }
        let known: Vec<u8> =
            sqlx::query_scalar(AssertSqlSafe(accept.tables.render(ACCEPTED_BEFORE)))
                .bind(accept.consumer)
                .bind(accept.source)
                .bind(accept.event_id)
                .fetch_one(connection)
                .await?;
        let same = known == accept.payload_hash.as_bytes();
        if same { Ok(Accepted::Duplicate) } else { Ok(Accepted::Conflict) }
    }
}

async fn write_one(
    connection: &mut PgConnection,
    sql: Arc<str>,
    envelope: &Envelope,
) -> Result<(), sqlx::Error> {
    sqlx::query(AssertSqlSafe(sql))
        .bind(envelope.event_id().as_str())
        .bind(envelope.event_type().as_str())
        .bind(version(envelope))
        .bind(envelope.aggregate_type().as_str())
        .bind(envelope.aggregate_id())
        .bind(partition_key(envelope))
        .bind(envelope.tenant_id())
        .bind(envelope.payload().as_json())
        .bind(bytes(envelope))
        .bind(envelope.given_content_type())
        .bind(envelope.header_map().to_json())
        .bind(envelope.moment().map(OffsetDateTime::from))
        .bind(deliver_at(envelope))
        .bind(delay(envelope))
        .execute(connection)
        .await?;
    Ok(())
}

async fn write(
    connection: &mut PgConnection,
    sql: Arc<str>,
    envelopes: &[Envelope],
) -> Result<(), sqlx::Error> {
    let each = || envelopes.iter();
    sqlx::query(AssertSqlSafe(sql))
        .bind(each().map(|e| e.event_id().as_str()).collect::<Vec<_>>())
        .bind(each().map(|e| e.event_type().as_str()).collect::<Vec<_>>())
        .bind(each().map(version).collect::<Vec<_>>())
        .bind(each().map(|e| e.aggregate_type().as_str()).collect::<Vec<_>>())
        .bind(each().map(Envelope::aggregate_id).collect::<Vec<_>>())
        .bind(each().map(partition_key).collect::<Vec<_>>())
        .bind(each().map(Envelope::tenant_id).collect::<Vec<_>>())
        .bind(each().map(|e| e.payload().as_json()).collect::<Vec<_>>())
        .bind(each().map(bytes).collect::<Vec<_>>())
        .bind(each().map(Envelope::given_content_type).collect::<Vec<_>>())
        .bind(each().map(|e| e.header_map().to_json()).collect::<Vec<_>>())
        .bind(each().map(|e| e.moment().map(OffsetDateTime::from)).collect::<Vec<_>>())
        .bind(each().map(deliver_at).collect::<Vec<_>>())
        .bind(each().map(delay).collect::<Vec<_>>())
        .execute(connection)
        .await?;
    Ok(())
}

fn version(envelope: &Envelope) -> i32 {
    i32::try_from(envelope.event_version()).unwrap_or(i32::MAX)
}

fn bytes(envelope: &Envelope) -> Option<&[u8]> {
    match envelope.payload() {
        Payload::Json(_) => None,
        Payload::Bytes(bytes) => Some(bytes),
    }
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
        _ => Error::from(source).leaving(TxFate::Aborted),
    }
}
