//! The relay's cases.

mod drain;
mod horizon;
pub(crate) mod latency;
mod steady;

use crate::{Result, baseline::Database, case::Bench};

pub(crate) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    drain::run(bench).await?;
    horizon::run(bench).await?;
    steady::run(bench).await?;
    latency::run(bench).await
}
