//! The store's cases, on every store that can be reached.

mod claim;
mod crowd;
mod drain;
mod emit;
mod index;
mod rival;

use std::{env, sync::Arc};

use pillarbox::{ShardId, Store};

use crate::{
    Result,
    args::Options,
    bare::{Database, mysql::MysqlBench, postgres::PostgresBench, sqlite::SqliteBench},
    figure::{Figure, Goal, Title, Unit},
    round::Sample,
    scale::Scale,
};

/// Where PostgreSQL is.
const POSTGRES: &str = "PILLARBOX_POSTGRES_URL";
/// Where MySQL or MariaDB is.
const MYSQL: &str = "PILLARBOX_MYSQL_URL";

pub(crate) async fn run(options: &Options) -> Result<Vec<Figure>> {
    let mut figures = Vec::new();
    if let Some(url) = url(options, PostgresBench::NAME, POSTGRES) {
        let database = PostgresBench::open(&url).await?;
        figures.extend(every_case(&database, options).await?);
        database.close().await?;
    }
    if let Some(url) = url(options, MysqlBench::NAME, MYSQL) {
        let database = MysqlBench::open(&url).await?;
        figures.extend(every_case(&database, options).await?);
        database.close().await?;
    }
    if options.wants_store(SqliteBench::NAME) {
        let database = SqliteBench::open().await?;
        figures.extend(every_case(&database, options).await?);
        database.close().await?;
    }
    Ok(figures)
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
    emit::run(&mut bench).await?;
    drain::run(&mut bench).await?;
    claim::run(&mut bench).await?;
    crowd::run(&mut bench).await?;
    index::run(&mut bench).await?;
    rival::run(&mut bench).await?;
    Ok(bench.figures)
}

async fn shards(store: &Arc<dyn Store>) -> Result<Vec<ShardId>> {
    let count = i16::try_from(store.layout().await?.shards.get())?;
    Ok((0..count).map(ShardId).collect())
}

/// One database under measurement, and what was found so far.
struct Bench<'a, D> {
    database: &'a D,
    options: &'a Options,
    figures: Vec<Figure>,
}

impl<D: Database> Bench<'_, D> {
    fn scale(&self) -> &Scale {
        &self.options.scale
    }

    fn wants(&self, case: &str) -> bool {
        self.options.wants_case(case)
    }

    /// Makes a figure of samples taken by turns.
    fn figure(&self, case: Case<'_>, ours: &[Sample], limit: &[Sample]) -> Result<Figure> {
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

    fn report(&mut self, figure: Figure) {
        eprintln!("{}", figure.line());
        self.figures.push(figure);
    }
}

/// What is compared with what.
struct Case<'a> {
    name: &'a str,
    unit: Unit,
    against: &'a str,
    goal: Option<Goal>,
}
