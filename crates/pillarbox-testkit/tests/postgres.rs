//! What only PostgreSQL does: pools of the store's own, and statements without names.

#![allow(clippy::unwrap_used, reason = "a surprise fails the test")]
#![cfg(feature = "postgres")]

use std::time::Duration;

use pillarbox::store::{
    Budget, Events as _, Filter, Lease, List, Ownership as _, Read, Renewal, Schema as _, ShardRead,
};
use pillarbox::{
    Envelope, ErrorKind, Inbox, Key, Outbox, OwnerId, PayloadHash, PostgresStore, Result, Seq,
    ShardId, TablePrefix,
};
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
    the_library_and_the_database_agree_on_keys_and_shards,
    a_row_that_names_its_shard_is_read,
    an_invalid_row_is_refused_with_the_reason,
    a_row_in_a_state_that_is_none_is_refused,
    a_row_that_is_final_has_a_time_of_it,
}

/// A pool like the case's own, of one connection.
fn pool_of_one(backend: &PostgresBackend) -> PgPool {
    let options = (*backend.sqlx_pool().connect_options()).clone();
    let options_of_pool = PgPoolOptions::new().max_connections(1);
    options_of_pool.acquire_timeout(Duration::from_secs(180)).connect_lazy_with(options)
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
    let rows =
        store.read(&Read { shards: Vec::new(), limit: 1, budget: Budget::unlimited() }).await?;
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
    let layout = store.config().await;
    let unmarked = store.mark_seq().await;
    backend.run(&format!("grant select on sequence outbox_event_seq_seq to {role}")).await.unwrap();
    backend.run("update outbox_setting set newest_seq = 7").await.unwrap();
    let behind = store.config().await;
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

/// Any characters that a key may have.
fn random_text(dice: &mut u64) -> String {
    let mut next = || {
        *dice =
            dice.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        u32::try_from(*dice >> 33).unwrap()
    };
    let length = 1 + next() % 40;
    let any = std::iter::repeat_with(|| match next() % 3 {
        0 => char::from_u32(next() % 0x80),
        1 => char::from_u32(next() % 0x800),
        _ => char::from_u32(next() % 0x11_0000),
    });
    any.flatten().filter(|c| !c.is_control()).take(length as usize).collect()
}

/// The library computes them for its own rows, a trigger for those of everybody else.
async fn the_library_and_the_database_agree_on_keys_and_shards(backend: &PostgresBackend) {
    let (outbox, mut dice) = (Outbox::new(), 41);
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    for number in 0..10_000 {
        let event = Envelope::json("test.key", &number).unwrap();
        let event = match number % 4 {
            0 => event.key(Key::Free),
            1 => event.aggregate("order", random_text(&mut dice)),
            2 => event.aggregate_without_id("order"),
            _ => event.key(Key::Given(random_text(&mut dice))),
        };
        tx.emit_envelope(event.unwrap()).await.unwrap();
    }
    tx.commit().await.unwrap();
    let copy = TablePrefix::new("copy_").unwrap();
    PostgresStore::new(backend.sqlx_pool().clone()).prefix(copy).migrate().await.unwrap();

    let columns = "event_id, event_type, aggregate_type, aggregate_id, partition_key, payload";
    let insert =
        format!("insert into copy_outbox_event ({columns}) select {columns} from outbox_event");
    backend.run(&insert).await.unwrap();

    let alike = "select count(*), count(distinct ours.shard) from outbox_event ours
        join copy_outbox_event theirs using (event_id)
        where ours.shard = theirs.shard
            and ours.ordering_key is not distinct from theirs.ordering_key";
    let alike: (i64, i64) = sqlx::query_as(alike).fetch_one(backend.sqlx_pool()).await.unwrap();
    assert_eq!(alike, (10_000, 64));
}

/// Another program may put a row into any shard there is, and into no other.
async fn a_row_that_names_its_shard_is_read(backend: &PostgresBackend) {
    let insert = |shard: i16| {
        format!(
            "insert into outbox_event (event_type, payload, partition_key, shard)
            values ('test.shard', '1', 'k', {shard})"
        )
    };

    for shard in [-1, 64, i16::MAX] {
        backend.run(&insert(shard)).await.unwrap_err();
    }
    backend.run(&insert(63)).await.unwrap();

    let shards = vec![ShardRead { shard: ShardId(63), floor: Seq::START }];
    let read = Read { shards, limit: 10, budget: Budget::unlimited() };
    assert_eq!(backend.store().read(&read).await.unwrap().len(), 1);
}

async fn an_invalid_row_is_refused_with_the_reason(backend: &PostgresBackend) {
    for (columns, values, wrong) in [
        ("event_type, payload", "'', '1'", "event_type is empty"),
        ("event_type, payload, event_version", "'a', '1', 0", "event_version is below 1"),
        ("event_type, payload, aggregate_type", "'a', '1', ''", "aggregate_type is empty"),
        ("event_type", "'a'", "one of payload and payload_bytes"),
        ("event_type, payload, payload_bytes", "'a', '1', '1'", "one of payload and payload_bytes"),
    ] {
        let insert = format!("insert into outbox_event ({columns}) values ({values})");
        let refused = backend.run(&insert).await.unwrap_err().to_string();
        assert!(refused.contains(wrong), "{columns}: {refused}");
    }
}

/// No relay would read it, whoever computed its shard.
async fn a_row_in_a_state_that_is_none_is_refused(backend: &PostgresBackend) {
    let insert = "insert into outbox_event (event_type, payload";
    backend.run(&format!("{insert}) values ('test.state', '1')")).await.unwrap();

    for (shard, status) in [("null", -1), ("null", 5), ("7", -1), ("7", 5), ("-1", 0), ("64", 1)] {
        let insert =
            format!("{insert}, shard, status) values ('test.state', '1', {shard}, {status})");
        backend.run(&insert).await.unwrap_err();
    }
    for wrong in ["status = -1", "status = 5", "shard = -1", "shard = 64", "status = 3, shard = 64"]
    {
        backend.run(&format!("update outbox_event set {wrong}")).await.unwrap_err();
    }
}

/// An operator with a SQL prompt: the row would be listed, counted and purged by nobody otherwise.
async fn a_row_that_is_final_has_a_time_of_it(backend: &PostgresBackend) {
    let insert = "insert into outbox_event (event_type, payload) values ('test.final', '1')";
    backend.run(insert).await.unwrap();

    backend.run("update outbox_event set status = 3").await.unwrap();

    for shard in ["null", "7"] {
        let insert = format!(
            "insert into outbox_event (event_type, payload, shard, status)
                values ('test.final', '1', {shard}, 4)"
        );
        backend.run(&insert).await.unwrap();
    }

    let store = backend.store();
    assert_eq!(store.count_dead(&Filter::default()).await.unwrap(), 3);
    let letters = store.dead_letters(&List::default()).await.unwrap();
    assert_eq!(letters.len(), 3);
}
