//! Rows into a SQLite transaction.

use sqlx::query_builder::Separated;
use sqlx::{AssertSqlSafe, QueryBuilder, Sqlite, SqliteConnection};

use super::column::Column;
use super::private::{Required, Statements};
use super::{
    Asked, MOST_BYTES, bytes, chunks, duplicate, ended, lease, no_places, partition_key, places_of,
    status, token,
};
use crate::clock::{Timestamp, micros};
use crate::envelope::{Delivery, Envelope};
use crate::error::{Error, ErrorKind, Result, TxFate};
use crate::id::{Seq, ShardId};
use crate::pooled::has_ended;
use crate::tx::{Accept, Accepted, Insert, Inserted};

const NOW: &str = "cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000";

const ACCEPT: &str = "
insert into {p}inbox_processed (consumer_name, source, event_id, tenant_id, payload_hash)
values (?1, ?2, ?3, ?4, ?5)
on conflict do nothing";

const ACCEPTED_BEFORE: &str = "
select payload_hash from {p}inbox_processed
where consumer_name = ?1 and source = ?2 and event_id = ?3";

const PLACES: &str = " returning seq, shard, occurred_at, true";

/// Nobody else writes: what the statement sees is all there is.
const TURNS: &str = " returning seq, shard, occurred_at, ordering_key is null or not exists (
    select 1 from {p}outbox_event as older
    where older.shard = {p}outbox_event.shard
        and older.ordering_key = {p}outbox_event.ordering_key
        and older.status = {new} and older.seq < {p}outbox_event.seq
) and not exists (
    select 1 from {p}outbox_event as older
    where older.shard = {p}outbox_event.shard
        and older.ordering_key = {p}outbox_event.ordering_key
        and older.status in ({waiting}, {held}) and older.seq < {p}outbox_event.seq
)";

/// Fails where the savepoint of [`BEGIN`](Statements::BEGIN) is not there. It is not put back: nothing
/// follows but the events and the commit.
const PROVE_BEGUN: &str = "release pillarbox_tx";

const UNDO: &str = "rollback to pillarbox_emit; release pillarbox_emit";

const MOST_ROWS: usize = 500;

impl Statements for Sqlite {
    /// Immediate: a business transaction that reads first would fail at its first write when
    /// another one wrote in between, and no waiting would help. The savepoint is there as long as
    /// this transaction, and in no other one.
    const BEGIN: &'static str = "begin immediate; savepoint pillarbox_tx";

    /// SQLite ends a transaction by itself on a full disk or an `or rollback` conflict, and what
    /// follows commits statement by statement.
    async fn prove(connection: &mut SqliteConnection, required: Required) -> Result<()> {
        let sql = match required {
            Required::Begun => PROVE_BEGUN,
            // A live one answers a second BEGIN with an error.
            Required::Any => "begin",
        };
        match (sqlx::raw_sql(sql).execute(&mut *connection).await, required) {
            (Ok(_), Required::Begun) => Ok(()),
            // The new, empty one stays open for the rollback that sqlx believes it owes.
            (Ok(_), Required::Any) => Err(ended()),
            (Err(sqlx::Error::Database(answer)), Required::Any)
                if answer.message().contains("within") =>
            {
                Ok(())
            }
            (Err(error), _) if has_ended(&error) => Err(ended().caused_by(error)),
            (Err(error), _) => Err(error.into()),
        }
    }

