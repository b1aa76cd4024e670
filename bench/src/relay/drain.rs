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
    case::{Bench, Case, drain_by_hand},
    event::KEYS,
    figure::{Goal, Unit},
    round::{by_turns, measure, now},
};

/// A drain that takes longer has stopped.
const PATIENCE: Duration = Duration::from_secs(300);

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
    let ours = Relays::start(database, relays, ending).await?;
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

/// Relays that have shared the shards, and look at the table when they are told to.
struct Relays {
    heard: Arc<AtomicU64>,
    handles: Vec<RelayHandle>,
}

impl Relays {
    async fn start<D: Database>(database: &D, count: usize, ending: Ending) -> Result<Self> {
        let store = database.store(OURS)?;
        let heard = Arc::new(AtomicU64::new(0));
        let mut handles = Vec::new();
        for _ in 0..count {
            handles.push(start(&store, &heard, ending).await?);
        }
        let begun = now();
        while !is_shared(&store, count).await? {
            if begun.elapsed() > PATIENCE {
                return Err("the relays do not share the shards".into());
            }
            sleep(Duration::from_millis(20)).await;
        }
        Ok(Self { heard, handles })
    }

    /// From the wake to the last settle.
    async fn drain<D: Database>(&self, database: &D, backlog: u64) -> Result<u64> {
        let begun = now();
        self.heard.store(0, Ordering::Relaxed);
        self.handles.iter().for_each(RelayHandle::wake);
        while self.heard.load(Ordering::Relaxed) < backlog || database.count(OURS, 0).await? > 0 {
            if begun.elapsed() > PATIENCE {
                return Err(format!("{} events heard", self.heard.load(Ordering::Relaxed)).into());
            }
            sleep(Duration::from_millis(1)).await;
        }
        Ok(self.heard.load(Ordering::Relaxed))
    }

    async fn stop(self) -> Result {
        for handle in self.handles {
            handle.stop().await?;
        }
        Ok(())
    }
}

/// Whether every shard is held, and nobody has more than one above its share.
async fn is_shared(store: &Arc<dyn Store>, relays: usize) -> Result<bool> {
    let shards = usize::from(store.layout().await?.shards.get());
    let held: Vec<usize> =
        store.members().await?.iter().map(|member| usize::from(member.held)).collect();
    let share = shards.div_ceil(relays);
    Ok(held.iter().sum::<usize>() == shards && held.iter().all(|held| *held <= share))
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
    let hour = Duration::from_secs(3600);
    let mut settings = RelaySettings { poll: hour, sweep: hour, ..RelaySettings::default() };
    if ending == Ending::Delete {
        settings.retention_done = Duration::ZERO;
    }
    Ok(Relay::shared(Arc::clone(store), listeners).settings(settings).spawn().await?)
}
