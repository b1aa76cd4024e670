//! Every hot statement's plan, read from the server with a million done rows in the table.

use std::fmt::Write as _;

use serde_json::Value;
use sqlx::postgres::PgPoolOptions;
use sqlx::{AssertSqlSafe, Connection as _, PgConnection, PgPool, Row as _};

use super::PostgresStore;
use super::sql::{self, admin, claim};
use crate::id::OwnerId;
use crate::store::Store as _;
use crate::table::TablePrefix;

const DONE: u32 = 1_000_000;
const PENDING: u32 = 3_000;

/// A statement as the relay runs it: its name, its text, its arguments, the indexes it may use.
struct Hot {
    name: &'static str,
    sql: &'static str,
    args: String,
    indexes: &'static [&'static str],
}

const BY_SHARD: &[&str] = &["plan_outbox_event_pending"];
const BY_SHARD_AND_KEY: &[&str] = &["plan_outbox_event_pending", "plan_outbox_event_key"];
const DONE_BY_TIME: &[&str] = &["plan_outbox_event_done", BITMAP];
const DEAD_BY_TIME: &[&str] = &["plan_outbox_event_dead", BITMAP];
/// Both indexes of what is pending will do where all of it is counted.
const PENDING_AND_DEAD: &[&str] =
    &["plan_outbox_event_pending", "plan_outbox_event_key", "plan_outbox_event_dead", BITMAP];
/// Of an index that stands beside it; good where all of it is wanted, or nothing is ordered.
const BITMAP: &str = "Bitmap Heap Scan";

#[tokio::test]
async fn hot_statements_use_the_pending_index_beside_a_million_done_rows() {
    let Some(url) = server() else { return };
    let place = Place::open(&url).await;
    place.fill().await;

    // First as the planner knows nothing of the table, then as it knows everything.
    for (state, prepare) in
        [("not analysed", "select 1"), ("analysed", "analyze plan_outbox_event")]
    {
        place.run(prepare).await;
        for hot in place.hot_statements().await {
            let used = place.indexes_of(&hot).await;
            assert!(
                used.iter().all(|index| hot.indexes.contains(&index.as_str())) && !used.is_empty(),
                "{} ({state}) reads outbox_event by {used:?}, not by {:?}",
                hot.name,
                hot.indexes
            );
        }
    }
    place.close().await;
}

/// The server of the tests; without one the test is skipped, unless it is required.
fn server() -> Option<String> {
    let url = std::env::var("PILLARBOX_POSTGRES_URL").ok();
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == "postgres");
    assert!(url.is_some() || !is_required, "PILLARBOX_POSTGRES_URL is not set");
    if url.is_none() {
        eprintln!("skipped: PILLARBOX_POSTGRES_URL is not set");
    }
    url
}

/// A schema of its own, whose statistics nobody but the test gathers.
struct Place {
    url: String,
    schema: String,
    pool: PgPool,
    store: PostgresStore,
}

impl Place {
    async fn open(url: &str) -> Self {
        let schema = format!("plan_{}", OwnerId::generate()).to_lowercase();
        let mut admin = PgConnection::connect(url).await.unwrap();
        let create = AssertSqlSafe(format!("create schema {schema}"));
        sqlx::query(create).execute(&mut admin).await.unwrap();
        let options = url.parse::<sqlx::postgres::PgConnectOptions>().unwrap();
        let options = options.options([("search_path", schema.as_str())]);
        let pool = PgPoolOptions::new().max_connections(1).connect_with(options).await.unwrap();
        let store = PostgresStore::new(pool.clone()).prefix(TablePrefix::new("plan_").unwrap());
        store.migrate().await.unwrap();
        Self { url: url.to_owned(), schema, pool, store }
    }

    async fn fill(&self) {
        self.run("alter table plan_outbox_event set (autovacuum_enabled = off)").await;
        let rows =
            "insert into plan_outbox_event (event_type, payload, partition_key, status, done_at)
            select 'order.placed', '{}', 'key-' || n % 1000";
        self.run(&format!("{rows}, 1, clock_timestamp() from generate_series(1, {DONE}) n")).await;
        self.run(&format!("{rows}, 0, null from generate_series(1, {PENDING}) n")).await;
        self.run("update plan_outbox_shard set owner = 'us', epoch = 1").await;
    }

    async fn run(&self, statement: &str) {
        let statement = AssertSqlSafe(statement.to_owned());
        sqlx::raw_sql(statement).execute(&self.pool).await.unwrap();
    }

