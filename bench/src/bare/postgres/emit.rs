//! Transactions with an event, by the library and by hand.

use std::time::Instant;

use pillarbox::{EventId, Outbox};
use sqlx::PgConnection;

use super::PostgresBench;
use crate::bare::{Emit, emit_order};
use crate::{Result, event::OrderPlaced, round::now};

const BUSINESS: &str = "insert into business (id, total) values ($1, $2)";

const BARE: &str = "
insert into bare_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values ($1, 'order.placed', 'order', $2, $3::json)";

const SLIM: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values ($1, 'order.placed', 'order', $2, $3::json)";

const BARE_MANY: &str = "
insert into bare_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
select event_id, 'order.placed', 'order', aggregate_id, payload::json
from unnest($1::text[], $2::text[], $3::text[]) as v (event_id, aggregate_id, payload)";

const SLIM_MANY: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
select event_id, 'order.placed', 'order', aggregate_id, payload::json
from unnest($1::text[], $2::text[], $3::text[]) as v (event_id, aggregate_id, payload)";

pub(super) async fn transact(bench: &PostgresBench, order: i64, emit: Emit) -> Result {
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

async fn insert(tx: &mut PgConnection, sql: &'static str, order: i64) -> Result {
    sqlx::query(sql)
        .bind(EventId::generate().as_str())
        .bind(order.to_string())
        .bind(serde_json::to_string(&OrderPlaced::new(order))?)
        .execute(tx)
        .await?;
    Ok(())
}

pub(super) async fn emit(
    bench: &PostgresBench,
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
    bench: &PostgresBench,
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
    insert_many(&mut tx, sql, &events).await?;
    Ok(tx.commit().await?)
}

async fn insert_many(tx: &mut PgConnection, sql: &'static str, events: &[OrderPlaced]) -> Result {
    let ids: Vec<_> = events.iter().map(|_| EventId::generate().as_str().to_owned()).collect();
    let orders: Vec<_> = events.iter().map(|event| event.order_id.to_string()).collect();
    let payloads: Vec<_> =
        events.iter().map(serde_json::to_string).collect::<std::result::Result<_, _>>()?;
    sqlx::query(sql).bind(ids).bind(orders).bind(payloads).execute(tx).await?;
    Ok(())
}
