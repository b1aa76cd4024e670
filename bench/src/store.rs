//! The store's cases.

mod claim;
mod contention;
mod drain;
mod emit;
mod index;
mod obstacle;

use crate::{Result, baseline::Database, case::Bench};

pub(crate) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    emit::run(bench).await?;
    drain::run(bench).await?;
    claim::run(bench).await?;
    obstacle::run(bench).await?;
    index::run(bench).await?;
    contention::run(bench).await
}
