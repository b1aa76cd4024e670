//! Rows into a SQLite transaction.

use sqlx::{AssertSqlSafe, QueryBuilder, Sqlite, SqliteConnection};

use super::private::Statements;
use super::{chunks, duplicate, partition_key};
use crate::clock::micros;
use crate::envelope::{Delivery, Envelope, Payload};
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::tx::{Accept, Accepted, Insert};

const INSERT: &str = "
insert into {p}outbox_event (
    event_id, event_type, event_version, aggregate_type, aggregate_id, partition_key, tenant_id,
    payload, payload_bytes, content_type, headers, occurred_at, available_at) ";

const NOW: &str = "cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000";

const ACCEPT: &str = "
insert into {p}inbox_processed (consumer_name, source, event_id, tenant_id, payload_hash)
values (?1, ?2, ?3, ?4, ?5)
on conflict do nothing";

const ACCEPTED_BEFORE: &str = "
select payload_hash from {p}inbox_processed
where consumer_name = ?1 and source = ?2 and event_id = ?3";

const UNDO: &str = "rollback to pillarbox_emit; release pillarbox_emit";

const MOST_ROWS: usize = 500;

impl Statements for Sqlite {
    /// Immediate: a business transaction that reads first would fail at its first write when
    /// another one wrote in between, and no waiting would help.
    const BEGIN: Option<&'static str> = Some("begin immediate");

    /// SQLite ends a transaction by itself on a full disk or an `or rollback` conflict, and what
    /// follows commits statement by statement. A live one answers a second BEGIN with an error.
    async fn prove(connection: &mut SqliteConnection) -> Result<()> {
        match sqlx::raw_sql("begin").execute(&mut *connection).await {
            Err(sqlx::Error::Database(answer)) if answer.message().contains("within") => Ok(()),
            Err(error) => Err(error.into()),
            // The new, empty one stays open for the rollback that sqlx believes it owes.
            Ok(_) => {
                let message = "an earlier statement made the database end the transaction";
                Err(Error::new(ErrorKind::NoTransaction, message).leaving(TxFate::RolledBack))
            }
        }
    }

    async fn insert(connection: &mut SqliteConnection, insert: &Insert<'_>) -> Result<()> {
        Self::prove(connection).await?;
        let sql = insert.tables.render(INSERT);
        let batches: Vec<_> = chunks(insert.envelopes, MOST_ROWS).collect();
        if let [envelopes] = *batches {
            let written = write(connection, &sql, envelopes).await;
            return written.map_err(|error| refused(error, envelopes));
        }
        // A refused statement undoes itself alone: what went before it must go too.
        sqlx::raw_sql("savepoint pillarbox_emit").execute(&mut *connection).await?;
        for envelopes in batches {
            if let Err(error) = write(connection, &sql, envelopes).await {
                sqlx::raw_sql(UNDO).execute(connection).await?;
                return Err(refused(error, envelopes));
            }
        }
        sqlx::raw_sql("release pillarbox_emit").execute(connection).await?;
        Ok(())
    }

    async fn accept(connection: &mut SqliteConnection, accept: &Accept<'_>) -> Result<Accepted> {
        Self::prove(connection).await?;
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

async fn write(
    connection: &mut SqliteConnection,
    sql: &str,
    envelopes: &[Envelope],
) -> Result<(), sqlx::Error> {
    let mut insert = QueryBuilder::<Sqlite>::new(sql);
    insert.push_values(envelopes, |mut row, envelope| {
        row.push_bind(envelope.event_id().as_str())
            .push_bind(envelope.event_type().as_str())
            .push_bind(i64::from(envelope.event_version()))
            .push_bind(envelope.aggregate_type().as_str())
            .push_bind(envelope.aggregate_id())
            .push_bind(partition_key(envelope))
            .push_bind(envelope.tenant_id());
        match envelope.payload() {
            Payload::Json(json) => row.push_bind(json.as_str()).push("null"),
            Payload::Bytes(bytes) => row.push("null").push_bind(bytes.as_slice()),
        };
        row.push_bind(envelope.given_content_type()).push_bind(envelope.header_map().to_json());
        match envelope.moment() {
            Some(moment) => row.push_bind(moment.unix_micros()),
            None => row.push(NOW),
        };
        match envelope.delivery() {
            Delivery::AtOnce => row.push(NOW),
            Delivery::At(moment) => row.push_bind(moment.unix_micros()),
            Delivery::After(delay) => {
                row.push(NOW).push_unseparated(" + ").push_bind_unseparated(micros(delay))
            }
        };
    });
    // The text differs with the number of rows: one row and a full statement are worth keeping
    // prepared, others not.
    let usual = envelopes.len() == 1 || envelopes.len() == MOST_ROWS;
    insert.build().persistent(usual).execute(connection).await?;
    Ok(())
}

/// A refused statement is undone by itself on SQLite; the transaction goes on without it.
fn refused(source: sqlx::Error, envelopes: &[Envelope]) -> Error {
    if source.as_database_error().is_some_and(|answer| answer.is_unique_violation()) {
        return Error::new(ErrorKind::Duplicate, duplicate(envelopes))
            .caused_by(source)
            .leaving(TxFate::Open);
    }
    Error::from(source)
}
