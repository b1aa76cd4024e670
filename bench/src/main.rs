//! The store's speed, always beside a loop with hand-written statements in the same run.
//!
//! `pillarbox-bench [--only NAME] [--quick] [--json FILE] [word…]` measures every store it can
//! reach: PostgreSQL at `PILLARBOX_POSTGRES_URL`, MySQL or MariaDB at `PILLARBOX_MYSQL_URL`, SQLite
//! in a file of its own. With words it runs only the cases whose name has one of them, or whose
//! store is one of them.

#![forbid(unsafe_code)]

mod args;
mod bare;
mod cpu;
mod event;
mod figure;
mod round;
mod scale;
mod store;

use std::{error::Error, fs, process::ExitCode};

use crate::{args::Options, figure::Figure};

/// A failure is read by a person and by nothing else, so it needs no type of its own.
pub(crate) type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("error: {error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result {
    let options = args::parse(std::env::args().skip(1))?;
    let figures = store::run(&options).await?;
    write(&options, &figures)
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
