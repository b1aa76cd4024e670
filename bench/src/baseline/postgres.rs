//! PostgreSQL: a schema of its own, and statements by hand.

mod claim;
mod drain;
mod emit;
mod seed;

use std::{sync::Arc, time::Instant};

use pillarbox::store::Order;
use pillarbox::{EventId, Outbox, OwnerId, PostgresStore, ShardId, Store, TablePrefix};
use sqlx::postgres::{PgConnectOptions, PgPoolOptions, PgRow};
use sqlx::{AssertSqlSafe, PgPool, Row as _};

use super::{BASELINE, Database, Emit, HeldSnapshot, Index, Load, Prefix, SettleMode, emit_order};
use crate::event::{NOTE, OrderPlaced};
use crate::{Result, cpu, measure::ResourceUse, measure::now};

/// Of the business transactions.
const CONNECTIONS: u32 = 32;

/// Ids look like ULIDs and grow, as those of the library do.
const LOAD: &str = "
insert into {p}outbox_event (
    event_id, event_type, aggregate_type, aggregate_id, partition_key, payload, status,
    done_at)
select
    '01J' || lpad(n::text, 23, '0'), 'order.placed', 'order', (n % greatest($3, 1))::text, case $3 when 0 then '' end,
    json_build_object('order_id', n, 'note', $4::text),
    $5, case $5 when 1 then clock_timestamp() end
from generate_series($1, $1 + $2 - 1) n";

/// What `{p}outbox_event` would be if nobody read it.
const SLIM: &str = r#"
create table slim_event (
    event_id varchar(36) collate "C" primary key,
    event_type varchar(128) not null,
    aggregate_type varchar(64) not null,
    aggregate_id varchar(128),
    payload json not null,
    created_at timestamptz not null default clock_timestamp()
);
create table business (id bigint primary key, total bigint not null)"#;

/// Rows are live ones that were fetched through an index or read by a scan of the table.
const READ: &str = "
select
    (select seq_tup_read + coalesce(idx_tup_fetch, 0) from pg_stat_user_tables
    where schemaname = $1 and relname = 'outbox_event')::bigint,
    (select sum(idx_tup_read) from pg_stat_user_indexes
    where schemaname = $1 and relname = 'outbox_event')::bigint";

/// What has been read of the table of events.
#[derive(Clone, Copy, Debug)]
pub(crate) struct RowsRead {
    pub(crate) rows: u64,
    /// Of its indexes.
    pub(crate) entries: u64,
}

impl RowsRead {
    pub(crate) const fn since(self, before: Self) -> Self {
        Self { rows: self.rows - before.rows, entries: self.entries - before.entries }
    }
}

#[derive(Clone, Debug)]
pub(crate) struct PostgresBench {
    /// Of the business transactions.
    pool: PgPool,
    /// Of the store.
    work: PgPool,
    /// Of the loops that do by hand what the store does.
    baseline: PgPool,
    /// Reads the meters, so that it is not among what they measure.
    other: PgPool,
    schema: String,
    server: String,
    outbox: Outbox,
}

impl PostgresBench {
    pub(crate) async fn open(url: &str) -> Result<Self> {
        let schema = format!("pillarbox_bench_{}", std::process::id());
        let options: PgConnectOptions = url.parse()?;
        let other = PgPoolOptions::new().max_connections(1).connect_with(options.clone()).await?;
        run(&other, &format!("create schema {schema}")).await?;
        let options = options.application_name(&schema).options([("search_path", &schema)]);
        let pool = pool(&options, CONNECTIONS).await?;
        let (work, baseline) = (pool.clone(), pool.clone());
        let server: String = sqlx::query_scalar("show server_version").fetch_one(&other).await?;
        let number = server.split(' ').next().unwrap_or_default();
        let server = format!("PostgreSQL {number}");
        let bench = Self { pool, work, baseline, other, schema, server, outbox: Outbox::new() };
        bench.store("")?.migrate().await?;
        bench.store(BASELINE)?.migrate().await?;
        sqlx::raw_sql(SLIM).execute(&bench.pool).await?;
        Ok(bench)
    }

    pub(crate) async fn close(self) -> Result {
        self.pool.close().await;
        run(&self.other, &format!("drop schema {} cascade", self.schema)).await?;
        self.other.close().await;
        Ok(())
    }

    /// What the whole server has used so far, with everybody it serves and all it does by itself.
    pub(crate) async fn used_by_all(&self) -> Result<ResourceUse> {
        let row = sqlx::query(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as log_bytes,
                pg_backend_pid() as pid",
        )
        .fetch_one(&self.other)
        .await?;
        let log_bytes: i64 = row.try_get("log_bytes")?;
        let pid: i32 = row.try_get("pid")?;
        let server = u32::try_from(pid).ok().and_then(cpu::parent_of);
        let server = server.filter(|pid| cpu::is_called(*pid, "postgres"));
        Ok(ResourceUse {
            cpu: server.and_then(cpu::of_family),
            log_bytes: log_bytes.try_into().ok(),
        })
    }

