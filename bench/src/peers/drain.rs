//! A backlog drained by one relay, by two, by hand, by the design this one began with, and by peers.

use std::time::Duration;

use super::field::Field;
use super::list::{PEERS, Peer};
use super::turns::{self, Samples, alternate, beside, taken};
use crate::{
    Result,
    baseline::{BASELINE, Database, OURS, Prefix, SettleMode, fill, postgres::PostgresBench},
    case::{Bench, Case, loops_by_hand},
    figure::{Figure, Goal, Unit},
    measure::{Sample, metered},
    relays::{Listen, Relays},
};

/// The tables of the two relays, beside those of the one.
const PAIR: Prefix = "pair_";
/// The one we began with would take minutes.
const SEED_TIME: Duration = Duration::from_secs(3);

#[derive(Clone, Copy)]
enum Way {
    Relays(usize),
    Loops(usize),
    Seed,
    /// One of them, and the backlog that its name is about.
    Peer(&'static Peer, u32),
}

pub(super) async fn run(bench: &mut Bench<'_, PostgresBench>, field: &Field) -> Result {
    let backlog = bench.scale().shared;
    let names = [1, 2].map(|relays| name(relays, backlog));
    if !names.iter().any(|name| bench.wants(name)) {
        return Ok(());
    }
    let database = &bench.database.workers(8).await?;
    database.store(PAIR)?.migrate().await?;
    let listen = Listen::Read(backlog);
    let one = Relays::start(database, OURS, 1, SettleMode::Delete, listen).await?;
    let two = Relays::start(database, PAIR, 2, SettleMode::Delete, listen).await?;
    let race = Race { database, field, one, two };
    let ways = ways(backlog);
    // The round that warms up is a small one: most of the time is others' to fill and to start.
    let samples = alternate(bench.scale().rounds.min(3), &ways, async |round, way| {
        race.turn(way, if round == 0 { backlog / 10 } else { backlog }).await
    })
    .await;
    race.stop().await?;
    let samples = samples?;
    for (place, relays) in [1, 2].into_iter().enumerate() {
        let own = [&samples[place], &samples[place + 2]];
        let figure = figure(bench, relays, own, &samples[4..])?;
        bench.report(figure);
    }
    Ok(())
}

/// Relays, loops by hand, the design we began with, and then the peers.
fn ways(backlog: u32) -> Vec<Way> {
    let own = [Way::Relays(1), Way::Relays(2), Way::Loops(1), Way::Loops(2), Way::Seed];
    let peers = PEERS.iter().map(|peer| Way::Peer(peer, backlog));
    own.into_iter().chain(peers).collect()
}

fn name(relays: usize, backlog: u32) -> String {
    let who = if relays == 1 { "1 relay drains" } else { "2 relays drain" };
    format!("{who} {backlog} beside other systems")
}

fn figure(
    bench: &Bench<'_, PostgresBench>,
    relays: usize,
    [ours, hand]: [&Samples; 2],
    others: &[Samples],
) -> Result<Figure> {
    let backlog = bench.scale().shared;
    let name = name(relays, backlog);
    let case = Case {
        name: &name,
        unit: Unit::Events,
        against: "a loop for each relay with hand-written statements: read a page, settle it",
        goal: Some(Goal::AtLeast(0.6)),
    };
    let ours = taken(ours)?;
    let mut figure = bench.figure(case, ours, taken(hand)?)?;
    let seed = "lease by row, batches of 50, an update for each, 4 workers, 3 s".to_owned();
    let peers = PEERS.iter().map(|peer| (peer.label(backlog), peer.goal()));
    for ((label, goal), samples) in [(seed, None)].into_iter().chain(peers).zip(others) {
        let goal = goal.filter(|_| relays == 2);
        figure = beside(figure, &label, ours, samples, goal);
    }
    Ok(figure)
}

/// Everybody who takes part.
struct Race<'a> {
    database: &'a PostgresBench,
    field: &'a Field,
    one: Relays,
    two: Relays,
}

impl Race<'_> {
    async fn turn(&self, way: Way, backlog: u32) -> Result<Sample> {
        match way {
            Way::Relays(1) => self.relays(&self.one, OURS, backlog).await,
            Way::Relays(_) => self.relays(&self.two, PAIR, backlog).await,
            Way::Loops(loops) => self.loops(loops, backlog).await,
            Way::Seed => {
                self.database.fill_seed(backlog).await?;
                self.meter(self.database.drain_seed(SEED_TIME)).await
            }
            Way::Peer(peer, _) => {
                let count = peer.count(backlog).max(10);
                self.field.fill(peer, count).await?;
                self.field.drain(self.database, peer, count).await
            }
        }
    }

    async fn relays(&self, relays: &Relays, prefix: Prefix, backlog: u32) -> Result<Sample> {
        fill(self.database, prefix, backlog).await?;
        self.meter(relays.drain(self.database, backlog.into())).await
    }

    async fn loops(&self, loops: usize, backlog: u32) -> Result<Sample> {
        fill(self.database, BASELINE, backlog).await?;
        let loops = loops_by_hand(self.database, loops, SettleMode::Delete).await?;
        let sample = self.meter(loops).await?;
        let left = self.database.count(BASELINE, 0).await?;
        if sample.count != u64::from(backlog) || left != 0 {
            return Err(format!("of {backlog} events {}, {left} left", sample.count).into());
        }
        Ok(sample)
    }

    /// The same meter for everybody: the whole server, whoever it works for.
    async fn meter(&self, work: impl Future<Output = Result<u64>>) -> Result<Sample> {
        metered(async || self.database.used_by_all().await, work).await
    }

    async fn stop(self) -> Result {
        self.one.stop().await?;
        self.two.stop().await
    }
}

impl turns::Way for Way {
    fn label(&self) -> String {
        match self {
            Self::Relays(relays) => format!("relays: {relays}"),
            Self::Loops(loops) => format!("loops by hand: {loops}"),
            Self::Seed => "lease by row, batches of 50".to_owned(),
            Self::Peer(peer, backlog) => peer.label(*backlog),
        }
    }

    fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(..))
    }
}
