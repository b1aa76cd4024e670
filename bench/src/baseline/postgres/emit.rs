//! The statements of transactions with an event by hand.

use pillarbox::EventId;
use sqlx::{PgConnection, PgPool, PgTransaction};

use crate::{Result, event::OrderPlaced};

pub(super) const BUSINESS: &str = "insert into business (id, total) values ($1, $2)";

pub(super) const BASELINE: &str = "
insert into baseline_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values ($1, 'order.placed', 'order', $2, $3::json)";

pub(super) const SLIM: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values ($1, 'order.placed', 'order', $2, $3::json)";

pub(super) const BASELINE_MANY: &str = "
insert into baseline_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
select event_id, 'order.placed', 'order', aggregate_id, payload::json
from unnest($1::text[], $2::text[], $3::text[]) as v (event_id, aggregate_id, payload)";

pub(super) const SLIM_MANY: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
select event_id, 'order.placed', 'order', aggregate_id, payload::json
from unnest($1::text[], $2::text[], $3::text[]) as v (event_id, aggregate_id, payload)";

pub(super) async fn begin(pool: &PgPool) -> Result<PgTransaction<'static>> {
    Ok(pool.begin().await?)
}

pub(super) async fn insert_many(
    tx: &mut PgConnection,
    sql: &'static str,
    events: &[OrderPlaced],
) -> Result {
    let ids: Vec<_> = events.iter().map(|_| EventId::generate().as_str().to_owned()).collect();
    let orders: Vec<_> = events.iter().map(|event| event.order_id.to_string()).collect();
    let payloads: Vec<_> =
        events.iter().map(serde_json::to_string).collect::<std::result::Result<_, _>>()?;
    sqlx::query(sql).bind(ids).bind(orders).bind(payloads).execute(tx).await?;
    Ok(())
}
