//! Read a page, settle it, until nothing is left.

use sqlx::{Row as _, SqlitePool, sqlite::SqliteRow};

use crate::{
    Result,
    bare::{BATCH, Ending},
};

const READ: &str = "
select seq, event_id, event_type, aggregate_id, payload
from bare_outbox_event
where shard = 0 and status = 0
order by seq
limit ?1";

const DELETE: &str = "
delete from bare_outbox_event
where seq in (select value from json_each(?1)) and status = 0";

const MARK: &str = "
update bare_outbox_event
set status = 1, settled_by = 'order.placed',
    done_at = cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000
where seq in (select value from json_each(?1)) and status = 0";

/// What a listener would get.
struct Event {
    seq: i64,
    _parts: [String; 4],
}

pub(super) async fn drain(pool: &SqlitePool, ending: Ending) -> Result<u64> {
    let mut drained = 0;
    loop {
        let page = read(pool).await?;
        if page.is_empty() {
            return Ok(drained);
        }
        drained += settle(pool, &page, ending).await?;
    }
}

async fn read(pool: &SqlitePool) -> Result<Vec<Event>> {
    let rows = sqlx::query(READ).bind(BATCH).fetch_all(pool).await?;
    let event = |row: &SqliteRow| {
        Ok(Event {
            seq: row.try_get(0)?,
            _parts: [row.try_get(1)?, row.try_get(2)?, row.try_get(3)?, row.try_get(4)?],
        })
    };
    rows.iter().map(event).collect()
}

async fn settle(pool: &SqlitePool, page: &[Event], ending: Ending) -> Result<u64> {
    let sql = match ending {
        Ending::Delete => DELETE,
        Ending::Mark => MARK,
    };
    let seqs: Vec<i64> = page.iter().map(|event| event.seq).collect();
    let settled = sqlx::query(sql).bind(serde_json::to_string(&seqs)?).execute(pool).await?;
    Ok(settled.rows_affected())
}
