//! Read a page, settle it, until nothing is left.

use sqlx::{Row as _, SqlitePool, sqlite::SqliteRow};

use crate::{
    Result,
    baseline::{BATCH, SettleMode},
};

const READ: &str = "
select seq, event_id, event_type, aggregate_id, payload
from baseline_outbox_event
where shard = 0 and status = 0
order by seq
limit ?1";

const DELETE: &str = "
delete from baseline_outbox_event
where seq in (select value from json_each(?1)) and status = 0";

const MARK: &str = "
update baseline_outbox_event
set status = 1, settled_by = 'order.placed',
    done_at = cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000
where seq in (select value from json_each(?1)) and status = 0";

/// What a listener would get.
pub(super) struct Event {
    seq: i64,
    _parts: [String; 4],
}

pub(super) async fn drain(pool: &SqlitePool, mode: SettleMode) -> Result<u64> {
    let mut drained = 0;
    loop {
        let page = read(pool).await?;
        if page.is_empty() {
            return Ok(drained);
        }
        drained += settle(pool, &page, mode).await?;
    }
}

async fn read(pool: &SqlitePool) -> Result<Vec<Event>> {
    let rows = sqlx::query(READ).bind(BATCH).fetch_all(pool).await?;
    rows.iter().map(Event::of).collect()
}

async fn settle(pool: &SqlitePool, page: &[Event], mode: SettleMode) -> Result<u64> {
    let sql = match mode {
        SettleMode::Delete => DELETE,
        SettleMode::Mark => MARK,
    };
    let settled = sqlx::query(sql).bind(seqs(page)?).execute(pool).await?;
    Ok(settled.rows_affected())
}

impl Event {
    pub(super) fn of(row: &SqliteRow) -> Result<Self> {
        Ok(Self {
            seq: row.try_get(0)?,
            _parts: [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?],
        })
    }
}

/// Sequence numbers as a JSON array.
pub(super) fn seqs(page: &[Event]) -> Result<String> {
    Ok(serde_json::to_string(&page.iter().map(|event| event.seq).collect::<Vec<_>>())?)
}
