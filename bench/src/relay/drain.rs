//! A backlog delivered by relays to a listener that does nothing.

use crate::{
    Result,
    baseline::{BASELINE, Database, OURS, SettleMode, fill_keys},
    case::{Bench, Case, drain_by_hand},
    event::KEYS,
    figure::{Goal, Unit},
    measure::{alternate, measure},
    relays::{Listen, Relays},
};

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Baseline,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for relays in D::READERS {
        for (keys, keyed) in [(KEYS, "10 000 keys"), (0, "no keys")] {
            for mode in [SettleMode::Delete, SettleMode::Mark] {
                let settled = if mode == SettleMode::Delete { "deleted" } else { "marked" };
                let who = if *relays == 1 { "relay drains" } else { "2 relays drain" };
                let name = format!("{who} {}, {keyed}, {settled}", bench.scale().delivered);
                if bench.wants(&name) {
                    case(bench, &name, *relays, keys, mode).await?;
                }
            }
        }
    }
    Ok(())
}

async fn case<D: Database>(
    bench: &mut Bench<'_, D>,
    name: &str,
    relays: usize,
    keys: u32,
    mode: SettleMode,
) -> Result {
    let (backlog, rounds) = (bench.scale().delivered, bench.scale().rounds);
    let database = &bench.database.workers(4 * relays).await?;
    database.empty(OURS).await?;
    let ours = Relays::start(database, OURS, relays, mode, Listen::Count).await?;
    let samples = alternate(rounds, &[Way::Ours, Way::Baseline], async |way| {
        let prefix = if way == Way::Ours { OURS } else { BASELINE };
        fill_keys(database, prefix, backlog, keys).await?;
        let sample = match way {
            Way::Ours => measure(database, ours.drain(database, backlog.into())).await?,
            Way::Baseline => drain_by_hand(database, relays, mode).await?,
        };
        let left = database.count(prefix, 0).await?;
        if sample.count != u64::from(backlog) || left != 0 {
            return Err(format!("of {backlog} events {}, {left} left", sample.count).into());
        }
        Ok(sample)
    })
    .await;
    ours.stop().await?;
    let samples = samples?;
    let [ours, baseline] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name,
        unit: Unit::Events,
        against: "a loop for each relay with hand-written statements: read a page, settle it",
        goal: Some(Goal::AtLeast(0.6)),
    };
    let figure = bench.figure(case, ours, baseline)?;
    bench.report(figure);
    Ok(())
}
