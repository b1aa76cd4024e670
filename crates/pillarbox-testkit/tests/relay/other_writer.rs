//! Writers in any language: a plain INSERT from Debian's own clients is an event like any other.

use std::io::Write as _;
use std::process::{Command, Stdio};

use pillarbox::store::{Statistics as _, Status};
use pillarbox::{EventId, Listeners, Relay, SqliteStore, TablePrefix};
use pillarbox_testkit::fake::cut;
use pillarbox_testkit::{MysqlBackend, PostgresBackend, SqliteBackend};

use crate::fixture::{
    Script, TestDatabase, free, next, open_mysql, open_postgres, open_sqlite, relay,
};

const PLAIN: &str = "insert into outbox_event (event_type, payload) values ('test.step', '1');";
const KEYED: &str = "insert into outbox_event (event_id, event_type, aggregate_type, aggregate_id,
    tenant_id, headers, payload) values ('own-id', 'test.step', 'order', '7', 'acme',
    '{\"source\": \"psql\"}', '2');";
const BAD: &str = "insert into outbox_event (event_id, event_type, headers, payload)
    values ('bad-row', 'test.step', '[1]', '3');";

/// Bytes that are no UTF-8, where a text is meant.
const NOT_TEXT: &str = "insert into outbox_event (event_id, event_type, payload)
    values ('not-text', cast(x'ff' as text), '3');";
/// What the table refuses, so that the writer sees it.
const WRONG_TYPES: [&str; 4] = [
    "event_type, payload, occurred_at) values ('test.step', '1', datetime('now')",
    "event_type, payload, available_at) values ('test.step', '1', 1e300",
    "event_type, payload, headers) values ('test.step', '1', x'00'",
    "event_type, payload, seq) values ('test.step', '1', -1",
];

/// One event that happened then, and one that is due then, if that is ever.
fn odd_moments(moment: &str) -> String {
    let due = if moment.starts_with('-') || moment.ends_with("BC") { moment } else { "now" };
    format!(
        "insert into outbox_event (event_type, payload, occurred_at, available_at)
            values ('test.step', '5', '{moment}', now()), ('test.step', '6', now(), '{due}'),
                ('test.step', '7', now(), 'infinity');"
    )
}

/// What another session may do to itself: the rows must be right all the same.
const STRANGE_SESSION: &str = "set session time_zone = '+09:00', autocommit = 0, sql_mode =
    'ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,ALLOW_INVALID_DATES';";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_inserted_by_the_mariadb_client_is_delivered() {
    let test = "relay::a_row_inserted_by_the_mariadb_client_is_delivered";
    let Some(db) = open_mysql(test).await else { return };
    let TestDatabase::Mysql(backend) = &db else { unreachable!("it was just opened") };
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(&db, listeners).spawn().await.unwrap();

    mariadb(backend, PLAIN);
    assert_eq!(next(&mut received, 1).await, [1]);
    mariadb(backend, KEYED);
    assert_eq!(next(&mut received, 1).await, [2]);
    mariadb(backend, "call outbox_emit('test.step', '4', 'order', '7', null, null, null);");
    assert_eq!(next(&mut received, 1).await, [4]);
    mariadb(backend, "begin; call outbox_emit('test.step', '5', null, null, null, null, null);");
    mariadb(backend, &format!("begin; {PLAIN} rollback;"));

    check_rows(&db).await;
    mariadb(backend, BAD);
    check_bad_row(&db).await;
    mariadb(backend, &format!("{STRANGE_SESSION} {PLAIN} commit;"));
    assert_eq!(next(&mut received, 1).await, [1], "it is due now, by any clock");
    for moment in ["0000-00-00", "0001-01-01", "9999-12-31 23:59:59.999999", "2024-02-31"] {
        let odd = format!(
            "insert into outbox_event (event_type, payload, occurred_at)
                values ('test.step', '6', '{moment}');"
        );
        mariadb(backend, &format!("{STRANGE_SESSION} {odd} commit;"));
        assert_eq!(next(&mut received, 1).await, [6], "{moment}");
    }
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "neither the rolled back nor the bad row is delivered");
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_inserted_by_psql_is_delivered() {
    let Some(db) = open_postgres("relay::a_row_inserted_by_psql_is_delivered").await else {
        return;
    };
    let TestDatabase::Postgres(backend) = &db else { unreachable!("it was just opened") };
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(&db, listeners).spawn().await.unwrap();

    psql(backend, PLAIN);
    assert_eq!(next(&mut received, 1).await, [1]);
    psql(backend, KEYED);
    assert_eq!(next(&mut received, 1).await, [2]);
    psql(backend, "select outbox_emit('test.step', '4', 'order', '7');");
    assert_eq!(next(&mut received, 1).await, [4]);
    psql(backend, &format!("begin; {PLAIN} rollback;"));

    check_rows(&db).await;
    psql(backend, BAD);
    check_bad_row(&db).await;
    for moment in ["infinity", "-infinity", "20000-01-01", "4000-01-01 BC"] {
        psql(backend, &odd_moments(moment));
    }
    psql(backend, PLAIN);
    let mut numbers = next(&mut received, 9).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 5, 5, 5, 5, 6, 6, 6, 6], "odd rows are delivered like any other");
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "neither the rolled back nor the bad row is delivered");
    db.close().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_row_inserted_by_sqlite3_is_delivered() {
    let Some(db) = open_sqlite("relay::a_row_inserted_by_sqlite3_is_delivered").await else {
        return;
    };
    let TestDatabase::Sqlite(backend) = &db else { unreachable!("it was just opened") };
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(&db, listeners).spawn().await.unwrap();

    sqlite3(backend, PLAIN);
    assert_eq!(next(&mut received, 1).await, [1]);
    sqlite3(backend, KEYED);
    assert_eq!(next(&mut received, 1).await, [2]);
    sqlite3(backend, &format!("begin; {PLAIN} rollback;"));

    check_rows(&db).await;
    sqlite3(backend, BAD);
    check_bad_row(&db).await;
    sqlite3(backend, NOT_TEXT);
    sqlite3(backend, PLAIN);
    assert_eq!(next(&mut received, 1).await, [1], "a row that is no text stops nobody");
    for wrong in WRONG_TYPES {
        let insert = format!("insert into outbox_event ({wrong});");
        assert!(!run(sqlite3_client(backend), &insert), "{insert}");
    }
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "neither the rolled back nor the bad row is delivered");
    db.close().await;
}

