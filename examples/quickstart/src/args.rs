//! The command line: which store, how much to log, how to show an error.

use std::io::{IsTerminal as _, stderr};
use std::process::ExitCode;

use pillarbox::{MysqlStore, PostgresStore, SqliteStore};
use tracing_subscriber::filter::LevelFilter;

use crate::{Result, run};

const USAGE: &str = "usage: quickstart [--store URL]
  URL   sqlite::memory: (the default), sqlite://FILE, postgres://USER@HOST/DATABASE,
        or mysql://USER@HOST/DATABASE
  RUST_LOG=info shows what the relay does";

pub(crate) async fn main() -> ExitCode {
    let level = std::env::var("RUST_LOG").ok().and_then(|level| level.parse().ok());
    tracing_subscriber::fmt()
        .with_writer(stderr)
        .with_ansi(stderr().is_terminal())
        .with_max_level(level.unwrap_or(LevelFilter::OFF))
        .init();
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match *args {
        [] => open("sqlite::memory:").await,
        ["--store", url] => open(url).await,
        _ => Err(USAGE.into()),
    };
    match done {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn open(url: &str) -> Result<()> {
    match url.split(':').next() {
        Some("postgres" | "postgresql") => {
            let store = PostgresStore::connect(url).await?;
            run(store.pool().clone(), store).await
        }
        Some("mysql" | "mariadb") => {
            let store = MysqlStore::connect(url).await?;
            run(store.pool().clone(), store).await
        }
        Some("sqlite") => {
            let store = SqliteStore::connect(url).await?;
            run(store.pool().clone(), store).await
        }
        // Not the URL itself: it may contain a password.
        _ => Err("a store's URL begins with sqlite:, postgres:// or mysql://".into()),
    }
}
