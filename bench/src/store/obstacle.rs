//! What rows in the way cost those who look for due ones: done rows, dead rows, a blocked key.

use std::sync::Arc;

use pillarbox::store::{Budget, Order, Read, RowLease, ShardRead};
use pillarbox::{Seq, ShardId, Store};

use super::claim::Claimer;
use crate::{
    Result,
    baseline::{BATCH, Database, HeldSnapshot, Load, Prefix},
    case::{Bench, Case, shards},
    event::KEYS,
    figure::{Goal, Unit},
    measure::{Sample, alternate, measure},
};

/// The tables with nothing in the way.
const CLEAN: Prefix = "clean_";
/// The tables with a obstacle.
const OBSTRUCTED: Prefix = "obstructed_";

/// Due rows, of a key each: fewer than a batch, so that a look goes to the end.
const DUE: u32 = 900;

/// What is in the way.
#[derive(Clone, Copy, PartialEq)]
enum Obstacle {
    Done(u32),
    /// Under a snapshot that somebody holds.
    Deleted(u32),
    OneKey(u32),
}

/// Who looks.
#[derive(Clone, Copy, PartialEq)]
enum Query {
    Read,
    /// Above the floor that a relay would have.
    ReadAboveFloor,
    /// And gives back what it got.
    Claim(Order),
    /// And keeps it: what is given back leaves dead rows, and a held snapshot would keep them.
    ClaimOnce,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let scale = *bench.scale();
    run_cases(bench, Obstacle::Done(scale.kept), &[Query::Read, Query::Claim(Order::Key)]).await?;
    run_cases(bench, Obstacle::Deleted(scale.dead), &[Query::ReadAboveFloor, Query::Read]).await?;
    run_cases(bench, Obstacle::Deleted(scale.dead), &[Query::ClaimOnce]).await?;
    let looks = [Query::Claim(Order::Key), Query::Claim(Order::None)];
    run_cases(bench, Obstacle::OneKey(scale.claimed), &looks).await
}

async fn run_cases<D: Database>(
    bench: &mut Bench<'_, D>,
    obstacle: Obstacle,
    looks: &[Query],
) -> Result {
    if !looks.iter().any(|look| bench.wants(&name(*look, obstacle))) {
        return Ok(());
    }
    let database = bench.database.workers(1).await?;
    let rounds = if looks == [Query::ClaimOnce] { bench.scale().rounds } else { 0 };
    let due = DUE * u32::try_from(rounds + 1)?;
    let Some(_held) = lay_out(&database, obstacle, due).await? else { return Ok(()) };
    let sides = [Side::of(&database, OBSTRUCTED).await?, Side::of(&database, CLEAN).await?];
    for look in looks {
        case(bench, &database, &sides, *look, obstacle).await?;
    }
    database.empty(OBSTRUCTED).await
}

fn name(look: Query, obstacle: Obstacle) -> String {
    let obstacle = match obstacle {
        Obstacle::Done(count) => format!("beside {count} done rows"),
        Obstacle::Deleted(count) => format!("behind {count} deleted rows under a held snapshot"),
        Obstacle::OneKey(count) => format!("beside a key with {count} events"),
    };
    let look = match look {
        Query::Read => "read",
        Query::ReadAboveFloor => "read above a floor",
        Query::Claim(Order::Key) => "claim in order of key, and release,",
        Query::Claim(Order::None) => "claim in any order, and release,",
        Query::ClaimOnce => "claim in order of key",
    };
    format!("{look} {obstacle}")
}

/// Both tables with the same due rows, one of them with the obstacle in front; `None` where there is
/// no such obstacle.
async fn lay_out<D: Database>(
    database: &D,
    obstacle: Obstacle,
    due: u32,
) -> Result<Option<HeldSnapshot>> {
    for prefix in [CLEAN, OBSTRUCTED] {
        database.store(prefix)?.migrate().await?;
        database.empty(prefix).await?;
    }
    let (count, keys, status) = match obstacle {
        Obstacle::Done(count) => (count, KEYS, 1),
        Obstacle::Deleted(count) => (count, KEYS, 0),
        Obstacle::OneKey(count) => (count, 1, 0),
    };
    database.load(OBSTRUCTED, Load { first: 1, count, keys, status }).await?;
    let mut held: Option<HeldSnapshot> = Some(Box::new(()));
    if matches!(obstacle, Obstacle::Deleted(_)) {
        // The other one has a floor to stand on, too.
        database.load(CLEAN, Load { first: 1, count: 1, keys, status }).await?;
        database.delete(CLEAN).await?;
        held = database.hold_snapshot().await?;
        database.delete(OBSTRUCTED).await?;
    }
    for prefix in [CLEAN, OBSTRUCTED] {
        let load = Load { first: count + 1, count: due, keys: u32::MAX >> 1, status: 0 };
        database.load(prefix, load).await?;
        database.analyze_table(prefix).await?;
    }
    Ok(held)
}

