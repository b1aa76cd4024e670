//! A drain beside a transaction that stays open: what was deleted stays where reads pass by.

use crate::{
    Result,
    baseline::{BASELINE, Database, OURS, Prefix, SettleMode, fill},
    case::{Bench, Case, drain_by_hand},
    figure::{Goal, Unit},
    measure::{Sample, alternate, measure},
    relays::{Listen, Relays},
};

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Beside,
    Alone,
    /// The loop by hand, beside one as well.
    Hand,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let backlog = bench.scale().delivered;
    let name = format!("relay drains {backlog} beside an idle transaction");
    if !bench.wants(&name) || bench.database.hold_snapshot().await?.is_none() {
        return Ok(());
    }
    let database = &bench.database.workers(4).await?;
    database.empty(OURS).await?;
    let relays = Relays::start(database, OURS, 1, SettleMode::Delete, Listen::Count).await?;
    let ways = [Way::Beside, Way::Alone, Way::Hand];
    let samples = alternate(bench.scale().rounds.min(3), &ways, async |way| {
        drain(database, &relays, way, backlog).await
    })
    .await;
    relays.stop().await?;
    let samples = samples?;
    let [beside, alone, hand] = &samples[..] else { return Err("a way is missing".into()) };
    let against = "the same relay without that transaction";
    let goal = Some(Goal::AtLeast(0.5));
    let case = Case { name: &name, unit: Unit::Events, against, goal };
    let by_hand = "a loop by hand beside such a transaction";
    let figure = bench.figure(case, beside, alone)?.peer(by_hand, beside, hand, None);
    bench.report(figure);
    Ok(())
}

async fn drain<D: Database>(
    database: &D,
    relays: &Relays,
    way: Way,
    backlog: u32,
) -> Result<Sample> {
    let prefix: Prefix = if way == Way::Hand { BASELINE } else { OURS };
    fill(database, prefix, backlog).await?;
    let _held = if way == Way::Alone { None } else { database.hold_snapshot().await? };
    let sample = match way {
        Way::Hand => drain_by_hand(database, 1, SettleMode::Delete).await?,
        Way::Beside | Way::Alone => {
            measure(database, relays.drain(database, backlog.into())).await?
        }
    };
    let left = database.count(prefix, 0).await?;
    if sample.count != u64::from(backlog) || left != 0 {
        return Err(format!("of {backlog} events {}, {left} left", sample.count).into());
    }
    Ok(sample)
}
