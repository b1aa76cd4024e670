//! Which way SQLite goes for the statements: the cost of none grows with the rows that are done.

use sqlx::AssertSqlSafe;

use super::SqliteStore;
use super::sql::{self, admin, claim};
use crate::store::Schema as _;

const READY: &str = "USING INDEX outbox_event_ready (shard=?";
const BLOCKED: &str = "USING INDEX outbox_event_blocked (shard=? AND ordering_key=? AND rowid<?)";
const BY_SEQ: &str = "USING INTEGER PRIMARY KEY (rowid=?)";
const BY_ID: &str = "USING INDEX sqlite_autoindex_outbox_event_1 (event_id=?)";
const DEAD: &str = "outbox_event_dead (done_at>? AND done_at<?)";

const NEXT_KEY: &str = "USING INDEX outbox_event_key (shard=? AND ordering_key>?)";
const DUE: &str = "USING INDEX outbox_event_due (shard=? AND available_at<?)";
const COUNT_NEW: &str = "USING COVERING INDEX outbox_event_ready";
const COUNT_WAITING: &str = "USING COVERING INDEX outbox_event_due";

const WAYS: &[(&str, &str)] = &[
    // Both indexes of new rows will do here.
    (sql::END_ROW_LEASES, "(shard=?)"),
    (sql::READ, "USING INDEX outbox_event_ready (shard=? AND rowid>?)"),
    (sql::READ, BLOCKED),
    (sql::READ, "USING INDEX outbox_event_key (shard=? AND ordering_key=? AND rowid<?)"),
    (sql::READ_KEY, "USING INDEX outbox_event_key (shard=? AND ordering_key=?)"),
    (sql::READ_KEY, BLOCKED),
    (sql::NEWEST, READY),
    (sql::READ_HEADS, NEXT_KEY),
    (sql::READ_HEADS, BLOCKED),
    (sql::READ_HEADS, BY_SEQ),
    (
        sql::READ_KEYLESS,
        "USING INDEX outbox_event_key (shard=? AND ordering_key=? AND rowid>? AND rowid<?)",
    ),
    (sql::READ_CONTENT, BY_SEQ),
    (sql::NEXT_DUE, "USING INDEX outbox_event_due (shard=?)"),
    (sql::PROMOTE, BY_SEQ),
    (sql::PROMOTE, DUE),
    (sql::POSTPONE, BY_SEQ),
    (sql::SETTLE_DELETE, BY_SEQ),
    (sql::SETTLE_END, BY_SEQ),
    (sql::SETTLE_PUT_OFF, BY_SEQ),
    (sql::SETTLE_FINDS, BY_SEQ),
    (sql::AUDIT_FAILURES, BY_SEQ),
    (claim::CLAIM, BY_SEQ),
    (claim::LOOK, READY),
    (claim::LOOK_HEADS, "CO-ROUTINE head"),
    (claim::LOOK_HEADS, NEXT_KEY),
    (claim::LOOK_HEADS, BLOCKED),
    (claim::LOOK_HEADS, "USING INDEX outbox_event_key (shard=? AND ordering_key=?)"),
    (claim::LOOK_HEADS, BY_SEQ),
    (claim::COUNT_DUE, READY),
    (claim::COUNT_DUE, BLOCKED),
    (claim::COUNT_DUE, DUE),
    (claim::RENEW_ROWS, BY_SEQ),
    (claim::RELEASE_ROWS, BY_SEQ),
    (claim::RECLAIM, BY_SEQ),
    (claim::SETTLE_ROWS_DELETE, BY_SEQ),
    (claim::SETTLE_ROWS_END, BY_SEQ),
    (claim::SETTLE_ROWS_PUT_OFF, BY_SEQ),
    (claim::SETTLE_ROWS_FINDS, BY_SEQ),
    (admin::DEAD_LETTERS_NEWEST_FIRST, DEAD),
    (admin::DEAD_LETTERS_OLDEST_FIRST, DEAD),
    (admin::COUNT_DEAD, DEAD),
    (admin::PLACES, "USING COVERING INDEX sqlite_autoindex_outbox_event_1 (event_id=?)"),
    (admin::PICK, BY_SEQ),
    (admin::NOTE, BY_SEQ),
    (admin::REPLAY, BY_SEQ),
    (admin::SKIP, BY_SEQ),
    (admin::DISCARD, BY_SEQ),
    (admin::EVENT, BY_ID),
    (admin::TRAIL, "USING INDEX outbox_audit_event (event_id=?)"),
    (admin::PURGE_DONE, "USING COVERING INDEX outbox_event_done (done_at<?)"),
    (admin::PURGE_DEAD, "USING COVERING INDEX outbox_event_dead (done_at<?)"),
    (admin::PURGE_AUDIT, "USING COVERING INDEX outbox_audit_at (at<?)"),
    (admin::PURGE_INBOX, "USING COVERING INDEX inbox_processed_at (processed_at<?)"),
    (admin::PURGE_ANY, READY),
    (admin::PURGE_ANY, "USING INDEX outbox_event_due (shard=?)"),
    (admin::PURGE_ANY, "USING COVERING INDEX outbox_event_done"),
    (admin::PURGE_ANY, "USING COVERING INDEX outbox_event_dead"),
    (admin::STATS, COUNT_NEW),
    (admin::STATS, READY),
    (admin::STATS, "USING INDEX outbox_event_due (shard=?)"),
    (admin::STATS, COUNT_WAITING),
    (admin::STATS, "USING COVERING INDEX outbox_event_dead"),
    (admin::COUNT_DONE, "USING COVERING INDEX outbox_event_done"),
    (admin::SHARD_STATS, COUNT_NEW),
    (admin::SHARD_STATS, COUNT_WAITING),
    (admin::SHARD_STATS, "USING COVERING INDEX outbox_event_dead"),
];

/// A million done rows, and a few of every other kind.
const FILL: &str = "
with recursive n (i) as (select 1 union all select i + 1 from n where i < 1000000)
insert into {p}outbox_event (event_type, partition_key, payload, status, done_at)
select 'order.placed', 'order-' || (i % 500), '{}', s.status, iif(s.status in (0, 2), null, i)
from n join (select 0 as status union all select 2 union all select 3 union all select 4) s
where i <= 100
union all
select 'order.placed', 'order-' || (i % 500), '{}', 1, i from n";

#[tokio::test]
async fn every_statement_goes_by_an_index_and_sorts_nothing() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();
    sqlx::query(store.sql(FILL)).execute(&store.pool).await.unwrap();

    // First as the planner knows nothing of the table, then as it knows everything.
    for prepare in ["select 1", "analyze"] {
        sqlx::query(prepare).execute(&store.pool).await.unwrap();
        for (statement, way) in WAYS {
            let plan = plan(&store, statement).await;

            assert!(plan.iter().any(|step| step.contains(way)), "{statement}\n{plan:#?}");
            for step in plan {
                let whole = step.starts_with("SCAN outbox_event") && !step.contains("INDEX");
                assert!(!whole && !step.contains("TEMP B-TREE"), "{statement}\n{step}");
            }
        }
    }
}

async fn plan(store: &SqliteStore, statement: &'static str) -> Vec<String> {
    let sql = format!("explain query plan {}", store.tables.render(statement));
    let steps = sqlx::query_as(AssertSqlSafe(sql)).fetch_all(&store.pool).await.unwrap();
    steps.into_iter().map(|(_, _, _, step): (i64, i64, i64, String)| step).collect()
}
