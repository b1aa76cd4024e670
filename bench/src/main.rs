//! Benchmarks: the library beside hand-written statements in the same run. `--help` lists the options.

#![forbid(unsafe_code)]

mod args;
mod baseline;
mod case;
mod cpu;
mod event;
mod figure;
mod growth;
mod measure;
mod memory;
mod peers;
mod relay;
mod relays;
mod scale;
mod store;
mod waiting;

use std::{env, error::Error, fs, process::ExitCode};

use clap::Parser as _;

use crate::baseline::{Database, mysql::MysqlBench, postgres::PostgresBench, sqlite::SqliteBench};
use crate::{
    args::{Benchmark, Options},
    case::Bench,
    figure::Figure,
};

/// Where PostgreSQL is.
const POSTGRES: &str = "PILLARBOX_POSTGRES_URL";
/// Where MySQL or MariaDB is.
const MYSQL: &str = "PILLARBOX_MYSQL_URL";

/// Any failure: it is shown to a person and not matched on.
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
    let options = Options::parse();
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
    if options.wants(Benchmark::Store) {
        store::run(&mut bench).await?;
    }
    if options.wants(Benchmark::Relay) {
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
    if options.wants(Benchmark::Peers) {
        peers::run(&mut bench, url).await?;
    }
    if options.wants(Benchmark::Growth) {
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
