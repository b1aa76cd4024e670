//! Every hot statement's plan, read from the server with a million done rows in the table.

use sqlx::mysql::{MySqlConnectOptions, MySqlPoolOptions};
use sqlx::{AssertSqlSafe, ConnectOptions as _, MySqlPool, Row as _};

use super::sql::{self, admin, claim};
use super::{MysqlStore, read};
use crate::id::OwnerId;
use crate::store::Store as _;

/// Doubled this often from a thousand.
const DOUBLED: u32 = 10;

const PENDING: &str = "outbox_event_pending";
const KEY: &str = "outbox_event_key";
const FINAL: &str = "outbox_event_final";
const ID: &str = "outbox_event_id";
const SEQ: &str = "PRIMARY";

const ROWS: &str = "'[[3, 1024001, 0], [3, 1024002, 0]]'";
const VERDICTS: &str = "'[[3, 1024001, 0, 1, 0, 0, null, null]]'";
const SEQS: &str = "'[1024001, 1024002]'";
const IDS: &str = "'[\"a\", \"b\"]'";
const OWNER: &str = "'01ARZ3NDEKTSV4RRFFQ69G5FAV'";

/// A statement as it is run: its text, what is bound, and the indexes it finds events by.
type Hot = (&'static str, &'static [&'static str], &'static [&'static str]);

const HOT: &[Hot] = &[
    (sql::READ, &["0", "3", "0", "9999999", "4", "0", "9999999", "501"], &[PENDING, KEY]),
    (sql::READ, &["1", "3", "1025000", "9999999", "4", "7", "1024500", "501"], &[PENDING, KEY]),
    (sql::READ_END, &["3", "1025000", "31"], &[PENDING]),
    (sql::READ_KEY, &["3", "'key-1'", "100"], &[KEY]),
    (sql::SETTLE_PICK, &[ROWS], &[SEQ]),
    (sql::SETTLE_DELETE, &[ROWS], &[SEQ]),
    (sql::SETTLE_MARK, &[VERDICTS], &[SEQ]),
    (sql::AUDIT_FAILURES, &[ROWS], &[SEQ]),
    (claim::LOOK, &["3", "4", "100"], &[PENDING]),
    (claim::LOOK_KEYLESS, &["3", "4", "100"], &[KEY]),
    (claim::LOOK_HEADS, &["3", "4", "''", "100"], &[KEY, SEQ]),
    (claim::CLAIM_PICK, &[SEQS, "100"], &[SEQ]),
    (claim::CLAIM, &[SEQS, OWNER, "15000000"], &[SEQ]),
    (claim::RENEW_ROWS, &[ROWS, OWNER, "15000000"], &[SEQ]),
    (claim::KEPT_ROWS, &[ROWS, OWNER], &[SEQ]),
    (claim::RELEASE_ROWS, &[ROWS, OWNER], &[SEQ]),
    (claim::RECLAIM, &[ROWS], &[SEQ]),
    (claim::SETTLE_ROWS_PICK, &[ROWS, OWNER], &[SEQ]),
    (claim::SETTLE_ROWS_DELETE, &[ROWS, OWNER], &[SEQ]),
    (claim::SETTLE_ROWS_MARK, &[VERDICTS, OWNER], &[SEQ]),
    (admin::PLACES, &[IDS], &[ID]),
    (admin::PICK, &[SEQS], &[SEQ]),
    (admin::REPLAY, &[SEQS], &[SEQ]),
    (admin::DISCARD, &[SEQS], &[SEQ]),
    (admin::LOOK_FINAL, &["1", "0", "500"], &[FINAL]),
    (admin::PURGE_FINAL, &[SEQS, "1", "0"], &[SEQ]),
    (admin::LOOK_ANY, &["500", "0"], &[SEQ]),
    (admin::STATS, &[], &[PENDING, FINAL]),
    (admin::SHARD_STATS, &[], &[PENDING]),
    (admin::TYPE_STATS, &["100"], &[PENDING, FINAL]),
];

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

    async fn run(&self, statement: &str) {
        sqlx::raw_sql(AssertSqlSafe(statement.to_owned())).execute(&self.pool).await.unwrap();
    }

    /// The index, or the kind of scan, by which each step finds events.
    async fn indexes_of(&self, statement: &'static str, bound: &[&str]) -> Vec<String> {
        let ranges = [sql::RANGE; 2].join(" or ");
        let text = self.store.tables.render(statement);
        let text = text.replace("{ranges}", &ranges).replace("{shards}", "?, ?");
        let mut parts = text.split('?');
        let mut explain = format!("explain format = traditional {}", parts.next().unwrap());
        for (part, value) in parts.zip(bound) {
            explain += value;
            explain += part;
        }
        let steps = sqlx::raw_sql(AssertSqlSafe(explain)).fetch_all(&self.pool).await.unwrap();
        let mut used = Vec::new();
        for step in steps {
            let text = |column| step.try_get_unchecked::<Option<String>, _>(column).unwrap();
            let table = text("table").unwrap_or_default();
            if !["e", "o", "outbox_event"].contains(&table.as_str()) {
                continue;
            }
            let sorted = text("Extra").is_some_and(|extra| extra.contains("filesort"));
            let kind = text("type").unwrap_or_default();
            let key = text("key").filter(|_| kind != "ALL" && !sorted);
            used.push(key.unwrap_or(format!("{kind}, sorted: {sorted}")));
        }
        used
    }

    async fn close(self) {
        self.pool.close().await;
        let mut admin = self.options.connect().await.unwrap();
        let drop = AssertSqlSafe(format!("drop database {}", self.database));
        sqlx::query(drop).execute(&mut admin).await.unwrap();
    }
}
