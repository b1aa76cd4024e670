//! Read a page, settle it, until nothing is left.

use pillarbox::ShardId;
use sqlx::{PgPool, Row as _, postgres::PgRow};

use crate::{
    Result,
    baseline::{BATCH, SettleMode},
};

const READ: &str = "
select e.shard, e.seq, e.event_id, e.event_type, e.aggregate_id, e.payload::text as payload
from unnest($1::smallint[]) as want (shard)
cross join lateral (
    select *
    from baseline_outbox_event e
    where e.shard = want.shard and e.status = 0
    order by e.seq
    limit (select $2)
) e";

const DELETE: &str = "
delete from baseline_outbox_event e
using unnest($1::smallint[], $2::bigint[]) as v (shard, seq)
where e.shard = v.shard and e.seq = v.seq and e.status = 0";

const MARK: &str = "
update baseline_outbox_event e
set status = 1, done_at = clock_timestamp(), settled_by = 'order.placed'
from unnest($1::smallint[], $2::bigint[]) as v (shard, seq)
where e.shard = v.shard and e.seq = v.seq and e.status = 0";

/// What a listener would get.
pub(super) struct Event {
    pub(super) shard: i16,
    pub(super) seq: i64,
    _parts: [String; 4],
}

pub(super) async fn drain(pool: &PgPool, shards: &[ShardId], mode: SettleMode) -> Result<u64> {
    let shards: Vec<i16> = shards.iter().map(|shard| shard.0).collect();
    let limit = i64::from(BATCH) / i64::try_from(shards.len())?;
    let mut drained = 0;
    loop {
        let page = read(pool, &shards, limit).await?;
        if page.is_empty() {
            return Ok(drained);
        }
        drained += settle(pool, &page, mode).await?;
    }
}

async fn read(pool: &PgPool, shards: &[i16], limit: i64) -> Result<Vec<Event>> {
    let rows = sqlx::query(READ).bind(shards).bind(limit).fetch_all(pool).await?;
    rows.iter().map(Event::of).collect()
}

impl Event {
    pub(super) fn of(row: &PgRow) -> Result<Self> {
        Ok(Self {
            shard: row.try_get(0)?,
            seq: row.try_get(1)?,
            _parts: [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?],
        })
    }
}

async fn settle(pool: &PgPool, page: &[Event], mode: SettleMode) -> Result<u64> {
    let sql = match mode {
        SettleMode::Delete => DELETE,
        SettleMode::Mark => MARK,
    };
    let settled = sqlx::query(sql)
        .bind(page.iter().map(|event| event.shard).collect::<Vec<_>>())
        .bind(page.iter().map(|event| event.seq).collect::<Vec<_>>())
        .execute(pool)
        .await?;
    Ok(settled.rows_affected())
}
