//! A backlog read by its shards' owners and settled, without a relay.

use std::{collections::HashMap, sync::Arc, time::Duration};

use pillarbox::store::{
    AcquireShards, Budget, DeliveryMode, Join, Lease, Pending, Read, Settle, Settlement, ShardRead,
};
use pillarbox::{Epoch, OwnerId, Seq, ShardId, Store};

use crate::{
    Result,
    baseline::{BASELINE, BATCH, Database, OURS, SettleMode, fill},
    case::{Bench, Case, drain_by_hand, parts},
    figure::{Goal, Unit},
    measure::{Sample, alternate, measure, side_by_side},
};

/// Longer than any round.
const LEASE: Duration = Duration::from_secs(600);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Baseline,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for readers in D::READERS {
        case(bench, *readers, SettleMode::Delete).await?;
    }
    for readers in D::READERS {
        case(bench, *readers, SettleMode::Mark).await?;
    }
    Ok(())
}

async fn case<D: Database>(bench: &mut Bench<'_, D>, readers: usize, mode: SettleMode) -> Result {
    let settled = if mode == SettleMode::Delete { "deleted" } else { "marked" };
    let name = format!("drain, {settled}, readers: {readers}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let database = &bench.database.workers(readers).await?;
    let backlog = bench.scale().backlog;
    let store = database.store(OURS)?;
    let samples = alternate(bench.scale().rounds, &[Way::Ours, Way::Baseline], async |way| {
        let prefix = if way == Way::Ours { OURS } else { BASELINE };
        fill(database, prefix, backlog).await?;
        let sample = match way {
            Way::Ours => ours(database, &store, readers, mode).await?,
            Way::Baseline => drain_by_hand(database, readers, mode).await?,
        };
        let left = database.count(prefix, 0).await?;
        let done = database.count(prefix, 1).await?;
        let kept = if mode == SettleMode::Delete { 0 } else { u64::from(backlog) };
        if sample.count != u64::from(backlog) || left != 0 || done != kept {
            let count = sample.count;
            return Err(
                format!("of {backlog} events {count} drained, {left} left, {done} done").into()
            );
        }
        Ok(sample)
    })
    .await?;
    let [ours, baseline] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name: &name,
        unit: Unit::Events,
        against: "the same loop with hand-written statements, no fence and no token",
        goal: Some(Goal::AtLeast(0.8)),
    };
    let figure = bench.figure(case, ours, baseline)?;
    bench.report(figure);
    Ok(())
}

async fn ours<D: Database>(
    database: &D,
    store: &Arc<dyn Store>,
    readers: usize,
    mode: SettleMode,
) -> Result<Sample> {
    let mut owners = Vec::new();
    for part in parts(store, readers).await? {
        owners.push(Owner::enter(store, part.len()).await?);
    }
    let drains = owners.clone().into_iter().map(|owner| owner.drain(mode));
    let sample = measure(database, side_by_side(drains)).await?;
    for owner in owners {
        store.leave(&owner.id).await?;
    }
    Ok(sample)
}

/// A reader with its shards, as a relay is one.
#[derive(Clone)]
struct Owner {
    store: Arc<dyn Store>,
    id: OwnerId,
    holdings: HashMap<ShardId, Epoch>,
}

impl Owner {
    async fn enter(store: &Arc<dyn Store>, shards: usize) -> Result<Self> {
        let (id, most) = (OwnerId::generate(), u16::try_from(shards)?);
        let lease = Lease { owner: id.clone(), length: LEASE, wants: most };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await?;
        let taken = store
            .acquire_shards(&AcquireShards { owner: id.clone(), most, owned: Vec::new() })
            .await?;
        if taken.len() != shards {
            return Err(format!("{} shards taken instead of {shards}", taken.len()).into());
        }
        let holdings = taken.iter().map(|holding| (holding.shard, holding.epoch)).collect();
        Ok(Self { store: Arc::clone(store), id, holdings })
    }

    async fn drain(self, mode: SettleMode) -> Result<u64> {
        let limit = BATCH / u32::try_from(self.holdings.len())?;
        let floor = Seq::START;
        let shards = self.holdings.keys().map(|shard| ShardRead { shard: *shard, floor }).collect();
        let read = Read { shards, limit, budget: Budget::unlimited() };
        let mut drained = 0;
        loop {
            let page = self.store.read(&read).await?;
            if page.is_empty() {
                return Ok(drained);
            }
            let settled = self.store.settle(&self.settle(&page, mode)?).await?;
            drained += u64::try_from(settled.applied.len())?;
        }
    }

    fn settle(&self, page: &[Pending], mode: SettleMode) -> Result<Settle> {
        let settlement = |row: &Pending| {
            let epoch = *self.holdings.get(&row.shard).ok_or("a row of another's shard")?;
            Ok(Settlement {
                shard: row.shard,
                epoch,
                seq: row.seq,
                token: row.token,
                verdict: mode.verdict(),
                settled_by: Some("order.placed".to_owned()),
            })
        };
        let settlements = page.iter().map(settlement).collect::<Result<_>>()?;
        Ok(Settle { owner: self.id.clone(), settlements })
    }
}
