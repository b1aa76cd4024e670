//! Every hot statement's plan, read from the server: with a million done rows in the table, with a
//! table that the planner takes for empty, and with a crowd that waits.

use std::fmt::Write as _;

use serde_json::Value;
use sqlx::{AssertSqlSafe, Row as _};

use super::connections::STEADY;
use super::place::{Place, server};
use super::sql::{claims, events, operations, ownership, statistics};

const DONE: u32 = 1_000_000;
const PENDING: u32 = 3_000;
const CROWD: u32 = 30_000;
const WAITING: u32 = 100_000;

/// A statement as the relay runs it: its name, its text, its arguments, the indexes it may use.
struct Hot {
    name: &'static str,
    sql: &'static str,
    args: String,
    indexes: &'static [&'static str],
}

const READY: &str = "plan_outbox_event_ready";
const KEY: &str = "plan_outbox_event_key";
const DUE: &str = "plan_outbox_event_due";
const BLOCKED: &str = "plan_outbox_event_blocked";
const DEAD: &str = "plan_outbox_event_dead";
/// Of an index that stands beside it; good where all of it is wanted, or nothing is ordered.
const BITMAP: &str = "Bitmap Heap Scan";

#[tokio::test]
async fn hot_statements_use_their_indexes_beside_a_million_done_rows() {
    let Some(url) = server() else { return };
    let place = Place::open(&url).await;
    place.fill().await;

    // First as the planner knows nothing of the table, then as it knows everything.
    for (state, prepare) in
        [("not analysed", "select 1"), ("analysed", "analyze plan_outbox_event")]
    {
        place.run(prepare).await;
        let mut statements = place.hot_statements().await;
        statements.extend(Place::rare_statements());
        for hot in statements {
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

/// What a vacuum leaves of a drained table: the belief that it is empty, and pages of the table, or
/// those of its indexes alone. Plans made then are kept, and must do when the table is full again.
#[tokio::test]
async fn hot_statements_look_at_few_rows_of_a_table_that_is_taken_for_empty() {
    let Some(url) = server() else { return };
    for vacuum in ["vacuum (truncate off)", "vacuum (truncate on)"] {
        for planned in ["empty", "full"] {
            let place = Place::open(&url).await;
            place.run(STEADY).await;
            place.leave_empty(vacuum).await;
            if planned == "empty" {
                place.hot_looks().await;
            }
            place.crowd().await;
            for (name, looks) in place.hot_looks().await {
                assert!(
                    looks > 0.0 && looks < f64::from(CROWD),
                    "{name} ({vacuum}, planned while {planned}) looks at {looks} pages and rows"
                );
            }
            place.close().await;
        }
    }
}

/// What waits for its time or behind others is passed by, whatever the planner believes of it.
#[tokio::test]
async fn hot_statements_look_at_few_rows_beside_a_crowd_that_waits() {
    let Some(url) = server() else { return };
    for prepare in ["select 1", "analyze plan_outbox_event", "vacuum analyze plan_outbox_event"] {
        let place = Place::open(&url).await;
        place.run(STEADY).await;
        place.let_wait().await;
        place.run(prepare).await;
        for (name, looks) in place.hot_looks().await {
            assert!(
                looks > 0.0 && looks < f64::from(CROWD),
                "{name} ({prepare}) looks at {looks} pages and rows"
            );
        }
        place.close().await;
    }
}

impl Place {
    async fn fill(&self) {
        self.run("alter table plan_outbox_event set (autovacuum_enabled = off)").await;
        let rows =
            "insert into plan_outbox_event (event_type, payload, partition_key, status, done_at)
            select 'order.placed', '{}', 'key-' || n % 1000";
        self.run(&format!("{rows}, 1, clock_timestamp() from generate_series(1, {DONE}) n")).await;
        self.run(&format!("{rows}, 0, null from generate_series(1, {PENDING}) n")).await;
        self.run("update plan_outbox_shard set owner = 'us', epoch = 1").await;
    }

    /// Fills the table and takes it back: such rows are dead at once, whoever else is at work.
    async fn leave_empty(&self, vacuum: &str) {
        self.run("alter table plan_outbox_event set (autovacuum_enabled = off)").await;
        self.run("update plan_outbox_shard set owner = 'us', epoch = 1").await;
        self.run("begin").await;
        self.crowd().await;
        self.run("rollback").await;
        self.run(&format!("{vacuum} plan_outbox_event")).await;
        let known = "select reltuples = 0 from pg_class where oid = 'plan_outbox_event'::regclass";
        let is_so: bool = sqlx::query_scalar(known).fetch_one(&self.pool).await.unwrap();
        assert!(is_so, "the planner takes the table for empty");
    }

    async fn crowd(&self) {
        let rows = "insert into plan_outbox_event (event_type, payload, partition_key)
            select 'order.placed', '{}', 'key-' || n % 1000";
        self.run(&format!("{rows} from generate_series(1, {CROWD}) n")).await;
    }

    /// Rows that wait for next week, with and without keys, and a few that are due; keys that are
    /// held, with a tail behind each; and new rows.
    async fn let_wait(&self) {
        self.run("alter table plan_outbox_event set (autovacuum_enabled = off)").await;
        self.run("update plan_outbox_shard set owner = 'us', epoch = 1").await;
        let rows = "insert into plan_outbox_event
            (event_type, payload, partition_key, status, available_at)
            select 'order.placed', '{}'";
        let waiting =
            "case when n % 2 = 0 then 'key-' || n % 10000 end, 2, now() + interval '7 days'";
        self.run(&format!("{rows}, {waiting} from generate_series(1, {WAITING}) n")).await;
        self.run(&format!("{rows}, null, 2, now() from generate_series(1, 200) n")).await;
        self.run(&format!("{rows}, 'held-' || n, 4, now() from generate_series(1, 100) n")).await;
        let tail = format!("from generate_series(1, {WAITING}) n");
        self.run(&format!("{rows}, 'held-' || n % 100 + 1, 0, now() {tail}")).await;
        self.run(&format!("{rows}, 'new-' || n, 0, now() from generate_series(1, 200) n")).await;
    }

    /// What a relay asks all the time.
    async fn hot_statements(&self) -> Vec<Hot> {
        let mut hot = self.reads().await;
        hot.extend(self.claims().await);
        hot.extend(self.writes().await);
        hot
    }

    async fn reads(&self) -> Vec<Hot> {
        let (shards, ones) = (shards(), ones());
        let shard = self.shard_of("key-1").await;
        let one_key = format!("array[{shard}]::smallint[], array['key-1'], 20, 1000, 1000");
        let hot = |name, sql, args, indexes| Hot { name, sql, args, indexes };
        vec![
            hot(
                "READ",
                events::READ,
                format!("{shards}, {ones}, 20, 1000, 1000"),
                &[READY, KEY, BLOCKED],
            ),
            hot("READ_KEYS", events::READ_KEYS, one_key, &[KEY, BLOCKED]),
            hot("NEWEST", events::NEWEST, format!("{shard}"), &[READY]),
            hot(
                "READ_HEADS",
                events::READ_HEADS,
                format!("{shard}, 'key-1', 20, 1000, 1000"),
                &[READY, KEY, BLOCKED],
            ),
            hot(
                "READ_KEYLESS",
                events::READ_KEYLESS,
                format!("{shard}, 0, 20, 1000, 1000, 1000000"),
                &[KEY],
            ),
            hot(
                "READ_CONTENT",
                events::READ_CONTENT,
                format!("{shards}, {ones}, 1000, 1000"),
                &[READY],
            ),
        ]
    }

    async fn claims(&self) -> Vec<Hot> {
        let shards = shards();
        let take = format!("'us', {shards}, 100, 15000000, 1000, 1000");
        let hot = |name, sql, args, indexes| Hot { name, sql, args, indexes };
        vec![
            hot("NEXT_DUE", events::NEXT_DUE, shards.clone(), &[DUE]),
            hot("PROMOTE", events::PROMOTE, format!("{shards}, 100"), &[DUE]),
            hot("CLAIM", claims::CLAIM, take.clone(), &[READY]),
            hot(
                "CLAIM_HEADS",
                claims::CLAIM_HEADS,
                format!("{take}, 'key-1'"),
                &[READY, KEY, BLOCKED],
            ),
            hot("LOCKED", events::LOCKED, self.places().await, &[READY]),
            hot("COUNT_DUE", claims::COUNT_DUE, format!("{shards}, 1000"), &[READY, BLOCKED, DUE]),
        ]
    }

    async fn writes(&self) -> Vec<Hot> {
        let (verdicts, marks) = self.verdicts().await;
        let fence = format!("{}, {}", shards(), ones());
        let leased = format!("'us', {verdicts}");
        let marked = format!("{leased}, {marks}");
        let hot = |name, sql, args, indexes| Hot { name, sql, args, indexes };
        vec![
            hot("POSTPONE", events::POSTPONE, verdicts.clone(), &[READY]),
            hot("SETTLE_DELETE", events::SETTLE_DELETE, format!("{leased}, {fence}"), &[READY]),
            hot("SETTLE_MARK", events::SETTLE_MARK, format!("{marked}, {fence}"), &[READY]),
            hot("RENEW_ROWS", claims::RENEW_ROWS, format!("{leased}, 15000000"), &[READY]),
            hot("RECLAIM", claims::RECLAIM, verdicts.clone(), &[READY]),
            hot("SUSPECT", claims::RECORD_STARTS, format!("{verdicts}, 3"), &[READY]),
            hot("RELEASE_ROWS", claims::RELEASE_ROWS, leased.clone(), &[READY]),
            hot("SETTLE_ROWS_DELETE", claims::SETTLE_ROWS_DELETE, leased, &[READY]),
            hot("SETTLE_ROWS_MARK", claims::SETTLE_ROWS_MARK, marked, &[READY]),
        ]
    }

    /// What maintenance and operators ask. Any index of new rows will do where all of them are counted.
    fn rare_statements() -> Vec<Hot> {
        const DONE: &[&str] = &["plan_outbox_event_done", BITMAP];
        const GIVEN_UP: &[&str] = &[DEAD, BITMAP];
        const PICKED: &[&str] = &["plan_outbox_event_dead_seq", "plan_outbox_event_pkey", BITMAP];
        const ALL: &[&str] = &[READY, KEY, DUE, DEAD, BITMAP];
        let rare =
            |name, sql, args: &str, indexes| Hot { name, sql, args: args.to_owned(), indexes };
        vec![
            rare("PURGE_DONE", operations::PURGE_DONE, "1, 500", DONE),
            rare("PURGE_DEAD", operations::PURGE_DEAD, "1, 500", GIVEN_UP),
            rare("STATS", statistics::STATS, "", ALL),
            rare("SHARD_STATS", statistics::SHARD_STATS, "", ALL),
            rare("TYPE_STATS", statistics::TYPE_STATS, "100", ALL),
            rare("REPLAY", operations::REPLAY, "array[1, 2], 'x', null", PICKED),
            rare("COUNT_DEAD", operations::COUNT_DEAD, "", GIVEN_UP),
            rare("END_ROW_LEASES", ownership::END_ROW_LEASES, "array['us']", &[READY, KEY, BITMAP]),
        ]
    }

    async fn shard_of(&self, key: &str) -> i16 {
        let shard = "select shard from plan_outbox_event where ordering_key = $1 limit 1";
        let shard = sqlx::query_scalar(shard).bind(key).fetch_optional(&self.pool).await;
        shard.unwrap().unwrap_or(0)
    }

    /// Where a thousand new rows are, as arguments.
    async fn places(&self) -> String {
        let verdicts = self.verdicts().await.0;
        verdicts.rsplit_once(", array").map(|(places, _)| places.to_owned()).unwrap()
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
        let what = format!(
            "{done}::smallint[], {zeros}::integer[], {zeros}::bigint[], array['order.placed'], \
             {zeros}::integer[], {done}::integer[]"
        );
        (which, what)
    }

    /// How the generic plan, which a prepared statement ends up with, finds its rows.
    async fn indexes_of(&self, hot: &Hot) -> Vec<String> {
        self.run("set plan_cache_mode = force_generic_plan").await;
        let plan = self.explain("explain (format json)", hot).await;
        let mut used = Vec::new();
        gather(&plan, &mut used);
        used
    }

    /// How often each statement of the hot path looks at a page, a row, or a pair of rows.
    async fn hot_looks(&self) -> Vec<(&'static str, f64)> {
        let mut looks = Vec::new();
        for hot in self.hot_statements().await {
            looks.push((hot.name, self.looks_of(&hot).await));
        }
        looks
    }

    async fn looks_of(&self, hot: &Hot) -> f64 {
        self.run("begin").await;
        let plan = self.explain("explain (analyze, buffers, format json)", hot).await;
        self.run("rollback").await;
        let whole = &plan[0]["Plan"];
        let pages = |name: &str| whole[name].as_f64().unwrap();
        pages("Shared Hit Blocks") + pages("Shared Read Blocks") + rows_looked_at(whole)
    }

    /// Explains the statement, which is prepared when it comes for the first time, as sqlx does.
    async fn explain(&self, explain: &str, hot: &Hot) -> Value {
        let known = "select exists (select 1 from pg_prepared_statements where name = $1)";
        let name = format!("hot_{}", hot.name.to_lowercase());
        let is_known: bool =
            sqlx::query_scalar(known).bind(&name).fetch_one(&self.pool).await.unwrap();
        if !is_known {
            self.run(&format!("prepare {name} as {}", self.store.tables.render(hot.sql))).await;
        }
        let args = if hot.args.is_empty() { String::new() } else { format!("({})", hot.args) };
        let explain = AssertSqlSafe(format!("{explain} execute {name}{args}"));
        let row = sqlx::query(explain).persistent(false).fetch_one(&self.pool).await.unwrap();
        let plan: String = row.try_get_unchecked(0).unwrap();
        serde_json::from_str(&plan).unwrap()
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

/// Events found, and events or pairs found and dropped, at every node of the plan.
fn rows_looked_at(plan: &Value) -> f64 {
    match plan {
        Value::Array(nodes) => nodes.iter().map(rows_looked_at).sum(),
        Value::Object(node) => {
            let number = |name| node.get(name).and_then(Value::as_f64).unwrap_or(0.0);
            let of_events = node.get("Relation Name").is_some_and(|it| it == "plan_outbox_event");
            let found = if of_events { number("Actual Rows") } else { 0.0 };
            let dropped = number("Rows Removed by Filter") + number("Rows Removed by Join Filter");
            let inner: f64 = node.values().map(rows_looked_at).sum();
            (found + dropped) * number("Actual Loops") + inner
        }
        _ => 0.0,
    }
}

/// All of them.
fn shards() -> String {
    format!("{}::smallint[]", series(0..64))
}

/// A floor, or an epoch, for each shard.
fn ones() -> String {
    format!("{}::bigint[]", series((0..64).map(|_| 1)))
}

fn series(numbers: impl IntoIterator<Item = i64>) -> String {
    let mut text = String::from("array[");
    for (at, number) in numbers.into_iter().enumerate() {
        let comma = if at == 0 { "" } else { "," };
        write!(text, "{comma}{number}").unwrap();
    }
    text + "]"
}
