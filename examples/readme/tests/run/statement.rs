//! The README's statements for programs in other languages: a relay delivers what they insert.

use std::sync::Arc;

use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{
    Cx, Event, Failure, Listeners, MysqlStore, PostgresStore, Relay, SqliteStore, Store,
};
use serde::{Deserialize, Serialize};
use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};
use tokio::sync::mpsc::unbounded_channel;

use crate::document::{blocks, spans};

type Result<T = ()> = std::result::Result<T, Box<dyn std::error::Error>>;

/// The same as in the README's program.
#[derive(Debug, Serialize, Deserialize, Event)]
#[event("order.placed", version = 1, aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
    email: String,
}

const BOB: &str = "8 bob@example.com";
const EVE: &str = "9 eve@example.com";

/// Runs the README's statements for a database, has a relay deliver what they insert, and compares.
macro_rules! check {
    ($store:expr, $name:literal, $expected:expr) => {{
        let store = $store;
        let pool = store.pool().clone();
        store.migrate().await?;
        for statement in statements($name) {
            sqlx::query(AssertSqlSafe(statement)).execute(&pool).await?;
        }
        assert_eq!(delivered(store).await?, $expected);
        let view = "select * from outbox_dead_letter";
        assert!(spans().iter().any(|span| span == view), "README.md does not show `{view}`");
        assert!(sqlx::query(view).fetch_all(&pool).await?.is_empty());
        pool.close().await;
    }};
}

#[tokio::test]
async fn what_sql_inserts_is_delivered_on_sqlite() -> Result {
    let store = SqliteStore::connect("sqlite::memory:").await?;
    check!(store, "SQLite", [BOB]);
    Ok(())
}

#[tokio::test]
async fn what_sql_inserts_is_delivered_on_postgres() -> Result {
    let Some(url) = server("postgres", "PILLARBOX_POSTGRES_URL") else { return Ok(()) };
    let schema = format!("readme_{}", std::process::id());
    let mut server = PgConnection::connect(&url).await?;
    sqlx::query(AssertSqlSafe(format!("create schema {schema}"))).execute(&mut server).await?;
    let mark = if url.contains('?') { '&' } else { '?' };

    let url = format!("{url}{mark}options=-csearch_path%3D{schema}");
    check!(PostgresStore::connect(&url).await?, "PostgreSQL", [BOB, EVE]);

    let remove = AssertSqlSafe(format!("drop schema {schema} cascade"));
    sqlx::query(remove).execute(&mut server).await?;
    Ok(())
}

#[tokio::test]
async fn what_sql_inserts_is_delivered_on_mysql() -> Result {
    let Some(url) = server("mysql", "PILLARBOX_MYSQL_URL") else { return Ok(()) };
    let database = format!("readme_{}", std::process::id());
    let options: MySqlConnectOptions = url.parse()?;
    let mut server = options.connect().await?;
    sqlx::query(AssertSqlSafe(format!("create database {database}"))).execute(&mut server).await?;

    let url = options.database(&database).to_url_lossy();
    check!(MysqlStore::connect(url.as_str()).await?, "MySQL", [BOB, EVE]);

    sqlx::query(AssertSqlSafe(format!("drop database {database}"))).execute(&mut server).await?;
    Ok(())
}

/// The statements below a comment that names this database.
fn statements(database: &str) -> Vec<String> {
    let [block] = &blocks("sql")[..] else { panic!("there is more than one block of SQL") };
    let parts = block.split("-- ").skip(1).filter_map(|part| part.split_once('\n'));
    let of_database = parts.filter(|(names, _)| names.split(", ").any(|name| name == database));
    of_database.map(|(_, statement)| statement.trim().trim_end_matches(';').to_owned()).collect()
}

/// What a relay delivers until no event is left, sorted.
async fn delivered(store: impl Store) -> Result<Vec<String>> {
    let (store, probe): (Arc<dyn Store>, _) = (Arc::new(store), Probe::new());
    let (told, mut orders) = unbounded_channel();
    let tell = move |order: OrderPlaced, _: Cx| {
        let told = told.clone();
        async move { told.send(format!("{} {}", order.order_id, order.email)).map_err(Failure::dead) }
    };
    let relay = Relay::new(Arc::clone(&store), Listeners::new().on(tell));
    let relay = relay.observer(probe.clone()).spawn().await?;
    let mut settled = 0;
    while store.stats().await?.new > 0 {
        let is_settled = |seen: &RelayEvent<'_>| matches!(seen, RelayEvent::Settled { .. });
        settled = probe.wait_many(settled + 1, is_settled).await.len();
    }
    relay.stop().await?;
    let mut delivered: Vec<String> = std::iter::from_fn(|| orders.try_recv().ok()).collect();
    delivered.sort();
    Ok(delivered)
}

/// The URL of a server; `None` where it is missing and not required.
fn server(name: &str, variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    assert!(url.is_some() || !required.contains(name), "set {variable}");
    url
}
