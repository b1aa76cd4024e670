//! MySQL and MariaDB: a database of its own, and statements by hand.

mod claim;
mod drain;
mod emit;

use std::sync::atomic::{AtomicU64, Ordering};
use std::{fs, path::Path, sync::Arc, time::Instant};

use pillarbox::store::Order;
use pillarbox::{EventId, MysqlStore, Outbox, OwnerId, ShardId, Store, TablePrefix};
use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::{AssertSqlSafe, Executor as _, MySqlPool, Row as _};

use super::{
    BASELINE, Database, Emit, HeldSnapshot, Index, Load, OURS, Prefix, SettleMode, emit_order,
};
use crate::event::{NOTE, OrderPlaced};
use crate::{Result, cpu, measure::ResourceUse, measure::now};

/// Of the business transactions.
const CONNECTIONS: u32 = 32;

/// Numbers to make rows of, as many as a load may have.
const NUMBERS: &str = "
create table digit (d int primary key);
insert into digit values (0), (1), (2), (3), (4), (5), (6), (7), (8), (9);
create table number (n int primary key);
insert into number
select 1 + a.d + 10 * b.d + 100 * c.d + 1000 * d.d + 10000 * e.d
from digit a, digit b, digit c, digit d, digit e";

/// How many tables were emptied.
static EMPTIED: AtomicU64 = AtomicU64::new(0);
/// More rows than a table is given before it is emptied.
const FAR: u64 = 10_000_000;

/// Rows of one statement that loads.
const LOAD_ROWS: u32 = 100_000;

/// Ids look like ULIDs and grow, as those of the library do.
const LOAD: &str = "
insert into {p}outbox_event (
    event_id, event_type, aggregate_type, aggregate_id, partition_key, payload, status,
    done_at)
select
    concat('01J', lpad(? + n - 1, 23, '0')), 'order.placed', 'order', (? + n - 1) % greatest(?, 1), if(? = 0, '', null),
    json_object('order_id', ? + n - 1, 'note', ?),
    ?, if(? = 1, utc_timestamp(6), null)
from number
where n <= ?
order by n";

/// What `{p}outbox_event` would be if nobody read it.
const SLIM: &str = "
create table slim_event (
    event_id varchar(36) character set ascii collate ascii_bin primary key,
    event_type varchar(128) not null,
    aggregate_type varchar(64) not null,
    aggregate_id varchar(128),
    payload longtext not null,
    created_at datetime(6) not null default (utc_timestamp(6))
) engine = innodb character set utf8mb4;
create table business (id bigint primary key, total bigint not null) engine = innodb";

#[derive(Clone, Debug)]
pub(crate) struct MysqlBench {
    /// Of the business transactions, at the server's default isolation.
    pool: MySqlPool,
    /// Of the store, and of the loops that do by hand what it does.
    work: MySqlPool,
    name: String,
    server: String,
    /// The server's process, where it can be seen.
    process: Vec<u32>,
    outbox: Outbox,
}

impl MysqlBench {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let name = format!("pillarbox_bench_{}", std::process::id());
        let options: MySqlConnectOptions = url.parse()?;
        let admin = pool(&options, 1).await?;
        admin.execute(AssertSqlSafe(format!("create database {name}"))).await?;
        let version: String = sqlx::query_scalar("select version()").fetch_one(&admin).await?;
        let process = process(&admin).await;
        admin.close().await;
        let pool = pool(&options.database(&name), CONNECTIONS).await?;
        let (work, server) = (pool.clone(), server(&version));
        let bench = Self { pool, work, name, server, process, outbox: Outbox::new() };
        bench.store(OURS)?.migrate().await?;
        bench.store(BASELINE)?.migrate().await?;
        bench.execute(NUMBERS).await?;
        bench.execute(SLIM).await?;
        Ok(bench)
    }

    pub(crate) async fn close(self) -> Result {
        self.execute(&format!("drop database {}", self.name)).await?;
        self.pool.close().await;
        Ok(())
    }
}

impl Database for MysqlBench {
    const NAME: &'static str = "mysql";
    const CONNECTIONS: &'static [usize] = &[8, 32];
    const READERS: &'static [usize] = &[1, 2];
    const CLAIMERS: &'static [usize] = &[1, 4];
    const HAS_CONTENTION: bool = true;

    fn server(&self) -> &str {
        &self.server
    }

    fn store(&self, prefix: Prefix) -> Result<Arc<dyn Store>> {
        let prefix = TablePrefix::new(prefix)?;
        Ok(Arc::new(MysqlStore::new(self.work.clone()).prefix(prefix)))
    }

    async fn used(&self) -> Result<ResourceUse> {
        let sql = "show global status like 'Innodb_os_log_written'";
        let row = sqlx::raw_sql(sql).fetch_one(&self.pool).await?;
        let log_bytes: String = row.try_get(1)?;
        let cpu = if self.process.is_empty() { None } else { cpu::of(&self.process) };
        Ok(ResourceUse { cpu, log_bytes: log_bytes.parse().ok() })
    }

