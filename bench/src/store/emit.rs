//! What an event costs the transaction that emits it.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};

use crate::{
    Result,
    baseline::{Database, Emit, OURS},
    case::{Bench, Case},
    figure::{Goal, Unit},
    measure::{Sample, alternate, measure, repeat},
};

/// Events of a large transaction.
const MANY: u32 = 1000;

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for connections in D::CONNECTIONS {
        one(bench, *connections).await?;
    }
    many(bench).await
}

/// One event per transaction, beside the same transaction with a hand-written insert.
async fn one<D: Database>(bench: &mut Bench<'_, D>, connections: usize) -> Result {
    let name = format!("emit one per transaction, {connections} connections");
    if !bench.wants(&name) {
        return Ok(());
    }
    let (database, slice) = (bench.database, bench.scale().slice);
    let ways = [Emit::Ours, Emit::Baseline, Emit::Slim, Emit::Nothing];
    let next = Arc::new(AtomicI64::new(0));
    let samples = alternate(bench.scale().rounds, &ways, async |way| {
        database.clear().await?;
        let (clone, next) = (database.clone(), Arc::clone(&next));
        let transaction = move || {
            let (database, order) = (clone.clone(), next.fetch_add(1, Ordering::Relaxed));
            async move { database.transact(order, way).await }
        };
        let sample = measure(database, repeat(slice, connections, transaction)).await?;
        all_written(database, way, sample).await
    })
    .await?;
    let [ours, baseline, slim, nothing] = &samples[..] else {
        return Err("a way is missing".into());
    };
    let case = Case {
        name: &name,
        unit: Unit::Transactions,
        against: "the same transaction with a hand-written insert into a table like ours",
        goal: None,
    };
    let is_large = connections >= 32;
    let figure = bench
        .figure(case, ours, baseline)?
        .peer(
            "hand-written insert, table with a primary key only",
            ours,
            slim,
            is_large.then_some(Goal::AtLeast(0.95)),
        )
        .peer(
            "the transaction without an event",
            ours,
            nothing,
            (!is_large).then_some(Goal::AtLeast(0.8)),
        );
    bench.report(figure);
    Ok(())
}

/// Many events in one transaction, beside one hand-written statement.
async fn many<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let name = "emit 1000 in one transaction";
    if !bench.wants(name) {
        return Ok(());
    }
    let (database, slice) = (bench.database, bench.scale().slice);
    let ways = [Emit::Ours, Emit::Baseline, Emit::Slim];
    let next = Arc::new(AtomicI64::new(0));
    let samples = alternate(bench.scale().rounds, &ways, async |way| {
        database.clear().await?;
        let (clone, next) = (database.clone(), Arc::clone(&next));
        let transaction = move || {
            let first = next.fetch_add(i64::from(MANY), Ordering::Relaxed);
            let database = clone.clone();
            async move { database.transact_many(first, MANY, way).await }
        };
        let events = async { Ok(repeat(slice, 1, transaction).await? * u64::from(MANY)) };
        let sample = measure(database, events).await?;
        all_written(database, way, sample).await
    })
    .await?;
    let [ours, baseline, slim] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name,
        unit: Unit::Events,
        against: "one hand-written insert of many rows into a table like ours",
        goal: Some(Goal::AtLeast(0.8)),
    };
    let figure = bench.figure(case, ours, baseline)?.peer(
        "hand-written insert, table with a primary key only",
        ours,
        slim,
        None,
    );
    bench.report(figure);
    Ok(())
}

/// Passes the sample on if every event of ours is in the table.
async fn all_written<D: Database>(database: &D, way: Emit, sample: Sample) -> Result<Sample> {
    let written = if way == Emit::Ours { database.count(OURS, 0).await? } else { sample.count };
    if written != sample.count {
        return Err(format!("{} events emitted, {written} written", sample.count).into());
    }
    Ok(sample)
}
