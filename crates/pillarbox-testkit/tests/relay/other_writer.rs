//! Writers in any language: a plain INSERT from Debian's own clients is an event like any other.

use std::io::Write as _;
use std::process::{Command, Stdio};

use pillarbox::store::Status;
use pillarbox::{EventId, Listeners};
use pillarbox_testkit::{PostgresBackend, SqliteBackend};

use crate::fixture::{Place, Script, next, open_postgres, open_sqlite, relay};

const PLAIN: &str = "insert into outbox_event (event_type, payload) values ('test.step', '1');";
const KEYED: &str = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id,
    tenant_id, headers, payload) values ('own-id', 'test.step', 'order', '7', 'acme',
    '{\"source\": \"psql\"}', '2');";
const BAD: &str = "insert into outbox_event (event_id, event_type, headers, payload)
    values ('bad-row', 'test.step', '[1]', '3');";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_psql_inserts_is_delivered() {
    let Some(place) = open_postgres("relay::what_psql_inserts_is_delivered").await else { return };
    let Place::Postgres(backend) = &place else { unreachable!("it was just opened") };
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&place, listeners).spawn().await.unwrap();

    psql(backend, PLAIN);
    assert_eq!(next(&mut hears, 1).await, [1]);
    psql(backend, KEYED);
    assert_eq!(next(&mut hears, 1).await, [2]);
    psql(backend, "select outbox_emit('test.step', '4', 'order', '7');");
    assert_eq!(next(&mut hears, 1).await, [4]);
    psql(backend, &format!("begin; {PLAIN} rollback;"));

    check_rows(&place).await;
    psql(backend, BAD);
    check_bad_row(&place).await;
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "neither the rolled back nor the bad row is heard of");
    place.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_sqlite3_inserts_is_delivered() {
    let Some(place) = open_sqlite("relay::what_sqlite3_inserts_is_delivered").await else { return };
    let Place::Sqlite(backend) = &place else { unreachable!("it was just opened") };
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&place, listeners).spawn().await.unwrap();

    sqlite3(backend, PLAIN);
    assert_eq!(next(&mut hears, 1).await, [1]);
    sqlite3(backend, KEYED);
    assert_eq!(next(&mut hears, 1).await, [2]);
    sqlite3(backend, &format!("begin; {PLAIN} rollback;"));

    check_rows(&place).await;
    sqlite3(backend, BAD);
    check_bad_row(&place).await;
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "neither the rolled back nor the bad row is heard of");
    place.close().await;
}

#[tokio::test]
async fn a_relay_says_when_the_tables_are_missing() {
    let store = pillarbox::connect("sqlite::memory:").await.unwrap();

    let error = pillarbox::Relay::shared(store, Listeners::new()).spawn().await.unwrap_err();

    assert_eq!(error.kind(), pillarbox::ErrorKind::Schema);
    assert!(error.to_string().contains("run `migrate`"), "{error}");
}

/// What the writer left out, the database has filled in.
async fn check_rows(place: &Place) {
    let id: EventId = "own-id".parse().unwrap();
    let event = place.event_with(&id, Status::Done).await;
    let envelope = event.event.unwrap();
    assert_eq!(event.key.as_deref(), Some("order/7"));
    assert_eq!(envelope.tenant_id(), Some("acme"));
    assert_eq!(envelope.header_map().get("source"), Some("psql"));
    assert!(envelope.moment().is_some());
}

/// A row that is no sound event is dead with its cause, and nothing stops.
async fn check_bad_row(place: &Place) {
    let id: EventId = "bad-row".parse().unwrap();
    let event = place.event_with(&id, Status::Dead).await;
    let error = event.last_error.unwrap();
    assert!(error.starts_with("the headers are not a JSON object of texts"), "{error}");
}

fn psql(backend: &PostgresBackend, sql: &str) {
    let url = std::env::var("PILLARBOX_POSTGRES_URL").unwrap();
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", &url]);
    command.env("PGOPTIONS", format!("-c search_path={}", backend.schema()));
    pipe(command, sql);
}

fn sqlite3(backend: &SqliteBackend, sql: &str) {
    let mut command = Command::new("sqlite3");
    command.args(["-bail", "-cmd", ".timeout 5000"]).arg(backend.file());
    pipe(command, sql);
}

fn pipe(mut command: Command, sql: &str) {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).spawn();
    let mut client = piped.expect("the client is installed: `cargo xtask test` sees to it");
    client.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    assert!(client.wait().unwrap().success(), "{sql}");
}