    async fn hot_statements(&self) -> Vec<Hot> {
        let (verdicts, marks) = self.verdicts().await;
        let shards = format!("{}::smallint[]", series(0..64));
        let ones = format!("{}::bigint[]", series((0..64).map(|_| 1)));
        let fence = format!("'us', {shards}, {ones}");
        let hot = |name, sql, args, indexes| Hot { name, sql, args, indexes };
        let read = format!("{shards}, {ones}, 100");
        let read_key = "1, 'key-1', 100".to_owned();
        let delete = format!("{fence}, {verdicts}");
        let mark = format!("{fence}, {verdicts}, {marks}");
        let take = format!("'us', {shards}, 100, 15000000");
        let take_heads = format!("{take}, 'key-1'");
        let renew = format!("'us', {verdicts}, 15000000");
        let release = format!("'us', {verdicts}");
        let mark_rows = format!("'us', {verdicts}, {marks}");
        vec![
            hot("READ", sql::READ, read, BY_SHARD_AND_KEY),
            hot("READ_KEY", sql::READ_KEY, read_key, BY_SHARD_AND_KEY),
            hot("SETTLE_DELETE", sql::SETTLE_DELETE, delete, BY_SHARD),
            hot("SETTLE_MARK", sql::SETTLE_MARK, mark, BY_SHARD),
            hot("CLAIM", claim::CLAIM, take, BY_SHARD),
            hot("CLAIM_HEADS", claim::CLAIM_HEADS, take_heads, BY_SHARD_AND_KEY),
            hot("RENEW_ROWS", claim::RENEW_ROWS, renew, BY_SHARD),
            hot("RECLAIM", claim::RECLAIM, verdicts.clone(), BY_SHARD),
            hot("RELEASE_ROWS", claim::RELEASE_ROWS, release.clone(), BY_SHARD),
            hot("SETTLE_ROWS_DELETE", claim::SETTLE_ROWS_DELETE, release, BY_SHARD),
            hot("SETTLE_ROWS_MARK", claim::SETTLE_ROWS_MARK, mark_rows, BY_SHARD),
            hot("PURGE_DONE", admin::PURGE_DONE, "1, 500".to_owned(), DONE_BY_TIME),
            hot("PURGE_DEAD", admin::PURGE_DEAD, "1, 500".to_owned(), DEAD_BY_TIME),
            hot("STATS", admin::STATS, String::new(), PENDING_AND_DEAD),
            hot("TYPE_STATS", admin::TYPE_STATS, "100".to_owned(), PENDING_AND_DEAD),
            hot("COUNT_DEAD", admin::COUNT_DEAD, String::new(), DEAD_BY_TIME),
        ]
    }

    /// A thousand verdicts as arguments: which rows, and what to write.
    async fn verdicts(&self) -> (String, String) {
        let rows: Vec<(i16, i64, i32)> = sqlx::query_as(
            "select shard, seq, lock_token from plan_outbox_event
            where status = 0 order by seq limit 1000",
        )
        .fetch_all(&self.pool)
        .await
        .unwrap();
        let which = format!(
            "{}::smallint[], {}::bigint[], {}::integer[]",
            series(rows.iter().map(|row| i64::from(row.0))),
            series(rows.iter().map(|row| row.1)),
            series(rows.iter().map(|row| i64::from(row.2))),
        );
        let done = series(rows.iter().map(|_| 1));
        let zeros = series(rows.iter().map(|_| 0));
        let nulls = format!("array[{}]", vec!["null"; rows.len()].join(","));
        let what = format!(
            "{done}::smallint[], {zeros}::integer[], {zeros}::bigint[], {nulls}::text[], \
             {nulls}::text[]"
        );
        (which, what)
    }

    /// How the generic plan, which a prepared statement ends up with, finds its rows.
    async fn indexes_of(&self, hot: &Hot) -> Vec<String> {
        self.run("set plan_cache_mode = force_generic_plan").await;
        self.run(&format!("prepare hot as {}", self.store.tables.render(hot.sql))).await;
        let args = if hot.args.is_empty() { String::new() } else { format!("({})", hot.args) };
        let explain = AssertSqlSafe(format!("explain (format json) execute hot{args}"));
        let row = sqlx::query(explain).fetch_one(&self.pool).await.unwrap();
        let plan: String = row.try_get_unchecked(0).unwrap();
        let plan: Value = serde_json::from_str(&plan).unwrap();
        self.run("deallocate hot").await;
        let mut used = Vec::new();
        gather(&plan, &mut used);
        used
    }

    async fn close(self) {
        self.pool.close().await;
        let mut admin = PgConnection::connect(&self.url).await.unwrap();
        let drop = AssertSqlSafe(format!("drop schema {} cascade", self.schema));
        sqlx::query(drop).execute(&mut admin).await.unwrap();
    }
}

/// The index, or the kind of scan, by which each node of the plan finds events.
fn gather(plan: &Value, used: &mut Vec<String>) {
    match plan {
        Value::Array(nodes) => nodes.iter().for_each(|node| gather(node, used)),
        Value::Object(node) => {
            let text = |name| node.get(name).and_then(Value::as_str);
            let kind = text("Node Type").unwrap_or_default();
            // A place is found by an index before; and what is changed is not looked for.
            let looks = kind != "ModifyTable" && kind != "Tid Scan";
            let by_index = text("Index Name").map(str::to_owned);
            if looks && text("Relation Name") == Some("plan_outbox_event") {
                used.push(by_index.unwrap_or_else(|| kind.to_owned()));
            } else if kind == "Bitmap Index Scan" {
                used.extend(by_index);
            }
            node.values().for_each(|inner| gather(inner, used));
        }
        _ => {}
    }
}

fn series(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::from("array[");
    for (at, number) in numbers.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(text, "{comma}{number}").unwrap();
    }
    text + "]"
}