    async fn insert(
        connection: &mut SqliteConnection,
        insert: &Insert<'_>,
        required: Required,
    ) -> Result<Vec<Option<Inserted>>> {
        let columns = Column::needed_by(insert);
        let mut sql = Column::insert(insert.tables, &columns);
        let batches: Vec<_> =
            chunks(insert.envelopes, MOST_ROWS, MOST_BYTES, Envelope::size).collect();
        let is_one = batches.len() == 1;
        if is_one && required == Required::Begun {
            // One call to the connection's thread for both: the insert runs if the proof does not fail.
            sql = format!("{PROVE_BEGUN}; {sql}");
        } else {
            Self::prove(connection, required).await?;
        }
        if let [envelopes] = *batches {
            let written = write(connection, &sql, &columns, &Insert { envelopes, ..*insert }).await;
            return written.map_err(|error| refused(error, envelopes));
        }
        // A refused statement undoes itself alone: what went before it must go too.
        sqlx::raw_sql("savepoint pillarbox_emit").execute(&mut *connection).await?;
        let mut places = Vec::new();
        for envelopes in batches {
            match write(connection, &sql, &columns, &Insert { envelopes, ..*insert }).await {
                Ok(written) => places.extend(written),
                Err(error) => {
                    sqlx::raw_sql(UNDO).execute(connection).await?;
                    return Err(refused(error, envelopes));
                }
            }
        }
        sqlx::raw_sql("release pillarbox_emit").execute(connection).await?;
        Ok(places)
    }

    async fn accept(connection: &mut SqliteConnection, accept: &Accept<'_>) -> Result<Accepted> {
        Self::prove(connection, Required::Any).await?;
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
    columns: &[Column],
    insert: &Insert<'_>,
) -> Result<Vec<Option<Inserted>>, sqlx::Error> {
    let envelopes = insert.envelopes;
    let mut query = QueryBuilder::<Sqlite>::new(sql);
    query.push_values(envelopes, |mut row, envelope| {
        for column in columns {
            push(&mut row, *column, envelope, insert);
        }
    });
    // The text differs with the number of rows: one row and a full statement are worth keeping
    // prepared, others not.
    let usual = envelopes.len() == 1 || envelopes.len() == MOST_ROWS;
    match Asked::by(insert) {
        Asked::Nothing => {
            query.build().persistent(usual).execute(connection).await?;
            return Ok(no_places(insert));
        }
        Asked::Places => query.push(PLACES),
        Asked::Turns => query.push(insert.tables.render(TURNS)),
    };
    let places = query.build_query_as().persistent(usual).fetch_all(connection).await?;
    let place = |(seq, shard, at, is_next): (i64, i16, i64, bool)| Inserted {
        seq: Seq(seq),
        shard: ShardId(shard),
        occurred_at: Timestamp::from_unix_micros(at),
        is_next,
    };
    Ok(places_of(insert, places.into_iter().map(place).collect()))
}

fn push(
    row: &mut Separated<'_, Sqlite, &'static str>,
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
        Column::OccurredAt => match event.moment() {
            Some(moment) => row.push_bind(moment.unix_micros()),
            None => row.push(NOW),
        },
        Column::AvailableAt => match event.delivery() {
            Delivery::AtOnce => row.push(NOW),
            Delivery::At(moment) => row.push_bind(moment.unix_micros()),
            Delivery::After(delay) => {
                row.push(NOW).push_unseparated(" + ").push_bind_unseparated(micros(delay))
            }
        },
        Column::LockedBy => row.push_bind(lease(insert, event).map(|hot| hot.owner.to_string())),
        Column::LockedUntil => {
            let length = lease(insert, event).map(|hot| micros(hot.length));
            row.push(NOW).push_unseparated(" + ").push_bind_unseparated(length)
        }
        Column::LockToken => row.push_bind(token(insert, event)),
        Column::Status => row.push_bind(status(event)),
        // The table computes these two.
        Column::OrderingKey | Column::Shard => row,
    };
}

/// A refused statement is undone by itself on SQLite; the transaction goes on without it.
fn refused(source: sqlx::Error, envelopes: &[Envelope]) -> Error {
    if source.as_database_error().is_some_and(|answer| answer.is_unique_violation()) {
        return Error::new(ErrorKind::Duplicate, duplicate(envelopes))
            .caused_by(source)
            .leaving(TxFate::Open);
    }
    if has_ended(&source) { ended().caused_by(source) } else { Error::from(source) }
}