    /// What has been read of the events so far, as far as sessions have told the server.
    pub(crate) async fn read(&self) -> Result<RowsRead> {
        let row = sqlx::query(READ).bind(&self.schema).fetch_one(&self.other).await?;
        let (rows, entries): (i64, i64) = (row.try_get(0)?, row.try_get(1)?);
        Ok(RowsRead { rows: rows.try_into()?, entries: entries.try_into()? })
    }

    /// Adds events whose payload has this note.
    pub(crate) async fn load_note(&self, prefix: Prefix, load: Load, note: &str) -> Result {
        sqlx::query(AssertSqlSafe(LOAD.replace("{p}", prefix)))
            .bind(i64::from(load.first))
            .bind(i64::from(load.count))
            .bind(i64::from(load.keys))
            .bind(note)
            .bind(load.status)
            .execute(&self.pool)
            .await?;
        Ok(())
    }
}

impl Database for PostgresBench {
    const NAME: &'static str = "postgres";
    const CONNECTIONS: &'static [usize] = &[8, 32];
    const READERS: &'static [usize] = &[1, 2];
    const CLAIMERS: &'static [usize] = &[1, 4];
    const HAS_CONTENTION: bool = true;

    fn server(&self) -> &str {
        &self.server
    }

    fn store(&self, prefix: Prefix) -> Result<Arc<dyn Store>> {
        let prefix = TablePrefix::new(prefix)?;
        Ok(Arc::new(PostgresStore::new(self.work.clone()).prefix(prefix)))
    }

    async fn used(&self) -> Result<ResourceUse> {
        let row = sqlx::query(
            "select pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint as log_bytes,
                array(select pid from pg_stat_activity where application_name = $1) as pids",
        )
        .bind(&self.schema)
        .fetch_one(&self.other)
        .await?;
        let log_bytes: i64 = row.try_get("log_bytes")?;
        let pids: Vec<i32> = row.try_get("pids")?;
        let pids: Vec<u32> = pids.into_iter().filter_map(|pid| pid.try_into().ok()).collect();
        Ok(ResourceUse { cpu: cpu::of(&pids), log_bytes: log_bytes.try_into().ok() })
    }

    async fn workers(&self, connections: usize) -> Result<Self> {
        let (options, connections) = (self.pool.connect_options(), connections.try_into()?);
        let work = pool(&options, connections).await?;
        // A limit must not hang on luck: with arrays that it can see, the planner may scan the
        // table to delete a thousand rows of it.
        let generic = (*options).clone().options([("plan_cache_mode", "force_generic_plan")]);
        let baseline = pool(&generic, connections).await?;
        Ok(Self { work, baseline, ..self.clone() })
    }

    async fn empty(&self, prefix: Prefix) -> Result {
        self.execute(&format!("truncate {prefix}outbox_event")).await
    }

    async fn load(&self, prefix: Prefix, load: Load) -> Result {
        self.load_note(prefix, load, NOTE).await
    }

    async fn analyze_table(&self, prefix: Prefix) -> Result {
        self.execute(&format!("vacuum (analyze) {prefix}outbox_event")).await
    }

    async fn count(&self, prefix: Prefix, status: i16) -> Result<u64> {
        let sql = format!("select count(*) from {prefix}outbox_event where status = {status}");
        let count: i64 = sqlx::query_scalar(AssertSqlSafe(sql)).fetch_one(&self.pool).await?;
        Ok(count.try_into()?)
    }

    async fn clear(&self) -> Result {
        self.execute("truncate business, slim_event, outbox_event, baseline_outbox_event").await
    }

    transactions!();

    async fn drain(&self, shards: Vec<ShardId>, mode: SettleMode) -> Result<u64> {
        drain::drain(&self.baseline, &shards, mode).await
    }

    async fn claim(&self, owner: &OwnerId, shards: &[ShardId], order: Order) -> Result<u64> {
        claim::claim(&self.baseline, owner, shards, order).await
    }

    async fn hold_snapshot(&self) -> Result<Option<HeldSnapshot>> {
        let mut tx = self.pool.begin_with("begin isolation level repeatable read").await?;
        // The snapshot is taken by the first statement.
        sqlx::query("select 1").execute(&mut *tx).await?;
        Ok(Some(Box::new(tx)))
    }

    async fn indexes(&self, prefix: Prefix) -> Result<Vec<Index>> {
        let sql = "select indexname::text, indexdef from pg_indexes
            where schemaname = $1 and tablename = $2 and indexname not like '%pkey'
            order by indexname";
        let table = format!("{prefix}outbox_event");
        let rows = sqlx::query(sql).bind(&self.schema).bind(table).fetch_all(&self.pool).await?;
        let index = |row: &PgRow| {
            let name: String = row.try_get(0)?;
            let drop = format!("drop index {name}");
            Ok(Index { drop, name, create: row.try_get(1)? })
        };
        rows.iter().map(index).collect()
    }

    async fn execute(&self, sql: &str) -> Result {
        run(&self.pool, sql).await
    }
}

async fn pool(options: &PgConnectOptions, connections: u32) -> Result<PgPool> {
    let pool = PgPoolOptions::new().max_connections(connections).min_connections(connections);
    Ok(pool.connect_with(options.clone()).await?)
}

async fn run(pool: &PgPool, sql: &str) -> Result {
    sqlx::raw_sql(AssertSqlSafe(sql.to_owned())).execute(pool).await?;
    Ok(())
}
