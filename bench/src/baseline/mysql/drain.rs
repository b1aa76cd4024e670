//! Read a page, settle it, until nothing is left.

use pillarbox::ShardId;
use sqlx::{AssertSqlSafe, MySqlPool, Row as _, mysql::MySqlRow};

use crate::{
    Result,
    baseline::{BATCH, SettleMode},
    measure::is_deadlock,
};

const READ: &str = "(
select seq, event_id, event_type, aggregate_id, payload
from baseline_outbox_event
where status = 0 and pending_shard = ?
order by moment, seq
limit ?)";

const DELETE: &str = "delete from baseline_outbox_event where status = 0 and seq in";

const MARK: &str = "
update baseline_outbox_event
set status = 1, done_at = utc_timestamp(6), settled_by = 'order.placed'
where status = 0 and seq in";

/// What a listener would get.
pub(super) struct Event {
    seq: i64,
    _parts: [String; 4],
}

pub(super) async fn drain(pool: &MySqlPool, shards: &[ShardId], mode: SettleMode) -> Result<u64> {
    let read = vec![READ; shards.len()].join("\nunion all\n");
    let mut drained = 0;
    loop {
        let page = page(pool, &read, shards).await?;
        if page.is_empty() {
            return Ok(drained);
        }
        let settle = match mode {
            SettleMode::Delete => DELETE,
            SettleMode::Mark => MARK,
        };
        let sql = AssertSqlSafe(format!("{settle} ({})", seqs(&page)));
        match sqlx::raw_sql(sql).execute(pool).await {
            Ok(settled) => drained += settled.rows_affected(),
            // Two loops may lock the gaps between each other's rows: who loses reads its page again.
            Err(error) if is_deadlock(&error) => {}
            Err(error) => return Err(error.into()),
        }
    }
}

async fn page(pool: &MySqlPool, read: &str, shards: &[ShardId]) -> Result<Vec<Event>> {
    let limit = BATCH / u32::try_from(shards.len())?;
    let mut query = sqlx::query(AssertSqlSafe(read.to_owned()));
    for shard in shards {
        query = query.bind(shard.0).bind(limit);
    }
    query.fetch_all(pool).await?.iter().map(Event::of).collect()
}

impl Event {
    pub(super) fn of(row: &MySqlRow) -> Result<Self> {
        Ok(Self {
            seq: row.try_get(0)?,
            _parts: [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?],
        })
    }
}

/// Numbers, written into the statement: nothing is quicker.
pub(super) fn seqs(page: &[Event]) -> String {
    page.iter().map(|event| event.seq.to_string()).collect::<Vec<_>>().join(",")
}
