//! A case: what is compared with what, on one database.

use std::sync::Arc;

use pillarbox::{ShardId, Store};

use crate::{
    Result,
    args::Options,
    baseline::{Database, OURS, SettleMode},
    figure::{Figure, Goal, Title, Unit},
    measure::{Sample, measure, side_by_side},
    scale::Scale,
};

/// One database under measurement, and what was found so far.
pub(crate) struct Bench<'a, D> {
    pub(crate) database: &'a D,
    pub(crate) options: &'a Options,
    pub(crate) figures: Vec<Figure>,
}

impl<D: Database> Bench<'_, D> {
    pub(crate) fn scale(&self) -> &Scale {
        self.options.scale()
    }

    pub(crate) fn wants(&self, case: &str) -> bool {
        self.options.wants_case(case)
    }

    /// Makes a figure of samples taken by turns.
    pub(crate) fn figure(
        &self,
        case: Case<'_>,
        ours: &[Sample],
        limit: &[Sample],
    ) -> Result<Figure> {
        let title = Title {
            case: case.name.to_owned(),
            store: D::NAME,
            server: self.database.server().to_owned(),
            unit: case.unit,
            against: case.against.to_owned(),
            goal: case.goal,
        };
        Ok(Figure::new(title, ours, limit).ok_or("no round was run")?)
    }

    pub(crate) fn report(&mut self, figure: Figure) {
        eprintln!("{}", figure.line());
        self.figures.push(figure);
    }
}

/// What is compared with what.
pub(crate) struct Case<'a> {
    pub(crate) name: &'a str,
    pub(crate) unit: Unit,
    pub(crate) against: &'a str,
    pub(crate) goal: Option<Goal>,
}

pub(crate) async fn shards(store: &Arc<dyn Store>) -> Result<Vec<ShardId>> {
    let count = i16::try_from(store.config().await?.shards.get())?;
    Ok((0..count).map(ShardId).collect())
}

/// All shards, dealt out to readers.
pub(crate) async fn parts(store: &Arc<dyn Store>, readers: usize) -> Result<Vec<Vec<ShardId>>> {
    let shards = shards(store).await?;
    Ok(shards.chunks(shards.len().div_ceil(readers)).map(<[_]>::to_vec).collect())
}

/// The backlog of hand-written statements, drained by this many loops side by side.
pub(crate) async fn drain_by_hand<D: Database>(
    database: &D,
    loops: usize,
    mode: SettleMode,
) -> Result<Sample> {
    measure(database, loops_by_hand(database, loops, mode).await?).await
}

/// The same, for whoever has meters of another kind.
pub(crate) async fn loops_by_hand<D: Database>(
    database: &D,
    loops: usize,
    mode: SettleMode,
) -> Result<impl Future<Output = Result<u64>> + use<D>> {
    let parts = parts(&database.store(OURS)?, loops).await?;
    let database = database.clone();
    let drains = parts.into_iter().map(move |shards| {
        let database = database.clone();
        async move { database.drain(shards, mode).await }
    });
    Ok(side_by_side(drains))
}
