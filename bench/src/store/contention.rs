//! Business transactions beside claims: whether claims make them wait, or fail.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicI64, AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Store, store::Order};
use tokio::task::JoinSet;
use tokio::time::{MissedTickBehavior, interval, sleep};

use super::claim::Claimer;
use crate::{
    Result,
    baseline::{BATCH, Database, Emit, OURS},
    case::{Bench, Case, shards},
    figure::{Goal, Unit},
    measure::{Sample, Spread, alternate, is_deadlock, quantile, timed},
};

/// Writers, and claimers beside them.
const SIDE: usize = 8;
/// Each writer begins a transaction so often: a machine that is busy to the brim would tell how it
/// shares its cores out, not who waits for whom.
const PACE: Duration = Duration::from_millis(10);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    BesideClaims,
    Alone,
}

/// A relay claims again at once after a full batch only, else it waits: half a second, unless it is
/// woken. So often it is not woken, and far more often than that.
pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let contended = bench.scale().contended;
    case(bench, Duration::from_millis(100), contended, Some(Goal::MoreByAtMost(5000.0))).await?;
    case(bench, Duration::from_millis(20), contended / 5, None).await
}

async fn case<D: Database>(
    bench: &mut Bench<'_, D>,
    pause: Duration,
    contended: u32,
    goal: Option<Goal>,
) -> Result {
    let every = pause.as_millis();
    let name =
        format!("emit one per transaction, 800 tx/s, beside 8 that claim every {every} ms, p99");
    if !D::HAS_CONTENTION || !bench.wants(&name) {
        return Ok(());
    }
    let database = &bench.database.workers(SIDE).await?;
    let scale = *bench.scale();
    let each = u64::from(contended) / u64::try_from(scale.rounds * SIDE)?;
    let counts = Arc::new(Counts::default());
    let store = database.store(OURS)?;
    let mut medians = (Vec::new(), Vec::new());
    let samples = alternate(scale.rounds, &[Way::BesideClaims, Way::Alone], async |way| {
        // Deadlocks are what needs many; alone, fewer transactions tell a p99 as well.
        let each = if way == Way::Alone { each.div_ceil(5) } else { each };
        let pause = (way == Way::BesideClaims).then_some(pause);
        let times = round(database, &store, pause, each, &counts).await?;
        let median = quantile(&times, 0.5).as_secs_f64() * 1e6;
        if way == Way::Alone { &mut medians.1 } else { &mut medians.0 }.push(median);
        Ok(Sample::of_time(quantile(&times, 0.99)))
    })
    .await?;
    let [beside, alone] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case { name: &name, unit: Unit::Micros, against: "the same without claimers", goal };
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
    pause: Option<Duration>,
    each: u64,
    counts: &Arc<Counts>,
) -> Result<Vec<Duration>> {
    database.clear().await?;
    let before = counts.claimed.load(Ordering::Relaxed);
    let stop = Arc::new(AtomicBool::new(false));
    let claimers = match pause {
        Some(pause) => claim_until(store, pause, &stop, counts).await?,
        None => JoinSet::new(),
    };
    let times = write(database, each, counts).await;
    stop.store(true, Ordering::Relaxed);
    for ended in claimers.join_all().await {
        ended?;
    }
    let times = times?;
    let claimed = counts.claimed.load(Ordering::Relaxed) - before;
    let left = database.count(OURS, 0).await?;
    if u64::try_from(times.len())? != claimed + left {
        let written = times.len();
        return Err(format!("{written} events written, {claimed} claimed, {left} left").into());
    }
    if pause.is_some() {
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
            let mut pace = interval(PACE);
            pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
            while u64::try_from(times.len())? < each {
                pace.tick().await;
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
    pause: Duration,
    stop: &Arc<AtomicBool>,
    counts: &Arc<Counts>,
) -> Result<JoinSet<Result>> {
    let mut shards = shards(store).await?;
    let mut claimers = JoinSet::new();
    for _ in 0..SIDE {
        let start = shards.len() / SIDE;
        shards.rotate_left(start);
        let mut claimer = Claimer::new(Arc::clone(store), shards.clone(), Order::Key);
        let (stop, counts) = (Arc::clone(stop), Arc::clone(counts));
        claimers.spawn(async move {
            while !stop.load(Ordering::Relaxed) {
                let claimed = counts.met_deadlock(claimer.claim_and_delete().await)?;
                let claimed = claimed.unwrap_or(0);
                counts.claims.fetch_add(1, Ordering::Relaxed);
                counts.claimed.fetch_add(claimed, Ordering::Relaxed);
                if claimed < BATCH.into() {
                    sleep(pause).await;
                }
            }
            Ok(())
        });
    }
    Ok(claimers)
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