#[tokio::test]
async fn a_relay_says_when_the_tables_are_missing() {
    let store = pillarbox::connect("sqlite::memory:").await.unwrap();

    let error = Relay::new(store, Listeners::new()).spawn().await.unwrap_err();

    assert_eq!(error.kind(), pillarbox::ErrorKind::Schema);
    assert!(error.to_string().contains("run `migrate`"), "{error}");
}

#[tokio::test]
async fn the_relays_outbox_writes_where_the_relay_reads() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    let store = store.prefix(TablePrefix::new("shop_").unwrap());
    store.migrate().await.unwrap();
    let pool = store.pool().clone();
    let (listeners, mut received) = Script::default().listeners();
    let relay = Relay::new(store, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let mut tx = outbox.begin(&pool).await.unwrap();
    tx.emit_envelope(free(1)).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [1]);
    handle.stop().await.unwrap();
}

/// All of a database in memory hangs on one connection, which no dropped call may close.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_database_in_memory_outlives_calls_dropped_anywhere() {
    let store = SqliteStore::connect("sqlite::memory:").await.unwrap();
    store.migrate().await.unwrap();

    for polls in (0..6).cycle().take(300) {
        cut(polls, store.stats()).await;
    }

    store.stats().await.expect("the tables are still there");
}

/// What the writer left out, the database has filled in.
async fn check_rows(db: &TestDatabase) {
    let id: EventId = "own-id".parse().unwrap();
    let event = db.event_with(&id, Status::Done).await;
    let envelope = event.event.unwrap();
    assert_eq!(event.key.as_deref(), Some("order/7"));
    assert_eq!(envelope.tenant_id(), Some("acme"));
    assert_eq!(envelope.header_map().get("source"), Some("psql"));
    assert!(envelope.moment().is_some());
}

/// A row that is no sound event is dead with its cause, and nothing stops.
async fn check_bad_row(db: &TestDatabase) {
    let id: EventId = "bad-row".parse().unwrap();
    let event = db.event_with(&id, Status::Dead).await;
    let error = event.last_error.unwrap();
    assert!(error.starts_with("the headers are not a JSON object of strings"), "{error}");
}

fn mariadb(backend: &MysqlBackend, sql: &str) {
    let url = std::env::var("PILLARBOX_MYSQL_URL").unwrap();
    let options: sqlx::mysql::MySqlConnectOptions = url.parse().unwrap();
    let mut command = Command::new("mariadb");
    let (host, port) = (options.get_host(), options.get_port().to_string());
    command.args(["--no-defaults", "--protocol=tcp", "--host", host, "--port", &port]);
    command.args(["--user", options.get_username(), backend.database()]);
    let user = url.split_once("://").and_then(|(_, rest)| rest.split_once('@'));
    if let Some((_, password)) = user.and_then(|(user, _)| user.split_once(':')) {
        command.env("MYSQL_PWD", password);
    }
    assert!(run(command, sql), "{sql}");
}

fn psql(backend: &PostgresBackend, sql: &str) {
    let url = std::env::var("PILLARBOX_POSTGRES_URL").unwrap();
    let mut command = Command::new("psql");
    command.args(["--no-psqlrc", "--quiet", "-v", "ON_ERROR_STOP=1", &url]);
    command.env("PGOPTIONS", format!("-c search_path={}", backend.schema()));
    assert!(run(command, sql), "{sql}");
}

fn sqlite3(backend: &SqliteBackend, sql: &str) {
    assert!(run(sqlite3_client(backend), sql), "{sql}");
}

fn sqlite3_client(backend: &SqliteBackend) -> Command {
    let mut command = Command::new("sqlite3");
    command.args(["-bail", "-cmd", ".timeout 180000"]).arg(backend.file());
    command
}

/// Whether the client was content.
fn run(mut command: Command, sql: &str) -> bool {
    let piped = command.stdin(Stdio::piped()).stdout(Stdio::null()).stderr(Stdio::null()).spawn();
    let mut client = piped.expect("the client is installed: `cargo xtask test` sees to it");
    client.stdin.take().unwrap().write_all(sql.as_bytes()).unwrap();
    client.wait().unwrap().success()
}
