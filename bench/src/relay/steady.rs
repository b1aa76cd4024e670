//! Writers and a relay at the same time: how much goes through from the insert to the settle.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Cx, Envelope, Failure, Listeners, Relay, RelaySettings};
use tokio::{sync::mpsc, time::sleep};

use crate::{
    Result,
    baseline::{Database, Emit, OURS, SettleMode},
    case::{Bench, Case, shards},
    figure::{Goal, Unit},
    measure::{alternate, measure, repeat},
};

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Baseline,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for writers in D::CONNECTIONS {
        case(bench, *writers).await?;
    }
    Ok(())
}

async fn case<D: Database>(bench: &mut Bench<'_, D>, writers: usize) -> Result {
    let name = format!("emit and deliver, {writers} writers");
    if !bench.wants(&name) {
        return Ok(());
    }
    let database = &bench.database.workers(4).await?;
    let slice = bench.scale().slice * 3;
    let next = Arc::new(AtomicI64::new(0));
    let samples = alternate(bench.scale().rounds, &[Way::Ours, Way::Baseline], async |way| {
        database.clear().await?;
        match way {
            Way::Ours => measure(database, ours(database, writers, slice, &next)).await,
            Way::Baseline => measure(database, baseline(database, writers, slice, &next)).await,
        }
    })
    .await?;
    let [ours, baseline] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name: &name,
        unit: Unit::Events,
        against: "hand-written inserts, and beside them one hand-written loop that reads and deletes",
        goal: Some(Goal::AtLeast(0.8)),
    };
    let figure = bench.figure(case, ours, baseline)?;
    bench.report(figure);
    Ok(())
}

/// Until everything that was committed has been heard and settled.
async fn ours<D: Database>(
    database: &D,
    writers: usize,
    slice: Duration,
    next: &Arc<AtomicI64>,
) -> Result<u64> {
    let (heard, mut hears) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |_: Envelope, _: Cx| {
        let told = heard.send(());
        async move { told.map_err(Failure::retry) }
    });
    let settings = RelaySettings { retention_done: Duration::ZERO, ..RelaySettings::default() };
    let relay = Relay::new(database.store(OURS)?, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await?;
    let (clone, next) = (database.clone(), Arc::clone(next));
    let written = repeat(slice, writers, move || {
        let (database, outbox) = (clone.clone(), outbox.clone());
        let order = next.fetch_add(1, Ordering::Relaxed);
        async move { database.emit(&outbox, order, true).await.map(drop) }
    })
    .await?;
    for _ in 0..written {
        hears.recv().await.ok_or("the relay ended")?;
    }
    handle.stop().await?;
    Ok(written)
}

async fn baseline<D: Database>(
    database: &D,
    writers: usize,
    slice: Duration,
    next: &Arc<AtomicI64>,
) -> Result<u64> {
    let shards = shards(&database.store(OURS)?).await?;
    let is_over = Arc::new(AtomicBool::new(false));
    let (clone, over) = (database.clone(), Arc::clone(&is_over));
    let draining = tokio::spawn(async move {
        let mut drained = 0;
        loop {
            let was_over = over.load(Ordering::Acquire);
            let found = clone.drain(shards.clone(), SettleMode::Delete).await?;
            drained += found;
            if found == 0 && was_over {
                return Result::<u64>::Ok(drained);
            }
            if found == 0 {
                sleep(Duration::from_millis(1)).await;
            }
        }
    });
    let (clone, next) = (database.clone(), Arc::clone(next));
    let written = repeat(slice, writers, move || {
        let (database, order) = (clone.clone(), next.fetch_add(1, Ordering::Relaxed));
        async move { database.transact(order, Emit::Baseline).await }
    })
    .await?;
    is_over.store(true, Ordering::Release);
    let drained = draining.await??;
    if drained == written { Ok(written) } else { Err(format!("{drained} of {written}").into()) }
}
