//! Lease a batch row by row, then delete it.

use pillarbox::{OwnerId, ShardId, store::Order};
use sqlx::{AssertSqlSafe, MySqlPool};

use super::drain::{Event, seqs};
use crate::{Result, baseline::BATCH, measure::is_deadlock};

/// In the order of the index, so that no more rows are locked than are wanted; `{which}` narrows
/// them down.
const PICK: &str = "
select e.seq, e.event_id, e.event_type, e.aggregate_id, e.payload
from baseline_outbox_event e force index (baseline_outbox_event_ready)
where e.status = 0 and e.pending_shard = ? and (e.locked_until is null or e.locked_until < utc_timestamp(6)) {which}
order by e.moment, e.seq
limit ?
for update skip locked";

/// The way one writes it at first: no older row of the key waits.
const HEADS: &str = "and not exists (
    select 1 from baseline_outbox_event o force index (baseline_outbox_event_key)
    where o.status = 0 and o.shard = e.shard and o.pending_key = e.ordering_key
      and o.seq < e.seq)";

const LEASE: &str = "
update baseline_outbox_event
set locked_until = utc_timestamp(6) + interval 1 minute, lock_token = lock_token + 1";

const DELETE: &str = "delete from baseline_outbox_event where status = 0";

/// Takes of the first shard that has something. Claims by hand deadlock with each other when they
/// ask for heads; the loser takes nothing this time.
pub(super) async fn claim(
    pool: &MySqlPool,
    owner: &OwnerId,
    shards: &[ShardId],
    order: Order,
) -> Result<u64> {
    match claim_once(pool, owner, shards, order).await {
        Err(error) if is_deadlock(&*error) => Ok(0),
        claimed => claimed,
    }
}

async fn claim_once(
    pool: &MySqlPool,
    owner: &OwnerId,
    shards: &[ShardId],
    order: Order,
) -> Result<u64> {
    let pick = PICK.replace("{which}", if order == Order::Key { HEADS } else { "" });
    for shard in shards {
        let mut tx = pool.begin().await?;
        let pick = sqlx::query(AssertSqlSafe(pick.clone())).bind(shard.0).bind(BATCH);
        let rows = pick.fetch_all(&mut *tx).await?;
        let batch: Vec<Event> = rows.iter().map(Event::of).collect::<Result<_>>()?;
        if batch.is_empty() {
            tx.rollback().await?;
            continue;
        }
        let (seqs, owner) = (seqs(&batch), owner.as_str());
        let lease = format!("{LEASE}, locked_by = '{owner}' where seq in ({seqs})");
        sqlx::raw_sql(AssertSqlSafe(lease)).execute(&mut *tx).await?;
        tx.commit().await?;
        let delete = format!("{DELETE} and locked_by = '{owner}' and seq in ({seqs})");
        return Ok(sqlx::raw_sql(AssertSqlSafe(delete)).execute(pool).await?.rows_affected());
    }
    Ok(0)
}
