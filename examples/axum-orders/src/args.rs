//! The command line: where to listen, and on which store.

use std::process::ExitCode;

use axum::http::StatusCode;
use pillarbox::{PostgresStore, SqliteStore};

use crate::{Result, serve};

const USAGE: &str = "usage: axum-orders ADDRESS [URL]
  ADDRESS   where to listen, such as 127.0.0.1:3000
  URL       sqlite::memory: (the default), sqlite://FILE, or postgres://USER@HOST/DATABASE";

pub(crate) async fn main() -> ExitCode {
    let args: Vec<String> = std::env::args().skip(1).collect();
    let args: Vec<&str> = args.iter().map(String::as_str).collect();
    let done = match *args {
        [address] if !address.starts_with('-') => open("sqlite::memory:", address).await,
        [address, url] => open(url, address).await,
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

async fn open(url: &str, address: &str) -> Result<()> {
    if url.starts_with("postgres") {
        let store = PostgresStore::connect(url).await?;
        return serve(store.pool().clone(), store, address).await;
    }
    let store = SqliteStore::connect(url).await?;
    serve(store.pool().clone(), store, address).await
}

/// What went wrong is for the operator; the client only learns that something did.
pub(crate) fn trouble(error: Box<dyn std::error::Error + Send + Sync>) -> StatusCode {
    eprintln!("{error}");
    StatusCode::INTERNAL_SERVER_ERROR
}
