//! The statements of transactions with an event by hand.

use pillarbox::EventId;
use sqlx::{MySql, MySqlConnection, MySqlPool, MySqlTransaction, QueryBuilder};

use crate::{Result, event::OrderPlaced};

pub(super) const BUSINESS: &str = "insert into business (id, total) values (?, ?)";

pub(super) const BASELINE: &str = "
insert into baseline_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values (?, 'order.placed', 'order', ?, ?)";

pub(super) const SLIM: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values (?, 'order.placed', 'order', ?, ?)";

pub(super) const BASELINE_MANY: &str = "insert into baseline_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload) ";

pub(super) const SLIM_MANY: &str =
    "insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload) ";

pub(super) async fn begin(pool: &MySqlPool) -> Result<MySqlTransaction<'static>> {
    Ok(pool.begin().await?)
}

insert_in_chunks!(MySql, MySqlConnection);
