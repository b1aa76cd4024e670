//! Lease a batch row by row, then delete it.

use pillarbox::{OwnerId, store::Order};
use sqlx::{AssertSqlSafe, SqlitePool};

use super::drain::{Event, seqs};
use crate::{Result, baseline::BATCH};

/// Due rows; `{which}` narrows them down.
const CLAIM: &str = "
update baseline_outbox_event
set locked_by = ?1, lock_token = lock_token + 1,
    locked_until =
        cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 + 60000000
where seq in (
    select e.seq from baseline_outbox_event e
    where shard = 0 and status = 0
      and (locked_until is null or locked_until <
          cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000) {which}
    order by e.seq
    limit ?2
)
returning seq, event_id, event_type, aggregate_id, payload";

/// The way one writes it at first: no older row of the key waits.
const HEADS: &str = "and not exists (
    select 1 from baseline_outbox_event o
    where o.shard = 0 and o.ordering_key = e.ordering_key and o.seq < e.seq
      and o.status = 0)";

const DELETE: &str = "
delete from baseline_outbox_event
where seq in (select value from json_each(?2)) and locked_by = ?1 and status = 0";

pub(super) async fn claim(pool: &SqlitePool, owner: &OwnerId, order: Order) -> Result<u64> {
    let claim = CLAIM.replace("{which}", if order == Order::Key { HEADS } else { "" });
    let rows =
        sqlx::query(AssertSqlSafe(claim)).bind(owner.as_str()).bind(BATCH).fetch_all(pool).await?;
    let batch: Vec<Event> = rows.iter().map(Event::of).collect::<Result<_>>()?;
    if batch.is_empty() {
        return Ok(0);
    }
    let deleted = sqlx::query(DELETE).bind(owner.as_str()).bind(seqs(&batch)?);
    let deleted = deleted.execute(pool).await?;
    Ok(deleted.rows_affected())
}
