//! kill -9 of the relay, a hundred times under load: nothing lost, no ghost, no inversion.

#![allow(clippy::unwrap_used, reason = "a failed step fails the test")]
#![allow(clippy::print_stdout, reason = "a long test shows how far it is")]

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use nemesis::check::Report;
use nemesis::settings::MAX_UNSETTLED;
use nemesis::writer::{Bank, Writers};
use pillarbox::{MysqlStore, PostgresStore, SqliteStore, Store};
use sqlx::ConnectOptions as _;
use tokio::process::{Child, Command};

const KILLS: usize = 100;

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_sqlite_lose_nothing() {
    let place = place("kill-sqlite");
    let url = format!("sqlite://{}", place.join("bank.db").display());
    let store = SqliteStore::connect(&url).await.unwrap();

    hunt(&store, store.pool(), &url, &place).await;

    fs::remove_dir_all(place).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_postgres_lose_nothing() {
    let Some(base) = url_of("postgres", "PILLARBOX_POSTGRES_URL") else { return };
    let place = place("kill-postgres");
    let schema = format!("nemesis_kill_{}", std::process::id());
    let admin = sqlx::PgPool::connect(&base).await.unwrap();
    let create = format!("create schema {schema}");
    sqlx::query(sqlx::AssertSqlSafe(create)).execute(&admin).await.unwrap();
    let joint = if base.contains('?') { '&' } else { '?' };
    let url = format!("{base}{joint}options=-csearch_path%3D{schema}");
    let store = PostgresStore::connect(&url).await.unwrap();

    hunt(&store, store.pool(), &url, &place).await;

    let clean_up = format!("drop schema {schema} cascade");
    sqlx::query(sqlx::AssertSqlSafe(clean_up)).execute(&admin).await.unwrap();
    fs::remove_dir_all(place).unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_hundred_kills_on_mysql_lose_nothing() {
    let Some(base) = url_of("mysql", "PILLARBOX_MYSQL_URL") else { return };
    let place = place("kill-mysql");
    let database = format!("nemesis_kill_{}", std::process::id());
    let options: sqlx::mysql::MySqlConnectOptions = base.parse().unwrap();
    let admin = sqlx::MySqlPool::connect_with(options.clone()).await.unwrap();
    let create = format!("create database {database}");
    sqlx::query(sqlx::AssertSqlSafe(create)).execute(&admin).await.unwrap();
    let url = options.database(&database).to_url_lossy().to_string();
    let store = MysqlStore::connect(&url).await.unwrap();

    hunt(&store, store.pool(), &url, &place).await;

    let clean_up = format!("drop database {database}");
    sqlx::query(sqlx::AssertSqlSafe(clean_up)).execute(&admin).await.unwrap();
    fs::remove_dir_all(place).unwrap();
}

async fn hunt(store: &impl Store, bank: &impl Bank, url: &str, place: &Path) {
    store.migrate().await.unwrap();
    bank.prepare().await.unwrap();
    let log = place.join("deliveries.log");
    let writers = Writers::start(bank, 4);

    for kill in 1..=KILLS {
        let relay = relay(url, &log, place);
        // Not before it delivers again: a kill of an idle relay proves nothing.
        let seen = lines(&log);
        wait_until(|| lines(&log) > seen + kill * 37 % 200).await;
        slay(relay).await;
        if kill % 20 == 0 {
            println!("{kill} kills, {} deliveries", lines(&log));
        }
    }
    let committed = writers.stop().await.unwrap();
    let last = relay(url, &log, place);
    let draining = async {
        while pending(store).await > 0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    let drained = tokio::time::timeout(Duration::from_secs(120), draining).await;
    assert!(drained.is_ok(), "something is stuck: {:?}", store.stats().await);
    slay(last).await;

    let report = Report::of(&committed, &fs::read_to_string(&log).unwrap());
    println!("{KILLS} kills, {} committed: {report:?}", committed.len());
    assert_eq!((report.lost, report.ghosts, report.inversions), (0, 0, 0), "{report:?}");
    assert!(report.duplicates <= KILLS * MAX_UNSETTLED as usize, "{report:?}");
    assert!(report.delivered > KILLS, "the load was too light to prove anything: {report:?}");
}

fn relay(url: &str, log: &Path, place: &Path) -> Child {
    let errors = fs::OpenOptions::new().create(true).append(true).open(place.join("relay.err"));
    Command::new(env!("CARGO_BIN_EXE_nemesis"))
        .args([url, log.to_str().unwrap()])
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(errors.unwrap())
        .kill_on_drop(true)
        .spawn()
        .unwrap()
}

/// SIGKILL, and wait for the end.
async fn slay(mut relay: Child) {
    assert!(relay.try_wait().unwrap().is_none(), "the relay ended by itself, see relay.err");
    relay.kill().await.unwrap();
}

async fn pending(store: &impl Store) -> u64 {
    let stats = store.stats().await.unwrap();
    stats.new + stats.retry + stats.held
}

async fn wait_until(reached: impl Fn() -> bool) {
    let waiting = async {
        while !reached() {
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    };
    tokio::time::timeout(Duration::from_secs(30), waiting).await.expect("the relay delivers again");
}

fn lines(log: &Path) -> usize {
    fs::read(log).map_or(0, |bytes| bytes.iter().filter(|byte| **byte == b'\n').count())
}

fn place(name: &str) -> PathBuf {
    let place = std::env::temp_dir().join(format!("pillarbox-{name}-{}", std::process::id()));
    fs::create_dir_all(&place).unwrap();
    place
}

fn url_of(server: &str, variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok();
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    let is_required = required.split(',').any(|name| name == server);
    assert!(url.is_some() || !is_required, "PILLARBOX_REQUIRE asks for {server}: set {variable}");
    if url.is_none() {
        println!("skipped: {variable} is not set");
    }
    url
}
