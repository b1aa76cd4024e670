//! One order on the command line, one JSON line for an answer: ../README.md.

#![forbid(unsafe_code)]

mod apalis_postgres;
mod gears;
mod graphile_worker;
mod order;
mod race;

use std::{env, error::Error, process::ExitCode};

use crate::order::{Order, Verb};

type Result<T = ()> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

#[tokio::main]
async fn main() -> ExitCode {
    match run().await {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("{error}");
            ExitCode::FAILURE
        }
    }
}

async fn run() -> Result {
    let order = env::args().nth(1).ok_or("no order")?;
    let order: Order = serde_json::from_str(&order)?;
    match (order.peer.as_str(), order.verb) {
        ("graphile_worker", Verb::Fill) => graphile_worker::fill(&order).await,
        ("graphile_worker", Verb::Drain) => graphile_worker::drain(&order).await,
        ("apalis-postgres", Verb::Fill) => apalis_postgres::fill(&order).await,
        ("apalis-postgres", Verb::Drain) => apalis_postgres::drain(&order).await,
        ("cf-gears-toolkit-db", Verb::Fill) => gears::fill(&order).await,
        ("cf-gears-toolkit-db", Verb::Drain) => gears::drain(&order).await,
        (other, _) => Err(format!("no peer `{other}`").into()),
    }
}
