//! Lease a batch row by row, then delete it.

use pillarbox::{OwnerId, ShardId};
use sqlx::{AssertSqlSafe, MySqlPool};

use super::drain::{Event, seqs};
use crate::{Result, bare::BATCH};

/// In the order of the index, so that no more rows are locked than are wanted.
const PICK: &str = "
select seq, event_id, event_type, aggregate_id, payload
from bare_outbox_event force index (bare_outbox_event_pending)
where pending_shard = ? and (locked_until is null or locked_until < utc_timestamp(6))
order by seq
limit ?
for update skip locked";

const LEASE: &str = "
update bare_outbox_event
set locked_until = utc_timestamp(6) + interval 1 minute, lock_token = lock_token + 1";

const DELETE: &str = "delete from bare_outbox_event where status in (0, 2, 4)";

/// Takes of the first shard that has something.
pub(super) async fn claim(pool: &MySqlPool, owner: &OwnerId, shards: &[ShardId]) -> Result<u64> {
    for shard in shards {
        let mut tx = pool.begin().await?;
        let rows = sqlx::query(PICK).bind(shard.0).bind(BATCH).fetch_all(&mut *tx).await?;
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
