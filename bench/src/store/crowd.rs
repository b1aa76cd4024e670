//! What rows in the way cost those who look for due ones: done rows, dead rows, a blocked key.

use pillarbox::store::{Order, Read, RowLease, ShardRead};
use pillarbox::{OwnerId, Seq};

use super::{Bench, Case, claim::Claimer, shards};
use crate::{
    Result,
    bare::{BATCH, Database, Held, Load, Prefix},
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
/// Looks of one round.
const LOOKS: u32 = 10;

/// What is in the way.
#[derive(Clone, Copy, PartialEq)]
enum Crowd {
    Done,
    Deleted,
    OneKey,
}

/// Who looks.
#[derive(Clone, Copy, PartialEq)]
enum Look {
    Read,
    /// Above the floor that a relay would have.
    ReadAboveFloor,
    Claim(Order),
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let scale = *bench.scale();
    let looks = [Look::Read, Look::Claim(Order::Key)];
    crowd(bench, Crowd::Done, scale.kept, &looks).await?;
    let looks = [Look::ReadAboveFloor, Look::Read, Look::Claim(Order::Key)];
    crowd(bench, Crowd::Deleted, scale.dead, &looks).await?;
    let looks = [Look::Claim(Order::Key), Look::Claim(Order::None)];
    crowd(bench, Crowd::OneKey, scale.backlog, &looks).await
}

async fn crowd<D: Database>(
    bench: &mut Bench<'_, D>,
    crowd: Crowd,
    count: u32,
    looks: &[Look],
) -> Result {
    if !looks.iter().any(|look| bench.wants(&name(*look, crowd, count))) {
        return Ok(());
    }
    let database = bench.database.workers(1).await?;
    let Some(_held) = lay_out(&database, crowd, count).await? else { return Ok(()) };
    for look in looks {
        case(bench, &database, *look, crowd, count).await?;
    }
    database.empty(CROWDED).await
}

fn name(look: Look, crowd: Crowd, count: u32) -> String {
    let crowd = match crowd {
        Crowd::Done => format!("beside {count} done rows"),
        Crowd::Deleted => format!("behind {count} deleted rows under a held snapshot"),
        Crowd::OneKey => format!("beside a key with {count} events"),
    };
    let look = match look {
        Look::Read => "read",
        Look::ReadAboveFloor => "read above a floor",
        Look::Claim(Order::Key) => "claim in order of key, and release,",
        Look::Claim(Order::None) => "claim in any order, and release,",
    };
    format!("{look} {crowd}")
}

/// Both tables with the same due rows, one of them with the crowd in front; `None` where there is
/// no such crowd.
async fn lay_out<D: Database>(database: &D, crowd: Crowd, count: u32) -> Result<Option<Held>> {
    for prefix in [CLEAN, CROWDED] {
        database.store(prefix)?.migrate().await?;
        database.empty(prefix).await?;
    }
    let (keys, status) = match crowd {
        Crowd::Done => (KEYS, 1),
        Crowd::Deleted => (KEYS, 0),
        Crowd::OneKey => (1, 0),
    };
    database.load(CROWDED, Load { first: 1, count, keys, status }).await?;
    let mut held: Option<Held> = Some(Box::new(()));
    if crowd == Crowd::Deleted {
        held = database.hold().await?;
        database.delete(CROWDED).await?;
    }
    for prefix in [CLEAN, CROWDED] {
        let due = Load { first: count + 1, count: DUE, keys: u32::MAX >> 1, status: 0 };
        database.load(prefix, due).await?;
        database.tidy(prefix).await?;
    }
    Ok(held)
}

async fn case<D: Database>(
    bench: &mut Bench<'_, D>,
    database: &D,
    look: Look,
    crowd: Crowd,
    count: u32,
) -> Result {
    let name = name(look, crowd, count);
    if !bench.wants(&name) {
        return Ok(());
    }
    let samples = by_turns(bench.scale().rounds, &[CROWDED, CLEAN], async |prefix| {
        let floor = match (look, prefix) {
            (Look::ReadAboveFloor, CROWDED) => Seq(count.into()),
            _ => Seq::START,
        };
        database.tidy(prefix).await?;
        // Any order finds the crowd's rows too, up to a batch.
        let most = if look == Look::Claim(Order::None) && crowd == Crowd::OneKey {
            BATCH
        } else {
            DUE + 1
        };
        sample(database, prefix, look, floor, most).await
    })
    .await?;
    let [crowded, clean] = &samples[..] else { return Err("a way is missing".into()) };
    let goal = match (look, crowd) {
        (_, Crowd::Done) => Some(Goal::AtMost(1.5)),
        (Look::ReadAboveFloor, Crowd::Deleted) => Some(Goal::AtMost(2.0)),
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
    prefix: Prefix,
    look: Look,
    floor: Seq,
    most: u32,
) -> Result<Sample> {
    let store = database.store(prefix)?;
    let shards = shards(&store).await?;
    let wanted = shards.iter().map(|shard| ShardRead { shard: *shard, floor }).collect();
    let read = Read { shards: wanted, limit: BATCH };
    let claimer = Claimer { store, owner: OwnerId::generate(), shards };
    let looks = async {
        for _ in 0..LOOKS {
            let found = match look {
                Look::Read | Look::ReadAboveFloor => claimer.store.read(&read).await?.len(),
                Look::Claim(order) => claim_and_release(&claimer, order).await?,
            };
            if found < DUE as usize || found > most as usize {
                return Err(format!("{found} rows found, {DUE} to {most} expected").into());
            }
        }
        Ok(LOOKS.into())
    };
    measure(database, looks).await
}

async fn claim_and_release(claimer: &Claimer, order: Order) -> Result<usize> {
    let rows = claimer.claim(order).await?;
    let leases: Vec<RowLease> = rows.iter().map(RowLease::from).collect();
    let released = claimer.store.release_rows(&claimer.owner, &leases).await?;
    if released != u64::try_from(leases.len())? {
        return Err(format!("{released} rows released of {}", leases.len()).into());
    }
    Ok(rows.len())
}
