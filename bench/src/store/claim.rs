//! A backlog claimed row by row and deleted, without a relay.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::store::{Budget, Claim, Order, Pending, RowLease, RowVerdict, SettleRows};
use pillarbox::{OwnerId, ShardId, Store, Verdict};
use tokio::time::sleep;

use crate::{
    Result,
    baseline::{BASELINE, BATCH, Database, OURS, fill},
    case::{Bench, Case, shards},
    figure::{Goal, Unit},
    measure::{Sample, alternate, measure, side_by_side},
};

/// Longer than any round.
pub(super) const LEASE: Duration = Duration::from_secs(600);

/// When everything due is in other hands.
const PAUSE: Duration = Duration::from_millis(1);
/// So many pauses in a row mean that an event is lost.
const MOST_PAUSES: u32 = 5000;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours(Order),
    Baseline(Order),
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for claimers in D::CLAIMERS {
        case(bench, *claimers).await?;
    }
    Ok(())
}

async fn case<D: Database>(bench: &mut Bench<'_, D>, claimers: usize) -> Result {
    let name = format!("claim, deleted, claimers: {claimers}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let database = &bench.database.workers(claimers).await?;
    let backlog = bench.scale().claimed;
    let store = database.store(OURS)?;
    let orders = [Order::Key, Order::None];
    let ways = orders.map(|order| [Way::Ours(order), Way::Baseline(order)]);
    let samples = alternate(bench.scale().rounds, ways.as_flattened(), async |way| {
        let prefix = if matches!(way, Way::Baseline(_)) { BASELINE } else { OURS };
        fill(database, prefix, backlog).await?;
        let sample = drain(database, &store, way, claimers, backlog.into()).await?;
        let left = database.count(prefix, 0).await?;
        if sample.count != u64::from(backlog) || left != 0 {
            let count = sample.count;
            return Err(format!("of {backlog} events {count} claimed, {left} left").into());
        }
        Ok(sample)
    })
    .await?;
    for (pair, order) in samples.chunks_exact(2).zip(["in order of key", "in any order"]) {
        let [ours, baseline] = pair else { return Err("a way is missing".into()) };
        let case = Case {
            name: &format!("{name}, {order}"),
            unit: Unit::Events,
            against: "the same claim by hand, heads by `not exists`, and a delete",
            goal: Some(Goal::AtLeast(0.8)),
        };
        let figure = bench.figure(case, ours, baseline)?;
        bench.report(figure);
    }
    Ok(())
}

async fn drain<D: Database>(
    database: &D,
    store: &Arc<dyn Store>,
    way: Way,
    claimers: usize,
    backlog: u64,
) -> Result<Sample> {
    let shards = shards(store).await?;
    let claimed = Arc::new(AtomicU64::new(0));
    let tasks = (0..claimers).map(|part| {
        let mut shards = shards.clone();
        let start = part * shards.len() / claimers;
        shards.rotate_left(start);
        let (Way::Ours(order) | Way::Baseline(order)) = way;
        let mut claimer = Claimer::new(Arc::clone(store), shards, order);
        let (database, claimed) = (database.clone(), Arc::clone(&claimed));
        async move {
            // A claim that finds nothing is no proof: a key's head may be in other hands.
            let (mut own, mut pauses) = (0, 0);
            while claimed.load(Ordering::Relaxed) < backlog {
                let count = match way {
                    Way::Ours(_) => claimer.claim_and_delete().await?,
                    Way::Baseline(_) => {
                        let Claim { owner, shards, .. } = &mut claimer.request;
                        shards.rotate_left(1);
                        database.claim(owner, shards, order).await?
                    }
                };
                pauses = if count == 0 { pauses + 1 } else { 0 };
                if pauses > MOST_PAUSES {
                    return Err("what is left cannot be claimed".into());
                }
                if pauses > 0 {
                    sleep(PAUSE).await;
                }
                claimed.fetch_add(count, Ordering::Relaxed);
                own += count;
            }
            Ok(own)
        }
    });
    measure(database, side_by_side(tasks)).await
}

/// One who claims, as a relay does.
#[derive(Clone, Debug)]
pub(super) struct Claimer {
    pub(super) store: Arc<dyn Store>,
    pub(super) request: Claim,
}

impl Claimer {
    pub(super) fn new(store: Arc<dyn Store>, shards: Vec<ShardId>, order: Order) -> Self {
        let owner = OwnerId::generate();
        let budget = Budget::unlimited();
        let request =
            Claim { owner, length: LEASE, shards, after: None, limit: BATCH, budget, order };
        Self { store, request }
    }

    /// Claims, and turns to where the next claim begins.
    pub(super) async fn claim(&mut self) -> Result<Vec<Pending>> {
        let rows = self.store.claim(&self.request).await?;
        self.request.turn(&rows);
        Ok(rows)
    }

    pub(super) async fn claim_and_delete(&mut self) -> Result<u64> {
        let rows = self.claim().await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let verdict = |row: &Pending| RowVerdict {
            row: RowLease::from(row),
            verdict: Verdict::Delete,
            settled_by: Some("order.placed".to_owned()),
        };
        let verdicts = rows.iter().map(verdict).collect();
        let settle = SettleRows { owner: self.request.owner.clone(), verdicts };
        Ok(self.store.settle_rows(&settle).await?.len().try_into()?)
    }
}
