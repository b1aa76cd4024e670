//! A backlog delivered by relays to a listener that does nothing.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use pillarbox::{Cx, Envelope, Failure, Listeners, Relay, RelayHandle, RelaySettings, Store};
use tokio::time::sleep;

use crate::{
    Result,
    bare::{BARE, Database, Ending, OURS, fill_keys},
    case::{Bench, Case, shards},
    event::KEYS,
    figure::{Goal, Unit},
    round::{Sample, by_turns, measure, now},
};

/// A drain that takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(300);

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Bare,
}

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for (keys, keyed) in [(KEYS, "10 000 keys"), (0, "no keys")] {
        for ending in [Ending::Delete, Ending::Mark] {
            case(bench, keys, keyed, ending).await?;
        }
    }
    Ok(())
}

async fn case<D: Database>(
    bench: &mut Bench<'_, D>,
    keys: u32,
    keyed: &str,
    ending: Ending,
) -> Result {
    let settled = if ending == Ending::Delete { "deleted" } else { "marked" };
    let backlog = bench.scale().delivered;
    let name = format!("relay drains {backlog}, {keyed}, {settled}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let database = &bench.database.workers(4).await?;
    let store = database.store(OURS)?;
    let samples = by_turns(bench.scale().rounds, &[Way::Ours, Way::Bare], async |way| {
        let prefix = if way == Way::Ours { OURS } else { BARE };
        fill_keys(database, prefix, backlog, keys).await?;
        let sample = match way {
            Way::Ours => ours(database, &store, backlog.into(), ending).await?,
            Way::Bare => {
                let shards = shards(&store).await?;
                measure(database, database.drain(shards, ending)).await?
            }
        };
        let left = database.count(prefix, 0).await?;
        if sample.count != u64::from(backlog) || left != 0 {
            return Err(format!("of {backlog} events {}, {left} left", sample.count).into());
        }
        Ok(sample)
    })
    .await?;
    let [ours, bare] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name: &name,
        unit: Unit::Events,
        against: "one loop with hand-written statements: read a page, settle it",
        goal: Some(Goal::AtLeast(0.6)),
    };
    let figure = bench.figure(case, ours, bare)?;
    bench.report(figure);
    Ok(())
}

/// From the start of the relay to the last settle.
async fn ours<D: Database>(
    database: &D,
    store: &Arc<dyn Store>,
    backlog: u64,
    ending: Ending,
) -> Result<Sample> {
    let heard = Arc::new(AtomicU64::new(0));
    measure(database, async {
        let handle = start(store, &heard, ending).await?;
        let begun = now();
        while heard.load(Ordering::Relaxed) < backlog {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} events heard", heard.load(Ordering::Relaxed)).into());
            }
            sleep(Duration::from_millis(1)).await;
        }
        handle.stop().await?;
        Ok(heard.load(Ordering::Relaxed))
    })
    .await
}

async fn start(
    store: &Arc<dyn Store>,
    heard: &Arc<AtomicU64>,
    ending: Ending,
) -> Result<RelayHandle> {
    let heard = Arc::clone(heard);
    let listeners = Listeners::new().fallback(move |_: Envelope, _: Cx| {
        heard.fetch_add(1, Ordering::Relaxed);
        async { Ok::<(), Failure>(()) }
    });
    let mut settings = RelaySettings::default();
    if ending == Ending::Delete {
        settings.retention_done = Duration::ZERO;
    }
    Ok(Relay::shared(Arc::clone(store), listeners).settings(settings).spawn().await?)
}
