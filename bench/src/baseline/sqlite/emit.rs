//! The statements of transactions with an event by hand.

use pillarbox::EventId;
use sqlx::{QueryBuilder, Sqlite, SqliteConnection, SqlitePool, SqliteTransaction};

use crate::{Result, event::OrderPlaced};

pub(super) const BUSINESS: &str = "insert into business (id, total) values (?1, ?2)";

pub(super) const BASELINE: &str = "
insert into baseline_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values (?1, 'order.placed', 'order', ?2, ?3)";

pub(super) const SLIM: &str = "
insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload)
values (?1, 'order.placed', 'order', ?2, ?3)";

pub(super) const BASELINE_MANY: &str = "insert into baseline_outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload) ";

pub(super) const SLIM_MANY: &str =
    "insert into slim_event (event_id, event_type, aggregate_type, aggregate_id, payload) ";

pub(super) async fn begin(pool: &SqlitePool) -> Result<SqliteTransaction<'static>> {
    Ok(pool.begin_with("begin immediate").await?)
}

insert_in_chunks!(Sqlite, SqliteConnection);
