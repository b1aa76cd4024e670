//! The statements of docs/partitioning.md, as they stand there.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(all(feature = "mysql", feature = "postgres"))]

use pillarbox::store::{ClaimMode, DeliveryMode};
use pillarbox::{Envelope, Outbox};
use pillarbox_testkit::{Backend, MysqlBackend, PostgresBackend, run};
use sqlx::AssertSqlSafe;

const PAGE: &str = include_str!("../../../docs/partitioning.md");

/// The block of SQL that begins with this line.
fn statements(title: &str) -> AssertSqlSafe<String> {
    let block = PAGE.split("```sql\n").find(|block| block.starts_with(&format!("-- {title}\n")));
    AssertSqlSafe(block.unwrap().split("```").next().unwrap().to_owned())
}

async fn set_mode(backend: &impl Backend) {
    let mode = DeliveryMode { claim: ClaimMode::None, ..DeliveryMode::default() };
    backend.store().configure(&mode).await.unwrap();
}

/// An event of January, written by another program.
const FOREIGN: &str = "insert into outbox_event (event_type, payload, created_at)
    values ('order.placed', '7', '2026-01-15')";

fn event() -> Envelope {
    Envelope::json("order.placed", &7).unwrap().aggregate("order", "7").unwrap()
}

async fn on_postgres(backend: &PostgresBackend) {
    let pool = backend.sqlx_pool();
    set_mode(backend).await;
    sqlx::raw_sql(statements("PostgreSQL")).execute(pool).await.unwrap();

    let mut tx = Outbox::new().begin(pool).await.unwrap();
    tx.emit_envelope(event()).await.unwrap();
    tx.commit().await.unwrap();
    sqlx::raw_sql(FOREIGN).execute(pool).await.unwrap();
    sqlx::raw_sql(statements("PostgreSQL, every month")).execute(pool).await.unwrap();

    let left = "select count(*), count(shard) from outbox_event";
    let left: (i64, i64) = sqlx::query_as(left).fetch_one(pool).await.unwrap();
    assert_eq!(left, (1, 1), "the partition of January is gone");
    assert_eq!(backend.store().config().await.unwrap().mode.claim, ClaimMode::None);
}

async fn on_mysql(backend: &MysqlBackend) {
    let pool = backend.sqlx_pool();
    set_mode(backend).await;
    sqlx::raw_sql(statements("MySQL, MariaDB")).execute(pool).await.unwrap();

    let mut tx = Outbox::new().begin(pool).await.unwrap();
    tx.emit_envelope(event()).await.unwrap();
    tx.commit().await.unwrap();
    sqlx::raw_sql(FOREIGN).execute(pool).await.unwrap();
    sqlx::raw_sql(statements("MySQL, MariaDB, every month")).execute(pool).await.unwrap();

    let left: i64 =
        sqlx::query_scalar("select count(*) from outbox_event").fetch_one(pool).await.unwrap();
    assert_eq!(left, 1, "the partition of January is gone");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_on_postgres() {
    run::<PostgresBackend>("recipe::partitions_on_postgres", on_postgres).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_on_mysql() {
    run::<MysqlBackend>("recipe::partitions_on_mysql", on_mysql).await;
}
