//! Business transactions beside claims: whether claims make them wait, or fail.

use std::{
    error::Error,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{OwnerId, Store, store::Order};
use tokio::{task::JoinSet, time::sleep};

use super::{Bench, Case, claim::Claimer, shards};
use crate::{
    Result,
    bare::{BATCH, Database, Emit, OURS},
    figure::{Goal, Unit},
    round::{Sample, Spread, by_turns, quantile, timed},
};

/// Writers, and claimers beside them.
const SIDE: usize = 8;
/// A relay claims again at once after a full batch only, else it waits to be woken.
const PAUSE: Duration = Duration::from_millis(5);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    BesideClaims,
    Alone,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let name = "emit one per transaction beside 8 claimers, p99";
    if !D::HAS_RIVALS || !bench.wants(name) {
        return Ok(());
    }
    let database = &bench.database.workers(SIDE).await?;
    let scale = *bench.scale();
    let each = u64::from(scale.contended) / u64::try_from(scale.rounds * SIDE)?;
    let counts = Arc::new(Counts::default());
    let store = database.store(OURS)?;
    let mut medians = (Vec::new(), Vec::new());
    let samples = by_turns(scale.rounds, &[Way::BesideClaims, Way::Alone], async |way| {
        // Deadlocks are what needs many; alone, fewer transactions tell a p99 as well.
        let each = if way == Way::Alone { each.div_ceil(5) } else { each };
        let times = round(database, &store, way, each, &counts).await?;
        let median = quantile(&times, 0.5).as_secs_f64() * 1e6;
        if way == Way::Alone { &mut medians.1 } else { &mut medians.0 }.push(median);
        Ok(Sample::of_time(quantile(&times, 0.99)))
    })
    .await?;
    let [beside, alone] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name,
        unit: Unit::Micros,
        against: "the same without claimers",
        goal: Some(Goal::OursAtMost(5000.0)),
    };
    let mut figure = bench.figure(case, beside, alone)?;
    let median = |medians| Spread::of(medians).map_or(0.0, |spread| spread.median);
    figure.notes = vec![
        format!(
            "p50 {:.0} µs beside claimers, {:.0} µs alone",
            median(medians.0),
            median(medians.1)
        ),
        counts.to_string(),
    ];
    bench.report(figure);
    Ok(())
}

/// What happened beside the transactions, warm-up included.
#[derive(Debug, Default)]
struct Counts {
    written: AtomicU64,
    claimed: AtomicU64,
    claims: AtomicU64,
    deadlocks: AtomicU64,
}

impl std::fmt::Display for Counts {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let [written, claimed, claims, deadlocks] =
            [&self.written, &self.claimed, &self.claims, &self.deadlocks]
                .map(|count| count.load(Ordering::Relaxed));
        write!(
            f,
            "{deadlocks} deadlocks in {written} transactions beside {claims} claims of {claimed} events"
        )
    }
}

/// Runs the writers to their end and returns how long each transaction took.
async fn round<D: Database>(
    database: &D,
    store: &Arc<dyn Store>,
    way: Way,
    each: u64,
    counts: &Arc<Counts>,
) -> Result<Vec<Duration>> {
    database.clear().await?;
    let before = counts.claimed.load(Ordering::Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let claimers = if way == Way::BesideClaims { SIDE } else { 0 };
    let rivals = claim_until(store, claimers, &stop, counts).await?;
    let times = write(database, each, counts).await;
    stop.store(true, Ordering::Relaxed);
    for ended in rivals.join_all().await {
        ended?;
    }
    let times = times?;
    let claimed = counts.claimed.load(Ordering::Relaxed) - before;
    let left = database.count(OURS, 0).await?;
    if u64::try_from(times.len())? != claimed + left {
        let written = times.len();
        return Err(format!("{written} events written, {claimed} claimed, {left} left").into());
    }
    if way == Way::BesideClaims {
        counts.written.fetch_add(times.len().try_into()?, Ordering::Relaxed);
    }
    Ok(times)
}

async fn write<D: Database>(
    database: &D,
    each: u64,
    counts: &Arc<Counts>,
) -> Result<Vec<Duration>> {
    let next = Arc::new(AtomicI64::new(0));
    let writers = (0..SIDE).map(|_| {
        let (database, next, counts) = (database.clone(), Arc::clone(&next), Arc::clone(counts));
        async move {
            let mut times = Vec::new();
            while u64::try_from(times.len())? < each {
                let order = next.fetch_add(1, Ordering::Relaxed);
                let (done, took) = timed(database.transact(order, Emit::Ours)).await;
                if counts.met_deadlock(done)?.is_some() {
                    times.push(took);
                }
            }
            Ok(times)
        }
    });
    let writers: JoinSet<Result<Vec<Duration>>> = writers.collect();
    let mut times = Vec::new();
    for ended in writers.join_all().await {
        times.extend(ended?);
    }
    Ok(times)
}

async fn claim_until(
    store: &Arc<dyn Store>,
    claimers: usize,
    stop: &Arc<AtomicBool>,
    counts: &Arc<Counts>,
) -> Result<JoinSet<Result>> {
    let mut shards = shards(store).await?;
    let mut rivals = JoinSet::new();
    for _ in 0..claimers {
        let start = shards.len() / claimers;
        shards.rotate_left(start);
        let mut claimer = Claimer {
            store: Arc::clone(store),
            owner: OwnerId::generate(),
            shards: shards.clone(),
        };
        let (stop, counts) = (Arc::clone(stop), Arc::clone(counts));
        rivals.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let claimed = counts.met_deadlock(claimer.claim_and_delete(Order::Key).await)?;
                let claimed = claimed.unwrap_or(0);
                counts.claims.fetch_add(1, Ordering::Relaxed);
                counts.claimed.fetch_add(claimed, Ordering::Relaxed);
                claimer.turn();
                if claimed < BATCH.into() {
                    sleep(PAUSE).await;
                }
            }
            Ok(())
        });
    }
    Ok(rivals)
}

impl Counts {
    /// Counts a deadlock and lets the work go on; any other failure ends it.
    fn met_deadlock<T>(&self, done: Result<T>) -> Result<Option<T>> {
        match done {
            Ok(done) => Ok(Some(done)),
            Err(error) if is_deadlock(&*error) => {
                self.deadlocks.fetch_add(1, Ordering::Relaxed);
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }
}

/// Whether the database chose this one as the victim: PostgreSQL says 40P01, MySQL's 1213 is 40001.
fn is_deadlock(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(sqlx::Error::Database(answer)) = error.downcast_ref() {
            return matches!(answer.code().as_deref(), Some("40P01" | "40001"));
        }
        next = error.source();
    }
    false
}
