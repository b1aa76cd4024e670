//! The store's cases.

mod claim;
mod crowd;
mod drain;
mod emit;
mod index;
mod rival;

use crate::{Result, bare::Database, case::Bench};

pub(crate) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    emit::run(bench).await?;
    drain::run(bench).await?;
    claim::run(bench).await?;
    crowd::run(bench).await?;
    index::run(bench).await?;
    rival::run(bench).await
}
