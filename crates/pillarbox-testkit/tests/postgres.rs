//! What only PostgreSQL does: pools of the store's own, and statements without names.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(feature = "postgres")]

use std::time::Duration;

use pillarbox::store::{Lease, Read, Renewal};
use pillarbox::{ErrorKind, Inbox, OwnerId, PayloadHash, PostgresStore, Result, Store};
use pillarbox_testkit::{Backend, PostgresBackend, run};
use sqlx::PgPool;
use sqlx::postgres::PgPoolOptions;

macro_rules! on_postgres {
    ($($case:ident),+ $(,)?) => { mod postgres { $(
        #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
        async fn $case() {
            let path = concat!(module_path!(), "::", stringify!($case));
            super::run::<super::PostgresBackend>(path, super::$case).await;
        }
    )+ } };
}

on_postgres! {
    leases_are_renewed_on_the_pool_that_is_named_for_them,
    events_are_read_on_the_pool_that_is_named_for_them,
    a_business_pool_that_is_used_up_costs_neither_lease_nor_events,
    an_inbox_behind_a_pooler_names_no_statement,
    a_role_without_ddl_rights_migrates_up_to_date_tables,
}

/// A pool like the case's own, of one connection.
fn pool_of_one(backend: &PostgresBackend) -> PgPool {
    let options = (*backend.sqlx_pool().connect_options()).clone();
    let options_of_pool = PgPoolOptions::new().max_connections(1);
    options_of_pool.acquire_timeout(Duration::from_secs(1)).connect_lazy_with(options)
}

async fn closed(backend: &PostgresBackend) -> PgPool {
    let pool = pool_of_one(backend);
    pool.close().await;
    pool
}

async fn renew(store: &PostgresStore) -> Result<Renewal> {
    let lease = Lease { owner: OwnerId::generate(), length: Duration::from_secs(60), wants: 0 };
    store.renew(&lease).await
}

async fn read(store: &PostgresStore) -> Result<usize> {
    let rows = store.read(&Read { shards: Vec::new(), limit: 1 }).await?;
    Ok(rows.len())
}

async fn leases_are_renewed_on_the_pool_that_is_named_for_them(backend: &PostgresBackend) {
    let store = PostgresStore::new(backend.sqlx_pool().clone());
    assert!(renew(&store).await.is_ok());

    let store = store.lease_pool(closed(backend).await);

    assert!(renew(&store).await.is_err(), "nowhere else");
    assert!(read(&store).await.is_ok(), "nothing but leases");
}

async fn events_are_read_on_the_pool_that_is_named_for_them(backend: &PostgresBackend) {
    let store = PostgresStore::new(backend.sqlx_pool().clone());
    assert!(read(&store).await.is_ok());

    let store = store.work_pool(closed(backend).await);

    assert!(read(&store).await.is_err(), "nowhere else");
    assert!(renew(&store).await.is_ok(), "nothing but events");
}

/// Business transactions may take every connection there is.
async fn a_business_pool_that_is_used_up_costs_neither_lease_nor_events(backend: &PostgresBackend) {
    let business = pool_of_one(backend);
    let store = PostgresStore::new(business.clone());
    let _open = business.begin().await.unwrap();

    assert!(renew(&store).await.is_ok());
    assert!(read(&store).await.is_ok());
}

/// A statement with a name is of one session, and a pooler gives every transaction another.
async fn an_inbox_behind_a_pooler_names_no_statement(backend: &PostgresBackend) {
    let plain = Inbox::new("mailer").unwrap();
    for (inbox, names) in [(plain.clone().pooler(), 0), (plain, 1)] {
        let mut tx = pool_of_one(backend).begin().await.unwrap();
        let _ = inbox.accept(&mut *tx, "shop", "1", PayloadHash::of(b"1")).await.unwrap();

        let named = "select count(*) from pg_prepared_statements where statement like '%inbox%'";
        let named: i64 =
            sqlx::query_scalar(named).persistent(false).fetch_one(&mut *tx).await.unwrap();
        assert_eq!(named, names);
    }
}

/// An application's role may change rows, not tables. What it cannot do, it says how to get done.
async fn a_role_without_ddl_rights_migrates_up_to_date_tables(backend: &PostgresBackend) {
    let role = backend.schema();
    let grants = format!(
        "create role {role} login; grant usage on schema {role} to {role};
        grant select, insert, update, delete on all tables in schema {role} to {role}"
    );
    backend.run(&grants).await.unwrap();
    let options = (*backend.sqlx_pool().connect_options()).clone().username(role);
    let store = PostgresStore::new(PgPoolOptions::new().connect_lazy_with(options));

    let current = store.migrate().await;
    let layout = store.layout().await;
    let unmarked = store.mark_seq().await;
    backend.run(&format!("grant select on sequence outbox_event_seq_seq to {role}")).await.unwrap();
    backend.run("update outbox_setting set newest_seq = 7").await.unwrap();
    let behind = store.layout().await;
    backend.run("delete from outbox_migration").await.unwrap();
    let outdated = store.migrate().await;
    store.pool().close().await;
    backend.run(&format!("drop owned by {role}; drop role {role}")).await.unwrap();

    current.unwrap();
    layout.unwrap();
    unmarked.unwrap();
    assert_eq!(behind.unwrap_err().kind(), ErrorKind::Configuration, "it may look now");
    let refused = outdated.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Schema, "{refused}");
    assert!(refused.to_string().contains("run `migrate` once as"), "{refused}");
}
