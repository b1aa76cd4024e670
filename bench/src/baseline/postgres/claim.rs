//! Lease a batch row by row, then delete it.

use pillarbox::{OwnerId, ShardId, store::Order};
use sqlx::{AssertSqlSafe, PgPool};

use super::drain::Event;
use crate::{Result, baseline::BATCH};

/// Due rows; `{which}` narrows them down.
const CLAIM: &str = "
with due as materialized (
    select e.ctid
    from unnest($2::smallint[]) as want (shard)
    cross join lateral (
        select e.ctid
        from baseline_outbox_event e
        where e.shard = want.shard and e.status = 0
          and (e.locked_until is null or e.locked_until < clock_timestamp()) {which}
        order by e.seq
        limit (select $3)
        for update skip locked
    ) e
    limit (select $3)
)
update baseline_outbox_event e
set locked_by = $1, locked_until = clock_timestamp() + interval '1 minute',
    lock_token = e.lock_token + 1
where e.ctid = any(array(select ctid from due))
returning e.shard, e.seq, e.event_id, e.event_type, e.aggregate_id, e.payload::text as payload";

/// The way one writes it at first: no older row of the key waits.
const HEADS: &str = "and not exists (
    select 1 from baseline_outbox_event o
    where o.shard = e.shard and o.ordering_key = e.ordering_key and o.seq < e.seq
      and o.status + 0 = 0)";

const DELETE: &str = "
delete from baseline_outbox_event e
using unnest($2::smallint[], $3::bigint[]) as v (shard, seq)
where e.shard = v.shard and e.seq = v.seq and e.locked_by = $1 and e.status = 0";

pub(super) async fn claim(
    pool: &PgPool,
    owner: &OwnerId,
    shards: &[ShardId],
    order: Order,
) -> Result<u64> {
    let which = if order == Order::Key { HEADS } else { "" };
    let shards: Vec<i16> = shards.iter().map(|shard| shard.0).collect();
    let rows = sqlx::query(AssertSqlSafe(CLAIM.replace("{which}", which)))
        .bind(owner.as_str())
        .bind(shards)
        .bind(i64::from(BATCH))
        .fetch_all(pool)
        .await?;
    let batch: Vec<Event> = rows.iter().map(Event::of).collect::<Result<_>>()?;
    if batch.is_empty() {
        return Ok(0);
    }
    let deleted = sqlx::query(DELETE)
        .bind(owner.as_str())
        .bind(batch.iter().map(|event| event.shard).collect::<Vec<_>>())
        .bind(batch.iter().map(|event| event.seq).collect::<Vec<_>>())
        .execute(pool)
        .await?;
    Ok(deleted.rows_affected())
}
