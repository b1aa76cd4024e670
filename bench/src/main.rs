//! Speed, always beside a loop with hand-written statements in the same run.
//!
//! `pillarbox-bench [--only NAME] [--quick] [--json FILE] [--peers FILE] [word…]` measures every store it can
//! reach: PostgreSQL at `PILLARBOX_POSTGRES_URL`, MySQL or MariaDB at `PILLARBOX_MYSQL_URL`, SQLite
//! in a file of its own. With words it runs only the cases whose name has one of them, or whose
//! store is one of them.

#![forbid(unsafe_code)]

mod args;
mod bare;
mod case;
mod cpu;
mod event;
mod figure;
mod growth;
mod memory;
mod peers;
mod relay;
mod relays;
mod round;
mod scale;
mod store;
mod waiting;

use std::{env, error::Error, fs, process::ExitCode};

use crate::bare::{Database, mysql::MysqlBench, postgres::PostgresBench, sqlite::SqliteBench};
use crate::{args::Options, case::Bench, figure::Figure};

/// Where PostgreSQL is.
const POSTGRES: &str = "PILLARBOX_POSTGRES_URL";
/// Where MySQL or MariaDB is.
const MYSQL: &str = "PILLARBOX_MYSQL_URL";

/// A failure is read by a person and by nothing else, so it needs no type of its own.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match Box::pin(run()).await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result {
    let options = args::parse(std::env::args().skip(1))?;
    let mut figures = Vec::new();
    if let Some(url) = url(&options, PostgresBench::NAME, POSTGRES) {
        let database = PostgresBench::open(&url).await?;
        figures.extend(every_case(&database, &options).await?);
        figures.extend(postgres_only(&database, &url, &options).await?);
        database.close().await?;
    }
    if let Some(url) = url(&options, MysqlBench::NAME, MYSQL) {
        let database = MysqlBench::open(&url).await?;
        figures.extend(every_case(&database, &options).await?);
        database.close().await?;
    }
    if options.wants_store(SqliteBench::NAME) {
        let database = SqliteBench::open().await?;
        figures.extend(every_case(&database, &options).await?);
        database.close().await?;
    }
    write(&options, &figures)
}

/// Where a store is to be found, if it is wanted.
fn url(options: &Options, store: &str, variable: &str) -> Option<String> {
    if !options.wants_store(store) {
        return None;
    }
    let url = env::var(variable).ok().filter(|url| !url.is_empty());
    if url.is_none() {
        eprintln!("{store}: left out, {variable} is not set");
    }
    url
}

async fn every_case<D: Database>(database: &D, options: &Options) -> Result<Vec<Figure>> {
    let mut bench = Bench { database, options, figures: Vec::new() };
    if options.wants("store") {
        store::run(&mut bench).await?;
    }
    if options.wants("relay") {
        relay::run(&mut bench).await?;
    }
    Ok(bench.figures)
}

/// What is measured by name, on one database.
async fn postgres_only(
    database: &PostgresBench,
    url: &str,
    options: &Options,
) -> Result<Vec<Figure>> {
    let mut bench = Bench { database, options, figures: Vec::new() };
    if options.wants("peers") {
        peers::run(&mut bench, url).await?;
    }
    if options.wants("growth") {
        growth::run(&mut bench).await?;
        waiting::run(&mut bench).await?;
    }
    Ok(bench.figures)
}

fn write(options: &Options, figures: &[Figure]) -> Result {
    let json = serde_json::to_string_pretty(figures)?;
    match &options.json {
        Some(file) => fs::write(file, json + "\n")
            .map_err(|error| format!("cannot write {}: {error}", file.display()).into()),
        None => {
            eprintln!("{json}");
            Ok(())
        }
    }
}
