//! The example delivers what it commits, on every database.

use std::process::Command;

use sqlx::mysql::MySqlConnectOptions;
use sqlx::{AssertSqlSafe, ConnectOptions as _, Connection as _, PgConnection};

#[test]
fn it_delivers_what_was_committed_in_memory() {
    check(&[]);
}

#[test]
fn it_delivers_what_was_committed_on_sqlite() {
    let file = std::env::temp_dir().join(format!("quickstart-{}.db", std::process::id()));

    check(&["--store", &format!("sqlite://{}", file.display())]);

    for file in ["db", "db-wal", "db-shm"].map(|extension| file.with_extension(extension)) {
        let _ = std::fs::remove_file(file);
    }
}

#[tokio::test]
async fn it_delivers_what_was_committed_on_postgres() {
    let Some(url) = server("postgres", "PILLARBOX_POSTGRES_URL") else { return };
    let schema = format!("quickstart_{}", std::process::id());
    let mut server = PgConnection::connect(&url).await.expect("the server answers");
    let create = AssertSqlSafe(format!("create schema {schema}"));
    sqlx::query(create).execute(&mut server).await.expect("create a schema for this test");
    let mark = if url.contains('?') { '&' } else { '?' };

    check(&["--store", &format!("{url}{mark}options=-csearch_path%3D{schema}")]);

    let remove = AssertSqlSafe(format!("drop schema {schema} cascade"));
    sqlx::query(remove).execute(&mut server).await.expect("drop the schema");
}

#[tokio::test]
async fn it_delivers_what_was_committed_on_mysql() {
    let Some(url) = server("mysql", "PILLARBOX_MYSQL_URL") else { return };
    let database = format!("quickstart_{}", std::process::id());
    let options: MySqlConnectOptions = url.parse().expect("PILLARBOX_MYSQL_URL is a URL");
    let mut server = options.connect().await.expect("the server answers");
    let create = AssertSqlSafe(format!("create database {database}"));
    sqlx::query(create).execute(&mut server).await.expect("create a database for this test");

    check(&["--store", options.database(&database).to_url_lossy().as_str()]);

    let remove = AssertSqlSafe(format!("drop database {database}"));
    sqlx::query(remove).execute(&mut server).await.expect("drop the database");
}

#[test]
fn wrong_arguments_get_the_usage_and_wrong_urls_the_reason() {
    for (args, said) in [
        (&["--help"][..], "usage: quickstart"),
        (&["--store"], "usage: quickstart"),
        (&["--store", "oracle://db/shop"], "begins with sqlite:, postgres:// or mysql://"),
        (&["--store", "shop.db"], "begins with sqlite:, postgres:// or mysql://"),
        (&["--store", "mysql://127.0.0.1:1/"], "database"),
        (&["--store", "sqlite:///no/such/place/x.db"], "unable to open database file"),
    ] {
        let run = Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output();
        let run = run.expect("the example was built with this test");
        let errors = String::from_utf8_lossy(&run.stderr);
        assert!(!run.status.success() && errors.contains(said), "{args:?}: {errors}");
    }
}

/// The URL of a server; `None` where it is missing and not required.
fn server(name: &str, variable: &str) -> Option<String> {
    let url = std::env::var(variable).ok().filter(|url| !url.is_empty());
    let required = std::env::var("PILLARBOX_REQUIRE").unwrap_or_default();
    assert!(url.is_some() || !required.contains(name), "set {variable}");
    url
}

/// Every fourth order is rolled back, the 7th is retried, the 13th is given up, and every other one
/// is delivered on its first attempt.
fn check(args: &[&str]) {
    let run = Command::new(env!("CARGO_BIN_EXE_quickstart")).args(args).output();

    let run = run.expect("the example was built with this test");
    let said = String::from_utf8_lossy(&run.stdout);
    let errors = String::from_utf8_lossy(&run.stderr);
    assert!(run.status.success(), "{said}\n{errors}");
    for number in 1..=20 {
        let prefix = format!("order over {number:>2}.00");
        let of_order = said.lines().filter_map(|line| line.trim().strip_prefix(&prefix));
        let expected: &[&str] = match number {
            7 => &["committed", "mail server is away: will retry", "receipt sent (attempt 2)"],
            13 => &["committed", "address does not exist: given up"],
            _ if number % 4 == 0 => &["rolled back"],
            _ => &["committed", "receipt sent (attempt 1)"],
        };
        assert_eq!(of_order.map(str::trim).collect::<Vec<_>>(), expected, "{prefix}\n{said}");
    }
    let last = "check: 15 committed = 14 delivered + 1 given up, 0 ghosts  ok";
    assert_eq!(said.lines().last(), Some(last), "{said}");
}
