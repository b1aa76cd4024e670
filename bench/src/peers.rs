//! Ours beside other people's queues and outboxes, on the same server and by turns.

mod drain;
mod enqueue;
mod field;
mod large;
mod latency;
mod list;
mod program;
mod turns;

use self::field::Field;
use crate::{Result, baseline::postgres::PostgresBench, case::Bench};

pub(crate) async fn run(bench: &mut Bench<'_, PostgresBench>, url: &str) -> Result {
    let field = Field::open(bench.options.peers.as_deref(), url).await?;
    drain::run(bench, &field).await?;
    enqueue::run(bench, &field).await?;
    latency::run(bench, &field).await?;
    field.close().await?;
    large::run(bench).await
}
