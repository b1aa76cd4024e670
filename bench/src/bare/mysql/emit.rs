//! Transactions with an event, by the library and by hand.

use std::time::Instant;

use pillarbox::{EventId, Outbox};
use sqlx::{MySql, MySqlConnection, QueryBuilder};

use super::MysqlBench;
use crate::bare::{Emit, emit_order};
use crate::{Result, event::OrderPlaced, round::now};

const BUSINESS: &str = "insert into business (id, total) values (?, ?)";

const BARE: &str = "
insert into bare_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values (?, 'order.placed', 'order', ?, ?)";

const SLIM: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values (?, 'order.placed', 'order', ?, ?)";

const BARE_MANY: &str =
    "insert into bare_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload) ";

const SLIM_MANY: &str =
    "insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload) ";

/// Rows of one statement.
const CHUNK: usize = 500;

pub(super) async fn transact(bench: &MysqlBench, order: i64, emit: Emit) -> Result {
    if emit == Emit::Ours {
        let mut tx = bench.outbox.begin(&bench.pool).await?;
        sqlx::query(BUSINESS).bind(order).bind(1999_i64).execute(&mut *tx).await?;
        tx.emit(&OrderPlaced::new(order)).await?;
        return Ok(tx.commit().await?);
    }
    let mut tx = bench.pool.begin().await?;
    sqlx::query(BUSINESS).bind(order).bind(1999_i64).execute(&mut *tx).await?;
    match emit {
        Emit::Bare => insert(&mut tx, BARE, order).await?,
        Emit::Slim => insert(&mut tx, SLIM, order).await?,
        Emit::Ours | Emit::Nothing => {}
    }
    Ok(tx.commit().await?)
}

async fn insert(tx: &mut MySqlConnection, sql: &'static str, order: i64) -> Result {
    sqlx::query(sql)
        .bind(EventId::generate().as_str())
        .bind(order.to_string())
        .bind(serde_json::to_string(&OrderPlaced::new(order))?)
        .execute(tx)
        .await?;
    Ok(())
}

pub(super) async fn emit(
    bench: &MysqlBench,
    outbox: &Outbox,
    order: i64,
    keyed: bool,
) -> Result<(EventId, Instant)> {
    let mut tx = outbox.begin(&bench.pool).await?;
    sqlx::query(BUSINESS).bind(order).bind(1999_i64).execute(&mut *tx).await?;
    let id = emit_order(&mut tx, order, keyed).await?;
    tx.commit().await?;
    Ok((id, now()))
}

pub(super) async fn transact_many(
    bench: &MysqlBench,
    first: i64,
    count: u32,
    emit: Emit,
) -> Result {
    let events = (first..first + i64::from(count)).map(OrderPlaced::new);
    let events: Vec<OrderPlaced> = events.collect();
    if emit == Emit::Ours {
        let mut tx = bench.outbox.begin(&bench.pool).await?;
        tx.emit_all(&events).await?;
        return Ok(tx.commit().await?);
    }
    let mut tx = bench.pool.begin().await?;
    let sql = if emit == Emit::Slim { SLIM_MANY } else { BARE_MANY };
    for events in events.chunks(CHUNK) {
        insert_many(&mut tx, sql, events).await?;
    }
    Ok(tx.commit().await?)
}

async fn insert_many(
    tx: &mut MySqlConnection,
    sql: &'static str,
    events: &[OrderPlaced],
) -> Result {
    let payloads: Vec<String> =
        events.iter().map(serde_json::to_string).collect::<std::result::Result<_, _>>()?;
    let mut insert = QueryBuilder::<MySql>::new(sql);
    insert.push_values(events.iter().zip(payloads), |mut row, (event, payload)| {
        row.push_bind(EventId::generate().as_str().to_owned())
            .push("'order.placed'")
            .push("'order'")
            .push_bind(event.order_id.to_string())
            .push_bind(payload);
    });
    insert.build().execute(tx).await?;
    Ok(())
}
