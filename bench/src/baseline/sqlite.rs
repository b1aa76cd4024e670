//! SQLite: a file of its own, and statements by hand.

mod claim;
mod drain;
mod emit;

use std::{fs, path::PathBuf, sync::Arc, time::Instant};

use pillarbox::store::Order;
use pillarbox::{EventId, Outbox, OwnerId, ShardId, SqliteStore, Store, TablePrefix};
use sqlx::{AssertSqlSafe, Row as _, SqlitePool, sqlite::SqliteRow};

use super::{
    BASELINE, Database, Emit, HeldSnapshot, Index, Load, OURS, Prefix, SettleMode, emit_order,
};
use crate::event::{NOTE, OrderPlaced};
use crate::{Result, measure::ResourceUse, measure::now};

const LOAD: &str = "
insert into {p}outbox_event (
    event_id, event_type, aggregate_type, aggregate_id, partition_key, payload, status,
    done_at)
with recursive numbers (n) as (
    select ?1 union all select n + 1 from numbers where n < ?1 + ?2 - 1
)
select
    '01J' || printf('%023d', n), 'order.placed', 'order', n % max(?3, 1), case ?3 when 0 then '' end,
    json_object('order_id', n, 'note', ?4),
    ?5, case ?5 when 1 then
        cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000 end
from numbers";

const SLIM: &str = "
create table slim_event (
    event_id text primary key,
    event_type text not null,
    aggregate_type text not null,
    aggregate_id text,
    payload text not null,
    created_at integer not null
        default (cast((julianday('now') - 2440587.5) * 86400000.0 + 0.5 as integer) * 1000)
) strict;
create table business (id integer primary key, total integer not null) strict";

#[derive(Clone, Debug)]
pub(crate) struct SqliteBench {
    pool: SqlitePool,
    dir: PathBuf,
    server: String,
    outbox: Outbox,
}

impl SqliteBench {
    pub(crate) async fn open() -> Result<Self> {
        let dir = std::env::temp_dir().join(format!("pillarbox-bench-{}", std::process::id()));
        fs::create_dir_all(&dir)?;
        let store = SqliteStore::connect(&format!("sqlite://{}/events.db", dir.display())).await?;
        let pool = store.pool().clone();
        let version: String =
            sqlx::query_scalar("select sqlite_version()").fetch_one(&pool).await?;
        let server = format!("SQLite {version}");
        let bench = Self { pool, dir, server, outbox: Outbox::new() };
        bench.store(OURS)?.migrate().await?;
        bench.store(BASELINE)?.migrate().await?;
        sqlx::raw_sql(SLIM).execute(&bench.pool).await?;
        Ok(bench)
    }

    pub(crate) async fn close(self) -> Result {
        self.pool.close().await;
        Ok(fs::remove_dir_all(&self.dir)?)
    }
}

impl Database for SqliteBench {
    const NAME: &'static str = "sqlite";
    /// One writer at a time is all there is.
    const CONNECTIONS: &'static [usize] = &[1, 8];
    const READERS: &'static [usize] = &[1];
    const CLAIMERS: &'static [usize] = &[1];
    const HAS_CONTENTION: bool = false;

    fn server(&self) -> &str {
        &self.server
    }

    fn store(&self, prefix: Prefix) -> Result<Arc<dyn Store>> {
        let prefix = TablePrefix::new(prefix)?;
        Ok(Arc::new(SqliteStore::new(self.pool.clone()).prefix(prefix)))
    }

    /// The database works in this process, whose own CPU time tells all; so do the bytes that it
    /// writes, to the log and from there to the tables.
    async fn used(&self) -> Result<ResourceUse> {
        let io = fs::read_to_string("/proc/self/io").unwrap_or_default();
        let written = io.lines().find_map(|line| line.strip_prefix("wchar: "));
        Ok(ResourceUse { cpu: None, log_bytes: written.and_then(|bytes| bytes.parse().ok()) })
    }

    /// The pool that the library opens has a connection for every reader.
    async fn workers(&self, _connections: usize) -> Result<Self> {
        Ok(self.clone())
    }

    async fn empty(&self, prefix: Prefix) -> Result {
        self.delete(prefix).await
    }

    async fn load(&self, prefix: Prefix, load: Load) -> Result {
        sqlx::query(AssertSqlSafe(LOAD.replace("{p}", prefix)))
            .bind(load.first)
            .bind(load.count)
            .bind(load.keys)
            .bind(NOTE)
            .bind(load.status)
            .execute(&self.pool)
            .await?;
        Ok(())
    }

    async fn analyze_table(&self, prefix: Prefix) -> Result {
        self.execute(&format!("analyze {prefix}outbox_event")).await?;
        self.execute("pragma wal_checkpoint(truncate)").await
    }

    async fn count(&self, prefix: Prefix, status: i16) -> Result<u64> {
        let sql = format!("select count(*) from {prefix}outbox_event where status = {status}");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?;
        Ok(count.try_into()?)
    }

    async fn clear(&self) -> Result {
        for table in ["business", "slim_event", "outbox_event", "baseline_outbox_event"] {
            self.execute(&format!("delete from {table}")).await?;
        }
        self.analyze_table(OURS).await
    }

    transactions!();

    async fn drain(&self, _shards: Vec<ShardId>, mode: SettleMode) -> Result<u64> {
        drain::drain(&self.pool, mode).await
    }

    async fn claim(&self, owner: &OwnerId, _shards: &[ShardId], order: Order) -> Result<u64> {
        claim::claim(&self.pool, owner, order).await
    }

    /// A reader keeps old pages in the log, and nothing in the table.
    async fn hold_snapshot(&self) -> Result<Option<HeldSnapshot>> {
        Ok(None)
    }

    async fn indexes(&self, prefix: Prefix) -> Result<Vec<Index>> {
        // What a constraint needs has no statement, and cannot be dropped.
        let sql = "select name, sql from sqlite_schema
            where type = 'index' and tbl_name = ?1 and sql is not null
            order by name";
        let table = format!("{prefix}outbox_event");
        let rows = sqlx::query(sql).bind(table).fetch_all(&self.pool).await?;
        let index = |row: &SqliteRow| {
            let name: String = row.try_get(0)?;
            let drop = format!("drop index {name}");
            Ok(Index { drop, name, create: row.try_get(1)? })
        };
        rows.iter().map(index).collect()
    }

    async fn execute(&self, sql: &str) -> Result {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await?;
        Ok(())
    }
}
