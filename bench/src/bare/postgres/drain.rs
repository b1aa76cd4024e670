//! Read a page, settle it, until nothing is left.

use pillarbox::ShardId;
use sqlx::{PgPool, Row as _};

use crate::{
    Result,
    bare::{BATCH, Ending},
};

const READ: &str = "
select e.shard, e.seq, e.event_id, e.event_type, e.aggregate_id, e.payload::text as payload
from unnest($1::smallint[]) as want (shard)
cross join lateral (
    select *
    from bare_outbox_event e
    where e.shard = want.shard and e.status = 0
    order by e.seq
    limit (select $2)
) e";

const DELETE: &str = "
delete from bare_outbox_event e
using unnest($1::smallint[], $2::bigint[]) as v (shard, seq)
where e.shard = v.shard and e.seq = v.seq and e.status = 0";

const MARK: &str = "
update bare_outbox_event e
set status = 1, done_at = clock_timestamp(), settled_by = 'order.placed'
from unnest($1::smallint[], $2::bigint[]) as v (shard, seq)
where e.shard = v.shard and e.seq = v.seq and e.status = 0";

/// What a listener would get.
struct Event {
    shard: i16,
    seq: i64,
    _parts: [String; 4],
}

pub(super) async fn drain(pool: &PgPool, shards: &[ShardId], ending: Ending) -> Result<u64> {
    let shards: Vec<i16> = shards.iter().map(|shard| shard.0).collect();
    let limit = i64::from(BATCH) / i64::try_from(shards.len())?;
    let mut drained = 0;
    loop {
        let page = read(pool, &shards, limit).await?;
        if page.is_empty() {
            return Ok(drained);
        }
        drained += settle(pool, &page, ending).await?;
    }
}

async fn read(pool: &PgPool, shards: &[i16], limit: i64) -> Result<Vec<Event>> {
    let rows = sqlx::query(READ).bind(shards).bind(limit).fetch_all(pool).await?;
    let event = |row: &sqlx::postgres::PgRow| {
        Ok(Event {
            shard: row.try_get(0)?,
            seq: row.try_get(1)?,
            _parts: [row.try_get(2)?, row.try_get(3)?, row.try_get(4)?, row.try_get(5)?],
        })
    };
    rows.iter().map(event).collect()
}

async fn settle(pool: &PgPool, page: &[Event], ending: Ending) -> Result<u64> {
    let sql = match ending {
        Ending::Delete => DELETE,
        Ending::Mark => MARK,
    };
    let settled = sqlx::query(sql)
        .bind(page.iter().map(|event| event.shard).collect::<Vec<_>>())
        .bind(page.iter().map(|event| event.seq).collect::<Vec<_>>())
        .execute(pool)
        .await?;
    Ok(settled.rows_affected())
}
