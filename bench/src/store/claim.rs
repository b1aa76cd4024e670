//! A backlog claimed row by row and deleted, without a relay.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::store::{Claim, Order, Pending, RowLease, RowVerdict, SettleRows};
use pillarbox::{OwnerId, ShardId, Store, Verdict};
use tokio::time::sleep;

use super::{Bench, Case, shards};
use crate::{
    Result,
    bare::{BARE, BATCH, Database, OURS, fill},
    figure::{Goal, Unit},
    round::{Sample, by_turns, measure, side_by_side},
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
    Bare,
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
    let ways = [Way::Ours(Order::Key), Way::Ours(Order::None), Way::Bare];
    let samples = by_turns(bench.scale().rounds, &ways, async |way| {
        let prefix = if way == Way::Bare { BARE } else { OURS };
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
    let [ordered, free, bare] = &samples[..] else { return Err("a way is missing".into()) };
    for (ours, order) in [(ordered, "in order of key"), (free, "in any order")] {
        let case = Case {
            name: &format!("{name}, {order}"),
            unit: Unit::Events,
            against: "a hand-written claim in any order, and a delete",
            goal: Some(Goal::AtLeast(0.8)),
        };
        let figure = bench.figure(case, ours, bare)?;
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
        let mut claimer = Claimer { store: Arc::clone(store), owner: OwnerId::generate(), shards };
        let (database, claimed) = (database.clone(), Arc::clone(&claimed));
        async move {
            // A claim that finds nothing is no proof: a key's head may be in other hands.
            let (mut own, mut pauses) = (0, 0);
            while claimed.load(Ordering::Relaxed) < backlog {
                let count = match way {
                    Way::Ours(order) => claimer.claim_and_delete(order).await?,
                    Way::Bare => database.claim(&claimer.owner, &claimer.shards).await?,
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
                claimer.turn();
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
    pub(super) owner: OwnerId,
    pub(super) shards: Vec<ShardId>,
}

impl Claimer {
    /// Lets the next shard be the first, so that none is always the last.
    pub(super) fn turn(&mut self) {
        self.shards.rotate_left(1);
    }

    pub(super) async fn claim(&self, order: Order, limit: u32) -> Result<Vec<Pending>> {
        let claim = Claim {
            owner: self.owner.clone(),
            length: LEASE,
            shards: self.shards.clone(),
            limit,
            order,
        };
        Ok(self.store.claim(&claim).await?)
    }

    pub(super) async fn claim_and_delete(&self, order: Order) -> Result<u64> {
        let rows = self.claim(order, BATCH).await?;
        if rows.is_empty() {
            return Ok(0);
        }
        let verdict = |row: &Pending| RowVerdict {
            row: RowLease::from(row),
            verdict: Verdict::Delete,
            settled_by: Some("order.placed".to_owned()),
        };
        let verdicts = rows.iter().map(verdict).collect();
        let settle = SettleRows { owner: self.owner.clone(), verdicts };
        Ok(self.store.settle_rows(&settle).await?.len().try_into()?)
    }
}
