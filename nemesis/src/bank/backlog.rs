//! Backlogs: many events at once, and none.

use std::time::Duration;

use pillarbox::{Outbox, Result};
use sqlx::MySqlPool;

use super::{Bank, POISONED_ACCOUNT};
use crate::{DisturbanceEvent, OrderedEvent};

const FILL_POSTGRES: &str = "
insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
select
    '01J' || lpad(i::text, 23, '0'), 'nemesis.ordered', 'account', (i % $3)::text,
    json_build_object('account', i % $3, 'n', i / $3 + 1)
from generate_series($1, $2 - 1) i";

const FILL_MYSQL: &str = "
insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
with recursive digit (d) as (select 0 union all select d + 1 from digit where d < 9),
number (i) as (
    select ? + a.d + 10 * b.d + 100 * c.d + 1000 * d.d
    from digit a, digit b, digit c, digit d
)
select
    concat('01J', lpad(i, 23, '0')), 'nemesis.ordered', 'account', i % ?,
    json_object('account', i % ?, 'n', i div ? + 1)
from number where i < ? order by i";

const FILL_SQLITE: &str = "
insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id, payload)
with recursive number (i) as (select ?1 union all select i + 1 from number where i < ?2 - 1)
select
    '01J' || printf('%023d', i), 'nemesis.ordered', 'account', i % ?3,
    json_object('account', i % ?3, 'n', i / ?3 + 1)
from number";

/// How many transactions the server has still to clean up after.
const HISTORY: &str = "show global status like 'Innodb_history_list_length'";

impl Bank {
    /// Lets the database clean up after the last backlog and see the one there is.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn tidy(&self) -> Result<()> {
        let tidy = match self {
            Self::Postgres(_) => "vacuum analyze outbox_event",
            Self::Mysql(_) => "analyze table outbox_event",
            Self::Sqlite(_) => "analyze outbox_event",
        };
        if let Self::Mysql(pool) = self {
            purged(pool).await?;
        }
        on_pool!(self, pool => {
            sqlx::raw_sql(tidy).execute(pool).await?;
        });
        Ok(())
    }

    /// Adds the steps from one number up to another to the backlog by plain inserts, spread over
    /// the accounts, without unordered events.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn fill(&self, from: i64, to: i64, accounts: i64) -> Result<()> {
        match self {
            Self::Postgres(pool) => {
                let fill = sqlx::query(FILL_POSTGRES).bind(from).bind(to).bind(accounts);
                fill.execute(pool).await?;
            }
            Self::Mysql(pool) => {
                for start in (from..to).step_by(10_000) {
                    let mut fill = sqlx::query(FILL_MYSQL).bind(start);
                    for _ in 0..3 {
                        fill = fill.bind(accounts);
                    }
                    fill.bind(to).execute(pool).await?;
                }
            }
            Self::Sqlite(pool) => {
                let fill = sqlx::query(FILL_SQLITE).bind(from).bind(to).bind(accounts);
                fill.execute(pool).await?;
            }
        }
        self.count_filled(to, accounts).await
    }

    async fn count_filled(&self, to: i64, accounts: i64) -> Result<()> {
        let whole = self.sql("update account set n = $1 + case when id < $2 then 1 else 0 end");
        let whole = sqlx::AssertSqlSafe(whole);
        let (all, rest) = (to / accounts, to % accounts);
        on_pool!(self, pool => sqlx::query(whole).bind(all).bind(rest).execute(pool).await.map(drop)?);
        Ok(())
    }

    /// Adds events that make trouble: so many steps of the poisoned account, and so many troubles.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn emit_disturbances(&self, ordered: i64, disturbances: i64) -> Result<()> {
        let outbox = Outbox::new();
        let poison: Vec<OrderedEvent> =
            (1..=ordered).map(|n| OrderedEvent { account: POISONED_ACCOUNT, n }).collect();
        let disturbances: Vec<DisturbanceEvent> =
            (0..disturbances).map(|id| DisturbanceEvent { id }).collect();
        on_pool!(self, pool => {
            let mut tx = outbox.begin(pool).await?;
            tx.emit_all(&poison).await?;
            tx.emit_all(&disturbances).await?;
            tx.commit().await?;
        });
        Ok(())
    }

    /// Deletes every event.
    ///
    /// # Errors
    /// When a statement fails.
    pub async fn clear(&self) -> Result<()> {
        on_pool!(self, pool => {
            sqlx::query("delete from outbox_event").execute(pool).await.map(drop)?;
        });
        Ok(())
    }
}

/// Waits until InnoDB has cleared away what was deleted, which it does by itself and takes its time.
async fn purged(pool: &MySqlPool) -> Result<()> {
    for _ in 0..1200 {
        let (_, left): (String, String) = sqlx::query_as(HISTORY).fetch_one(pool).await?;
        if left.parse().is_ok_and(|left: u64| left < 1000) {
            break;
        }
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    Ok(())
}
