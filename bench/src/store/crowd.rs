//! What rows in the way cost those who look for due ones: done rows, dead rows, a blocked key.

use std::sync::Arc;

use pillarbox::store::{Budget, Order, Read, RowLease, ShardRead};
use pillarbox::{Seq, ShardId, Store};

use super::claim::Claimer;
use crate::{
    Result,
    bare::{BATCH, Database, Held, Load, Prefix},
    case::{Bench, Case, shards},
    event::KEYS,
    figure::{Goal, Unit},
    round::{Sample, by_turns, measure},
};

/// The tables with nothing in the way.
const CLEAN: Prefix = "clean_";
/// The tables with a crowd.
const CROWDED: Prefix = "crowded_";

/// Due rows, of a key each: fewer than a batch, so that a look goes to the end.
const DUE: u32 = 900;

/// What is in the way.
#[derive(Clone, Copy, PartialEq)]
enum Crowd {
    Done(u32),
    /// Under a snapshot that somebody holds.
    Deleted(u32),
    OneKey(u32),
}

/// Who looks.
#[derive(Clone, Copy, PartialEq)]
enum Look {
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
    crowd(bench, Crowd::Done(scale.kept), &[Look::Read, Look::Claim(Order::Key)]).await?;
    crowd(bench, Crowd::Deleted(scale.dead), &[Look::ReadAboveFloor, Look::Read]).await?;
    crowd(bench, Crowd::Deleted(scale.dead), &[Look::ClaimOnce]).await?;
    let looks = [Look::Claim(Order::Key), Look::Claim(Order::None)];
    crowd(bench, Crowd::OneKey(scale.claimed), &looks).await
}

async fn crowd<D: Database>(bench: &mut Bench<'_, D>, crowd: Crowd, looks: &[Look]) -> Result {
    if !looks.iter().any(|look| bench.wants(&name(*look, crowd))) {
        return Ok(());
    }
    let database = bench.database.workers(1).await?;
    let rounds = if looks == [Look::ClaimOnce] { bench.scale().rounds } else { 0 };
    let due = DUE * u32::try_from(rounds + 1)?;
    let Some(_held) = lay_out(&database, crowd, due).await? else { return Ok(()) };
    let sides = [Side::of(&database, CROWDED).await?, Side::of(&database, CLEAN).await?];
    for look in looks {
        case(bench, &database, &sides, *look, crowd).await?;
    }
    database.empty(CROWDED).await
}

fn name(look: Look, crowd: Crowd) -> String {
    let crowd = match crowd {
        Crowd::Done(count) => format!("beside {count} done rows"),
        Crowd::Deleted(count) => format!("behind {count} deleted rows under a held snapshot"),
        Crowd::OneKey(count) => format!("beside a key with {count} events"),
    };
    let look = match look {
        Look::Read => "read",
        Look::ReadAboveFloor => "read above a floor",
        Look::Claim(Order::Key) => "claim in order of key, and release,",
        Look::Claim(Order::None) => "claim in any order, and release,",
        Look::ClaimOnce => "claim in order of key",
    };
    format!("{look} {crowd}")
}

/// Both tables with the same due rows, one of them with the crowd in front; `None` where there is
/// no such crowd.
async fn lay_out<D: Database>(database: &D, crowd: Crowd, due: u32) -> Result<Option<Held>> {
    for prefix in [CLEAN, CROWDED] {
        database.store(prefix)?.migrate().await?;
        database.empty(prefix).await?;
    }
    let (count, keys, status) = match crowd {
        Crowd::Done(count) => (count, KEYS, 1),
        Crowd::Deleted(count) => (count, KEYS, 0),
        Crowd::OneKey(count) => (count, 1, 0),
    };
    database.load(CROWDED, Load { first: 1, count, keys, status }).await?;
    let mut held: Option<Held> = Some(Box::new(()));
    if matches!(crowd, Crowd::Deleted(_)) {
        // The other one has a floor to stand on, too.
        database.load(CLEAN, Load { first: 1, count: 1, keys, status }).await?;
        database.delete(CLEAN).await?;
        held = database.hold().await?;
        database.delete(CROWDED).await?;
    }
    for prefix in [CLEAN, CROWDED] {
        let load = Load { first: count + 1, count: due, keys: u32::MAX >> 1, status: 0 };
        database.load(prefix, load).await?;
        database.tidy(prefix).await?;
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

    async fn look(&self, look: Look, floor: Seq) -> Result<usize> {
        match look {
            Look::Read | Look::ReadAboveFloor => {
                let shards = self.shards.iter();
                let shards = shards.map(|shard| ShardRead { shard: *shard, floor }).collect();
                Ok(self
                    .store
                    .read(&Read { shards, limit: BATCH, budget: Budget::unlimited() })
                    .await?
                    .len())
            }
            Look::Claim(order) => self.claim_and_release(order).await,
            Look::ClaimOnce => {
                let mut claimer = self.claimer(Order::Key);
                claimer.wish.limit = DUE;
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
        let released = self.store.release_rows(&claimer.wish.owner, &leases).await?;
        if released != u64::try_from(leases.len())? {
            return Err(format!("{released} rows released of {}", leases.len()).into());
        }
        Ok(rows.len())
    }
}

async fn case<D: Database>(
    bench: &mut Bench<'_, D>,
    database: &D,
    [crowded, clean]: &[Side; 2],
    look: Look,
    crowd: Crowd,
) -> Result {
    let name = name(look, crowd);
    if !bench.wants(&name) {
        return Ok(());
    }
    let looks = if look == Look::ClaimOnce { 1 } else { bench.scale().looks };
    let samples = by_turns(bench.scale().rounds, &[crowded, clean], async |side| {
        let floor = match (look, crowd) {
            (Look::ReadAboveFloor, Crowd::Deleted(count)) => {
                Seq(if side.prefix == CROWDED { count.into() } else { 1 })
            }
            _ => Seq::START,
        };
        if look != Look::ClaimOnce {
            database.tidy(side.prefix).await?;
        }
        sample(database, side, look, floor, looks).await
    })
    .await?;
    let [crowded, clean] = &samples[..] else { return Err("a way is missing".into()) };
    let goal = match (look, crowd) {
        (_, Crowd::Done(_)) => Some(Goal::AtMost(1.5)),
        (Look::ReadAboveFloor | Look::ClaimOnce, Crowd::Deleted(_)) => Some(Goal::AtMost(2.0)),
        (Look::Claim(Order::Key), Crowd::OneKey(_)) => Some(Goal::AtMost(1.5)),
        _ => None,
    };
    let against = "the same on a table with nothing in the way";
    let case = Case { name: &name, unit: Unit::Micros, against, goal };
    let figure = bench.figure(case, crowded, clean)?;
    bench.report(figure);
    Ok(())
}

async fn sample<D: Database>(
    database: &D,
    side: &Side,
    look: Look,
    floor: Seq,
    looks: u32,
) -> Result<Sample> {
    let work = async {
        for _ in 0..looks {
            // A key's crowd shows its head, or fills the batch up where order does not matter.
            let found = u32::try_from(side.look(look, floor).await?)?;
            if !(DUE..=BATCH).contains(&found) {
                return Err(format!("{found} rows found, {DUE} to {BATCH} expected").into());
            }
        }
        Ok(looks.into())
    };
    measure(database, work).await
}
