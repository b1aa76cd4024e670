//! Every hot statement's plan, read from the server with a million done rows in the table; and how
//! many rows statements look at that must not walk over what waits.

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions, MySqlRow};
use sqlx::{AssertSqlSafe, ConnectOptions as _, MySqlPool, Row as _};

use super::sql::{claims, events, operations, statistics};
use super::{MysqlStore, read};
use crate::id::OwnerId;

/// Doubled this often from a thousand.
const DOUBLED: u32 = 10;

const READY: &str = "outbox_event_ready";
const KEY: &str = "outbox_event_key";
const ID: &str = "outbox_event_id";
const SEQ: &str = "PRIMARY";

const ROWS: &str = "'[[3, 1024001, 0], [3, 1024002, 0]]'";
const VERDICTS: &str = "'[[3, 1024001, 0, 1, 0, 0, null, null]]'";
const SEQS: &str = "'[1024001, 1024002]'";
const IDS: &str = "'[\"a\", \"b\"]'";
const SHARDS: &str = "'[3, 4]'";
const OWNER: &str = "'01ARZ3NDEKTSV4RRFFQ69G5FAV'";

/// A statement as it is run: its text, what is bound, and the indexes it finds events by.
type Hot = (&'static str, &'static [&'static str], &'static [&'static str]);

const HOT: &[Hot] = &[
    (
        events::READ,
        &["0", "9", "9", "9", "3", "0", "9999999", "4", "0", "9999999", "501"],
        &[READY, KEY],
    ),
    (
        events::READ,
        &["1", "9", "9", "9", "3", "1025000", "9999999", "4", "7", "1024500", "501"],
        &[READY, KEY],
    ),
    (events::READ_END, &["3", "1025000", "31"], &[READY]),
    (events::READ_KEYS, &["9", "9", "9", "3", "'key-1'", "100"], &[KEY]),
    (events::NEWEST, &["3"], &[READY]),
    (events::READ_HEADS_FIND, &["3", "'key-1'", "100"], &[KEY]),
    (events::READ_KEYLESS_FIND, &["3", "0", "9999999", "100"], &[KEY]),
    (events::READ_HEADS, &["9", "9", "9", SEQS], &[SEQ, KEY]),
    (events::NEXT_DUE, &[SHARDS], &[READY]),
    (events::FIND_DUE, &["3", "100"], &[READY]),
    (events::PROMOTE_PICK, &[SEQS], &[SEQ]),
    (events::PROMOTE, &[SEQS], &[SEQ]),
    (events::POSTPONE, &[ROWS], &[SEQ]),
    (events::READ_CONTENT, &["9", "9", "9", "'[[3, 1024001], [3, 1024002]]'"], &[SEQ]),
    (events::SETTLE_FIND, &[ROWS], &[SEQ]),
    (events::SETTLE_DELETE, &[ROWS], &[SEQ]),
    (events::SETTLE_MARK, &[VERDICTS], &[SEQ]),
    (events::AUDIT_FAILURES, &[ROWS], &[SEQ]),
    (claims::FIND_CLAIMABLE, &["3", "4", "100"], &[READY]),
    (claims::FIND_KEYLESS, &["3", "4", "100"], &[KEY]),
    (claims::FIND_HEADS, &["3", "4", "''", "100"], &[KEY, SEQ]),
    (claims::COUNT_DUE, &["3", "4", "100000"], &[READY, KEY, SEQ]),
    (claims::COUNT_DUE_WAITING, &["3", "4", "100000"], &[READY, KEY, SEQ]),
    (claims::CLAIM_PICK, &["9", "9", "9", SEQS, "100"], &[SEQ]),
    (claims::CLAIM, &[SEQS, OWNER, "15000000"], &[SEQ]),
    (claims::RENEW_ROWS, &[ROWS, OWNER, "15000000"], &[SEQ]),
    (claims::KEPT_ROWS, &[ROWS, OWNER], &[SEQ]),
    (claims::RELEASE_ROWS, &[ROWS, OWNER], &[SEQ]),
    (claims::RECLAIM, &[ROWS], &[SEQ]),
    (claims::SETTLE_ROWS_FIND, &[ROWS, OWNER], &[SEQ]),
    (claims::SETTLE_ROWS_DELETE, &[ROWS, OWNER], &[SEQ]),
    (claims::SETTLE_ROWS_MARK, &[VERDICTS, OWNER], &[SEQ]),
    (operations::FIND_IDS, &[IDS], &[ID]),
    (operations::OPERATE_PICK, &[SEQS], &[SEQ]),
    (operations::REPLAY, &[SEQS], &[SEQ]),
    (operations::DISCARD, &[SEQS], &[SEQ]),
    (operations::FIND_FINAL, &["1", "0", "500"], &[READY]),
    (operations::PURGE_FINAL, &[SEQS, "1", "0"], &[SEQ]),
    (operations::FIND_ANY, &["500", "0"], &[SEQ]),
    (statistics::STATS, &[], &[READY]),
    (statistics::SHARD_STATS, &[], &[READY, KEY]),
    // It sorts the types, not the rows.
    (statistics::TYPE_STATS, &["100"], &["range, sorted: true"]),
    (DEAD_LETTERS_PAGE, &[], &[READY]),
];

/// A part of a page as it is put together, with its order.
const DEAD_LETTERS_PAGE: &str = "
select e.seq from {p}outbox_event e force index ({p}outbox_event_ready)
where e.pending_shard is null and e.status = 3 and e.moment <= utc_timestamp(6)
    and (e.moment < utc_timestamp(6) or e.seq < 9) order by e.moment desc, e.seq desc limit 100";

/// Statements that run all the time, and as many rows as they may look at beside a key whose head
/// waits for tomorrow before [`TAIL`] new rows, and as many other rows that wait for tomorrow.
const BOUNDED: &[(&str, &[&str], u64)] = &[
    // For each row of the page itself, its place in the order, and three looks at its key.
    (events::READ, &["1", "9", "9", "9", "3", "0", "9999999", "4", "0", "9999999", "31"], 31 * 5),
    (events::READ_END, &["{shard}", "0", "31"], 40),
    (events::NEWEST, &["{shard}"], 5),
    (events::READ_KEYS, &["9", "9", "9", "{shard}", "'tail'", "30"], 30 * 4),
    (events::READ_HEADS_FIND, &["{shard}", "''", "30"], 30 * 4),
    (events::READ_HEADS_FIND, &["{shard}", "'tail'", "30"], 30 * 4),
    (events::READ_KEYLESS_FIND, &["{shard}", "0", "9999999", "30"], 40),
    (events::NEXT_DUE, &[SHARDS], 20),
    (events::FIND_DUE, &["{shard}", "30"], 5),
    (claims::FIND_CLAIMABLE, &["{shard}", "-1", "30"], 40),
    (claims::FIND_KEYLESS, &["{shard}", "-1", "30"], 40),
    (claims::FIND_HEADS, &["{shard}", "-1", "''", "30"], 30 * 4),
    (claims::COUNT_DUE, &["{shard}", "-1", "30"], 30 * 6),
    (claims::COUNT_DUE_WAITING, &["{shard}", "-1", "30"], 5),
];

/// How many rows are behind the key's head.
const TAIL: u32 = 20_000;

/// Lets a statement count that far.
const DEEP: &str = "set @deep = 1 /*!80003 , session cte_max_recursion_depth = 1000000 */
    /*M!100300 , session max_recursive_iterations = 1000000 */";

#[tokio::test]
async fn what_waits_costs_reads_and_claims_nothing() {
    let Some(url) = server() else { return };
    let place = Place::open(&url).await;
    place.fill_with_waiting().await;
    let shard = place.number("select shard from outbox_event where partition_key = 'tail' limit 1");
    let shard = shard.await.to_string();

    for (statement, bound, most) in BOUNDED {
        let bound: Vec<_> = bound.iter().map(|value| value.replace("{shard}", &shard)).collect();
        let looks = place.looks_of(statement, &bound).await;
        assert!(looks <= *most, "{looks} looks at rows\n{statement}\n{bound:?}");
    }
    place.close().await;
}

#[tokio::test]
async fn hot_statements_go_by_an_index_beside_a_million_done_rows() {
    let Some(url) = server() else { return };
    let place = Place::open(&url).await;
    place.fill().await;

    // First as the planner knows nothing of the table, then as it knows everything.
    for analyse in ["select 1", "analyze table outbox_event"] {
        place.run(analyse).await;
        for (statement, bound, indexes) in HOT {
            let used = place.indexes_of(statement, bound).await;
            let known = used.iter().all(|index| indexes.contains(&index.as_str()));
            assert!(known && !used.is_empty(), "after {analyse}: {used:?}\n{statement}");
        }
    }
    place.close().await;
}

#[tokio::test]
async fn a_read_of_many_shards_is_one_statement_with_few_texts() {
    let texts: std::collections::HashSet<String> =
        (1..=64).map(|shards| read::parts("(x)", ",", &vec![0; shards], -1).0).collect();

    assert_eq!(texts.len(), 7);
}

/// The server of the tests; without one the test is skipped, unless it is required.
fn server() -> Option<String> {
    let url = std::env::var("PILLARBOX_MYSQL_URL").ok();
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    assert!(url.is_some() || !required.contains("mysql"), "PILLARBOX_MYSQL_URL is not set");
    if url.is_none() {
        eprintln!("skipped: PILLARBOX_MYSQL_URL is not set");
    }
    url
}

/// A database of its own.
struct Place {
    options: MySqlConnectOptions,
    database: String,
    pool: MySqlPool,
    store: MysqlStore,
}

impl Place {
    async fn open(url: &str) -> Self {
        let database = format!("plan_{}", OwnerId::generate()).to_lowercase();
        let options: MySqlConnectOptions = url.parse().unwrap();
        let mut admin = options.connect().await.unwrap();
        let create = AssertSqlSafe(format!("create database {database}"));
        sqlx::query(create).execute(&mut admin).await.unwrap();
        let here = options.clone().database(&database);
        let pool = MySqlPoolOptions::new().max_connections(1).connect_with(here).await.unwrap();
        let store = MysqlStore::new(pool.clone());
        store.migrate().await.unwrap();
        Self { options, database, pool, store }
    }

    async fn fill(&self) {
        self.run("set session unique_checks = 0").await;
        self.run(
            "insert into outbox_event (event_type, payload, partition_key, status, done_at)
            with recursive n (n) as (select 1 union all select n + 1 from n where n < 1000)
            select 'order.placed', '{}', concat('key-', n), 1, utc_timestamp(6) from n",
        )
        .await;
        for _ in 0..DOUBLED {
            self.run(
                "insert into outbox_event (event_type, payload, partition_key, status, done_at)
                select event_type, payload, partition_key, status, utc_timestamp(6)
                from outbox_event",
            )
            .await;
        }
        for (status, rows) in [(0, 3000), (3, 500), (4, 500)] {
            let more = format!(
                "insert into outbox_event (event_type, payload, partition_key, status, done_at)
                select event_type, payload, partition_key, {status},
                    if({status} = 0, null, utc_timestamp(6))
                from outbox_event where status = 1 limit {rows}"
            );
            self.run(&more).await;
        }
    }

    async fn fill_with_waiting(&self) {
        self.run(DEEP).await;
        for (delay, rows, keys) in [(1, 1, "'tail'"), (0, TAIL, "'tail'"), (1, TAIL, "n")] {
            let rows = format!(
                "insert into outbox_event (event_type, payload, partition_key, available_at)
                with recursive n (n) as (select 1 union all select n + 1 from n where n < {rows})
                select 'order.placed', '{{}}', {keys}, utc_timestamp(6) + interval {delay} day
                from n"
            );
            self.run(&rows).await;
        }
        self.run("analyze table outbox_event").await;
    }

    async fn number(&self, statement: &str) -> i64 {
        let row = sqlx::raw_sql(AssertSqlSafe(statement.to_owned()));
        row.fetch_one(&self.pool).await.unwrap().try_get_unchecked(0).unwrap()
    }

    /// At how many rows a statement looks, as the storage engine counts them.
    async fn looks_of(&self, statement: &'static str, bound: &[String]) -> u64 {
        self.run("flush status").await;
        self.run(&self.filled(statement, bound)).await;
        let counts = "show session status like 'Handler_read%'";
        let counts = sqlx::raw_sql(counts).fetch_all(&self.pool).await.unwrap();
        let count = |row: &MySqlRow| row.try_get_unchecked::<String, _>(1).unwrap();
        counts.iter().map(|row| count(row).parse::<u64>().unwrap()).sum()
    }

    async fn run(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.pool).await.unwrap();
    }

    /// The index, or the kind of scan, by which each step finds events.
    async fn indexes_of(&self, statement: &'static str, bound: &[&str]) -> Vec<String> {
        let explain = format!("explain format = traditional {}", self.filled(statement, bound));
        let steps = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&self.pool).await.unwrap();
        let mut used = Vec::new();
        for step in steps {
            let text = |column| step.try_get_unchecked::<Option<String>, _>(column).unwrap();
            let table = text("table").unwrap_or_default();
            if !["e", "k", "o", "outbox_event"].contains(&table.as_str()) {
                continue;
            }
            let sorted = text("Extra").is_some_and(|extra| extra.contains("filesort"));
            let kind = text("type").unwrap_or_default();
            let key = text("key").filter(|_| kind != "ALL" && !sorted);
            used.push(key.unwrap_or(format!("{kind}, sorted: {sorted}")));
        }
        used
    }

    /// With these values in place of its marks.
    fn filled(&self, statement: &'static str, bound: &[impl AsRef<str>]) -> String {
        let ranges = [events::RANGE; 2].join(" or ");
        let text = self.store.tables.render(statement);
        let text = text.replace("{ranges}", &ranges).replace("{shards}", "?, ?");
        let mut parts = text.split('?');
        let mut filled = parts.next().unwrap().to_owned();
        for (part, value) in parts.zip(bound) {
            filled += value.as_ref();
            filled += part;
        }
        filled
    }

    async fn close(self) {
        self.pool.close().await;
        let mut admin = self.options.connect().await.unwrap();
        let drop = AssertSqlSafe(format!("drop database {}", self.database));
        sqlx::query(drop).execute(&mut admin).await.unwrap();
    }
}
