//! The design that this one began with: a lease on each row, and an update for each event.
//!
//! Table, index, claim and batch are those of outbox-java on PostgreSQL.

use std::time::{Duration, Instant};

use sqlx::{PgPool, Row as _};

use super::PostgresBench;
use crate::{
    Result,
    event::NOTE,
    measure::{now, side_by_side},
};

const WORKERS: usize = 4;

const TABLE: &str = "
drop table if exists seed_event;
create table seed_event (
    event_id varchar(36) primary key,
    event_type varchar(128) not null,
    aggregate_type varchar(64),
    aggregate_id varchar(128),
    tenant_id varchar(64),
    payload json not null,
    headers json,
    status smallint not null,
    attempts int not null default 0,
    available_at timestamptz not null,
    created_at timestamptz not null,
    done_at timestamptz,
    last_error text,
    locked_by varchar(128),
    locked_at timestamptz
);
create index seed_status_available on seed_event (status, available_at, created_at)";

const FILL: &str = "
insert into seed_event (
    event_id, event_type, aggregate_type, aggregate_id, payload, status, available_at, created_at)
select '01J' || lpad(n::text, 23, '0'), 'order.placed', 'order', n::text,
    json_build_object('order_id', n, 'note', $2::text), 0,
    now(), now() - interval '1 hour' + n * interval '1 microsecond'
from generate_series(1, $1) n";

const CLAIM: &str = "
update seed_event set locked_by = $1, locked_at = now()
where event_id in (
    select event_id from seed_event
    where status in (0, 2) and available_at <= now()
      and (locked_at is null or locked_at < now() - interval '5 minutes')
    order by created_at
    limit 50
    for update skip locked)
returning event_id, event_type, aggregate_id, payload::text";

const DONE: &str = "
update seed_event set status = 1, done_at = now(), locked_by = null, locked_at = null
where event_id = $1";

impl PostgresBench {
    pub(crate) async fn fill_seed(&self, count: u32) -> Result {
        sqlx::raw_sql(TABLE).execute(&self.pool).await?;
        let fill = sqlx::query(FILL).bind(i64::from(count)).bind(NOTE);
        fill.execute(&self.pool).await?;
        sqlx::raw_sql("vacuum (analyze) seed_event").execute(&self.pool).await?;
        Ok(())
    }

    /// Claims and settles for so long; returns how many events that were.
    pub(crate) async fn drain_seed(&self, time: Duration) -> Result<u64> {
        let end = now() + time;
        let before = self.count_seed().await?;
        let workers = (0..WORKERS).map(|worker| work(self.work.clone(), worker, end));
        let drained = side_by_side(workers).await?;
        let marked = self.count_seed().await? - before;
        if marked != drained {
            return Err(format!("{drained} events drained, {marked} marked").into());
        }
        Ok(drained)
    }

    async fn count_seed(&self) -> Result<u64> {
        let sql = "select count(*) from seed_event where status = 1";
        let count: i64 = sqlx::query_scalar(sql).fetch_one(&self.pool).await?;
        Ok(count.try_into()?)
    }
}

async fn work(pool: PgPool, worker: usize, end: Instant) -> Result<u64> {
    let owner = format!("worker-{worker}");
    let mut drained = 0;
    loop {
        let claimed = sqlx::query(CLAIM).bind(&owner).fetch_all(&pool).await?;
        for row in &claimed {
            let event: String = row.try_get(0)?;
            sqlx::query(DONE).bind(event).execute(&pool).await?;
            drained += 1;
        }
        if claimed.is_empty() || now() >= end {
            return Ok(drained);
        }
    }
}
