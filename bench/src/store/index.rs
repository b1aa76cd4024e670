//! What each index costs an insert.

use crate::{
    Result,
    baseline::{Database, Index, Load, Prefix},
    case::{Bench, Case},
    event::KEYS,
    figure::Unit,
    measure::{Sample, alternate, measure},
};

const TABLES: Prefix = "cost_";
/// Rows of one statement.
const ROWS: u32 = 1000;

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    if !bench.wants("insert with the index") {
        return Ok(());
    }
    let (database, inserts) = (bench.database, bench.scale().inserts);
    database.store(TABLES)?.migrate().await?;
    let indexes = database.indexes(TABLES).await?;
    let ways: Vec<Option<&Index>> = std::iter::once(None).chain(indexes.iter().map(Some)).collect();
    let samples = alternate(bench.scale().rounds, &ways, async |without| {
        database.empty(TABLES).await?;
        match without {
            None => sample(database, inserts).await,
            Some(index) => {
                database.execute(&index.drop).await?;
                let sample = sample(database, inserts).await;
                database.empty(TABLES).await?;
                database.execute(&index.create).await?;
                sample
            }
        }
    })
    .await?;
    let Some((all, without)) = samples.split_first() else { return Err("no way".into()) };
    for (index, without) in indexes.iter().zip(without) {
        let name = index.name.trim_start_matches(TABLES).trim_start_matches("outbox_event_");
        let case = Case {
            name: &format!("insert with the index `{name}`"),
            unit: Unit::Micros,
            against: "the same insert without this index, 1000 rows to a statement",
            goal: None,
        };
        let figure = bench.figure(case, all, without)?;
        bench.report(figure);
    }
    database.empty(TABLES).await
}

async fn sample<D: Database>(database: &D, inserts: u32) -> Result<Sample> {
    let rows = async {
        for first in (1..=inserts).step_by(ROWS as usize) {
            database.load(TABLES, Load { first, count: ROWS, keys: KEYS, status: 0 }).await?;
        }
        Ok(inserts.into())
    };
    measure(database, rows).await
}