/// One of the two tables, and who looks there.
struct Side {
    prefix: Prefix,
    store: Arc<dyn Store>,
    shards: Vec<ShardId>,
}

impl Side {
    async fn of<D: Database>(database: &D, prefix: Prefix) -> Result<Self> {
        let store = database.store(prefix)?;
        let shards = shards(&store).await?;
        Ok(Self { prefix, store, shards })
    }

    async fn look(&self, look: Query, floor: Seq) -> Result<usize> {
        match look {
            Query::Read | Query::ReadAboveFloor => {
                let shards = self.shards.iter();
                let shards = shards.map(|shard| ShardRead { shard: *shard, floor }).collect();
                Ok(self
                    .store
                    .read(&Read { shards, limit: BATCH, budget: Budget::unlimited() })
                    .await?
                    .len())
            }
            Query::Claim(order) => self.claim_and_release(order).await,
            Query::ClaimOnce => {
                let mut claimer = self.claimer(Order::Key);
                claimer.request.limit = DUE;
                Ok(claimer.claim().await?.len())
            }
        }
    }

    fn claimer(&self, order: Order) -> Claimer {
        Claimer::new(Arc::clone(&self.store), self.shards.clone(), order)
    }

    async fn claim_and_release(&self, order: Order) -> Result<usize> {
        let mut claimer = self.claimer(order);
        let rows = claimer.claim().await?;
        let leases: Vec<RowLease> = rows.iter().map(RowLease::from).collect();
        let released = self.store.release_rows(&claimer.request.owner, &leases).await?;
        if released != u64::try_from(leases.len())? {
            return Err(format!("{released} rows released of {}", leases.len()).into());
        }
        Ok(rows.len())
    }
}

async fn case<D: Database>(
    bench: &mut Bench<'_, D>,
    database: &D,
    [obstructed, clean]: &[Side; 2],
    look: Query,
    obstacle: Obstacle,
) -> Result {
    let name = name(look, obstacle);
    if !bench.wants(&name) {
        return Ok(());
    }
    let looks = if look == Query::ClaimOnce { 1 } else { bench.scale().looks };
    let samples = alternate(bench.scale().rounds, &[obstructed, clean], async |side| {
        let floor = match (look, obstacle) {
            (Query::ReadAboveFloor, Obstacle::Deleted(count)) => {
                Seq(if side.prefix == OBSTRUCTED { count.into() } else { 1 })
            }
            _ => Seq::START,
        };
        if look != Query::ClaimOnce {
            database.analyze_table(side.prefix).await?;
        }
        sample(database, side, look, floor, looks).await
    })
    .await?;
    let [obstructed, clean] = &samples[..] else { return Err("a way is missing".into()) };
    let goal = match (look, obstacle) {
        (_, Obstacle::Done(_)) => Some(Goal::AtMost(1.5)),
        (Query::ReadAboveFloor | Query::ClaimOnce, Obstacle::Deleted(_)) => Some(Goal::AtMost(2.0)),
        (Query::Claim(Order::Key), Obstacle::OneKey(_)) => Some(Goal::AtMost(1.5)),
        _ => None,
    };
    let against = "the same on a table with nothing in the way";
    let case = Case { name: &name, unit: Unit::Micros, against, goal };
    let figure = bench.figure(case, obstructed, clean)?;
    bench.report(figure);
    Ok(())
}

async fn sample<D: Database>(
    database: &D,
    side: &Side,
    look: Query,
    floor: Seq,
    looks: u32,
) -> Result<Sample> {
    let work = async {
        for _ in 0..looks {
            // A key's obstacle shows its head, or fills the batch up where order does not matter.
            let found = u32::try_from(side.look(look, floor).await?)?;
            if !(DUE..=BATCH).contains(&found) {
                return Err(format!("{found} rows found, {DUE} to {BATCH} expected").into());
            }
        }
        Ok(looks.into())
    };
    measure(database, work).await
}
