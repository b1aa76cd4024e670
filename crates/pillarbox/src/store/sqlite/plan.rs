//! Which way SQLite goes for the statements: the cost of none grows with the rows that are done.

use sqlx::AssertSqlSafe;

use super::SqliteStore;
use super::sql::{claims, events, operations, ownership, statistics};

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
    (ownership::END_ROW_LEASES, "(shard=?)"),
    (events::READ, "USING INDEX outbox_event_ready (shard=? AND rowid>?)"),
    (events::READ, BLOCKED),
    (events::READ, "USING INDEX outbox_event_key (shard=? AND ordering_key=? AND rowid<?)"),
    (events::READ_KEYS, "USING INDEX outbox_event_key (shard=? AND ordering_key=?)"),
    (events::READ_KEYS, BLOCKED),
    (events::NEWEST, READY),
    (events::READ_HEADS, NEXT_KEY),
    (events::READ_HEADS, BLOCKED),
    (events::READ_HEADS, BY_SEQ),
    (
        events::READ_KEYLESS,
        "USING INDEX outbox_event_key (shard=? AND ordering_key=? AND rowid>? AND rowid<?)",
    ),
    (events::READ_CONTENT, BY_SEQ),
    (events::NEXT_DUE, "USING INDEX outbox_event_due (shard=?)"),
    (events::PROMOTE, BY_SEQ),
    (events::PROMOTE, DUE),
    (events::POSTPONE, BY_SEQ),
    (events::SETTLE_DELETE, BY_SEQ),
    (events::SETTLE_FINAL, BY_SEQ),
    (events::SETTLE_WAITING, BY_SEQ),
    (events::SETTLE_FIND, BY_SEQ),
    (events::AUDIT_FAILURES, BY_SEQ),
    (claims::CLAIM, BY_SEQ),
    (claims::FIND_CLAIMABLE, READY),
    (claims::FIND_HEADS, "CO-ROUTINE head"),
    (claims::FIND_HEADS, NEXT_KEY),
    (claims::FIND_HEADS, BLOCKED),
    (claims::FIND_HEADS, "USING INDEX outbox_event_key (shard=? AND ordering_key=?)"),
    (claims::FIND_HEADS, BY_SEQ),
    (claims::COUNT_DUE, READY),
    (claims::COUNT_DUE, BLOCKED),
    (claims::COUNT_DUE, DUE),
    (claims::RENEW_ROWS, BY_SEQ),
    (claims::RELEASE_ROWS, BY_SEQ),
    (claims::RECLAIM, BY_SEQ),
    (claims::SETTLE_ROWS_DELETE, BY_SEQ),
    (claims::SETTLE_ROWS_FINAL, BY_SEQ),
    (claims::SETTLE_ROWS_WAITING, BY_SEQ),
    (claims::SETTLE_ROWS_FIND, BY_SEQ),
    (operations::DEAD_LETTERS_NEWEST_FIRST, DEAD),
    (operations::DEAD_LETTERS_OLDEST_FIRST, DEAD),
    (operations::COUNT_DEAD, DEAD),
    (operations::FIND_IDS, "USING COVERING INDEX sqlite_autoindex_outbox_event_1 (event_id=?)"),
    (operations::OPERATE_PICK, BY_SEQ),
    (operations::AUDIT_OPERATION, BY_SEQ),
    (operations::REPLAY, BY_SEQ),
    (operations::SKIP, BY_SEQ),
    (operations::DISCARD, BY_SEQ),
    (operations::EVENT, BY_ID),
    (operations::AUDIT_TRAIL, "USING INDEX outbox_audit_event (event_id=?)"),
    (operations::PURGE_DONE, "USING COVERING INDEX outbox_event_done (done_at<?)"),
    (operations::PURGE_DEAD, "USING COVERING INDEX outbox_event_dead (done_at<?)"),
    (operations::PURGE_AUDIT, "USING COVERING INDEX outbox_audit_at (at<?)"),
    (operations::PURGE_INBOX, "USING COVERING INDEX inbox_processed_at (processed_at<?)"),
    (operations::PURGE_ANY, READY),
    (operations::PURGE_ANY, "USING INDEX outbox_event_due (shard=?)"),
    (operations::PURGE_ANY, "USING COVERING INDEX outbox_event_done"),
    (operations::PURGE_ANY, "USING COVERING INDEX outbox_event_dead"),
    (statistics::STATS, COUNT_NEW),
    (statistics::STATS, READY),
    (statistics::STATS, "USING INDEX outbox_event_due (shard=?)"),
    (statistics::STATS, COUNT_WAITING),
    (statistics::STATS, "USING COVERING INDEX outbox_event_dead"),
    (statistics::COUNT_DONE, "USING COVERING INDEX outbox_event_done"),
    (statistics::SHARD_STATS, COUNT_NEW),
    (statistics::SHARD_STATS, COUNT_WAITING),
    (statistics::SHARD_STATS, "USING COVERING INDEX outbox_event_dead"),
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