    async fn workers(&self, connections: usize) -> Result<Self> {
        let options = (*self.pool.connect_options()).clone();
        let work = MySqlPoolOptions::new()
            .max_connections(connections.try_into()?)
            .after_connect(|connection, _| {
                let isolate = "set session transaction isolation level read committed";
                Box::pin(async move { connection.execute(isolate).await.map(drop) })
            })
            .connect_with(options)
            .await?;
        Ok(Self { work, ..self.clone() })
    }

    /// A truncated table counts from 1 again, and relays rely on numbers that come once.
    async fn empty(&self, prefix: Prefix) -> Result {
        let first = FAR * (EMPTIED.fetch_add(1, Ordering::Relaxed) + 1);
        self.execute(&format!("truncate table {prefix}outbox_event")).await?;
        self.execute(&format!("alter table {prefix}outbox_event auto_increment = {first}")).await
    }

    async fn load(&self, prefix: Prefix, load: Load) -> Result {
        for start in (0..load.count).step_by(LOAD_ROWS as usize) {
            let (first, count) = (load.first + start, LOAD_ROWS.min(load.count - start));
            sqlx::query(AssertSqlSafe(LOAD.replace("{p}", prefix)))
                .bind(first)
                .bind(first)
                .bind(load.keys)
                .bind(load.keys)
                .bind(first)
                .bind(NOTE)
                .bind(load.status)
                .bind(load.status)
                .bind(count)
                .execute(&self.pool)
                .await?;
        }
        Ok(())
    }

    async fn analyze_table(&self, prefix: Prefix) -> Result {
        self.execute(&format!("analyze table {prefix}outbox_event")).await
    }

    async fn count(&self, prefix: Prefix, status: i16) -> Result<u64> {
        let sql = format!("select count(*) from {prefix}outbox_event where status = {status}");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?;
        Ok(count.try_into()?)
    }

    async fn clear(&self) -> Result {
        for table in ["business", "slim_event", "outbox_event", "baseline_outbox_event"] {
            self.execute(&format!("truncate table {table}")).await?;
        }
        Ok(())
    }

    transactions!();

    async fn drain(&self, shards: Vec<ShardId>, mode: SettleMode) -> Result<u64> {
        drain::drain(&self.work, &shards, mode).await
    }

    async fn claim(&self, owner: &OwnerId, shards: &[ShardId], order: Order) -> Result<u64> {
        claim::claim(&self.work, owner, shards, order).await
    }

    async fn hold_snapshot(&self) -> Result<Option<HeldSnapshot>> {
        let tx = self.pool.begin_with("start transaction with consistent snapshot").await?;
        Ok(Some(Box::new(tx)))
    }

    async fn indexes(&self, prefix: Prefix) -> Result<Vec<Index>> {
        let sql = "select
                index_name, max(non_unique) = 0 as is_unique,
                cast(group_concat(column_name order by seq_in_index) as char) as columns
            from information_schema.statistics
            where table_schema = database() and table_name = ? and index_name <> 'PRIMARY'
            group by index_name
            order by index_name";
        let table = format!("{prefix}outbox_event");
        let rows = sqlx::query(sql).bind(&table).fetch_all(&self.pool).await?;
        rows.iter().map(|row| index(&table, row)).collect()
    }

    async fn execute(&self, sql: &str) -> Result {
        sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(&self.pool).await?;
        Ok(())
    }
}

fn index(table: &str, row: &MySqlRow) -> Result<Index> {
    let name: String = row.try_get(0)?;
    let is_unique: bool = row.try_get(1)?;
    let columns: String = row.try_get(2)?;
    let kind = if is_unique { "unique key" } else { "key" };
    let drop = format!("alter table {table} drop key {name}");
    let create = format!("alter table {table} add {kind} {name} ({columns})");
    Ok(Index { name, drop, create })
}

/// `10.11.19-MariaDB-0+deb12u1` and `9.1.0` as people say them.
fn server(version: &str) -> String {
    let product = if version.contains("MariaDB") { "MariaDB" } else { "MySQL" };
    format!("{product} {}", version.split('-').next().unwrap_or_default())
}

/// The server's process, if it runs on this machine and tells.
async fn process(admin: &MySqlPool) -> Vec<u32> {
    let paths = sqlx::query_as("select @@datadir, @@pid_file").fetch_one(admin).await;
    let Ok((data, file)): std::result::Result<(String, String), _> = paths else {
        return Vec::new();
    };
    let pid = fs::read_to_string(Path::new(&data).join(file));
    pid.ok().and_then(|pid| pid.trim().parse().ok()).into_iter().collect()
}

async fn pool(options: &MySqlConnectOptions, connections: u32) -> Result<MySqlPool> {
    let pool = MySqlPoolOptions::new().max_connections(connections);
    Ok(pool.connect_with(options.clone()).await?)
}
