//! A backlog delivered by relays to a listener that does nothing.

use crate::{
    Result,
    bare::{BARE, Database, Ending, OURS, fill_keys},
    case::{Bench, Case, drain_by_hand},
    event::KEYS,
    figure::{Goal, Unit},
    relays::{Listen, Relays},
    round::{by_turns, measure},
};

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Bare,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for relays in D::READERS {
        for (keys, keyed) in [(KEYS, "10 000 keys"), (0, "no keys")] {
            for ending in [Ending::Delete, Ending::Mark] {
                let settled = if ending == Ending::Delete { "deleted" } else { "marked" };
                let who = if *relays == 1 { "relay drains" } else { "2 relays drain" };
                let name = format!("{who} {}, {keyed}, {settled}", bench.scale().delivered);
                if bench.wants(&name) {
                    case(bench, &name, *relays, keys, ending).await?;
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
    ending: Ending,
) -> Result {
    let (backlog, rounds) = (bench.scale().delivered, bench.scale().rounds);
    let database = &bench.database.workers(4 * relays).await?;
    database.empty(OURS).await?;
    let ours = Relays::start(database, OURS, relays, ending, Listen::Count).await?;
    let samples = by_turns(rounds, &[Way::Ours, Way::Bare], async |way| {
        let prefix = if way == Way::Ours { OURS } else { BARE };
        fill_keys(database, prefix, backlog, keys).await?;
        let sample = match way {
            Way::Ours => measure(database, ours.drain(database, backlog.into())).await?,
            Way::Bare => drain_by_hand(database, relays, ending).await?,
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
    let [ours, bare] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name,
        unit: Unit::Events,
        against: "a loop for each relay with hand-written statements: read a page, settle it",
        goal: Some(Goal::AtLeast(0.6)),
    };
    let figure = bench.figure(case, ours, bare)?;
    bench.report(figure);
    Ok(())
}
