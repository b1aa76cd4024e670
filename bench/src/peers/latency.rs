//! How long after the answer to its commit an event reaches a handler that shares nothing with the writer
//! but the database. Peers are processes of their own, timed by the wall clock of the machine.

use std::time::Duration;

use pillarbox::{Clock as _, SystemClock};
use sqlx::PgPool;

use super::enqueue::transact;
use super::field::{Field, Filled};
use super::list::{PEERS, Peer};
use super::turns::{self, Rounds, Samples, alternate, beside};
use crate::{
    Result,
    baseline::postgres::PostgresBench,
    case::{Bench, Case},
    figure::Unit,
    measure::{Sample, quantile},
    relay::latency::{MARKS, Mark, Path, RATES, pace, through_channel, through_relay},
};

/// The first of them find a peer that warms up, and do not count.
const WARM: u32 = 100;

#[derive(Clone, Copy)]
enum Way {
    Ours,
    Channel,
    Peer(&'static Peer),
}

pub(super) async fn run(bench: &mut Bench<'_, PostgresBench>, field: &Field) -> Result {
    for rate in RATES {
        case(bench, field, rate).await?;
    }
    Ok(())
}

/// The same rounds for every mark.
async fn case(bench: &mut Bench<'_, PostgresBench>, field: &Field, rate: u32) -> Result {
    let name =
        |mark: &Mark| format!("commit to handler beside other systems, {rate} tx/s, {}", mark.word);
    if !MARKS.iter().any(|mark| bench.wants(&name(mark))) {
        return Ok(());
    }
    let peers: Vec<&'static Peer> = PEERS.iter().filter(|peer| peer.takes_sql).collect();
    let ways: Vec<Way> =
        [Way::Ours, Way::Channel].into_iter().chain(peers.iter().map(|it| Way::Peer(it))).collect();
    let (database, count) = (bench.database, bench.scale().timed);
    let rounds = alternate(bench.scale().rounds.min(3), &ways, async |_, way: Way| {
        way.times(database, field, rate, count).await
    })
    .await?;
    for mark in &MARKS {
        let samples: Vec<Samples> = rounds.iter().map(|times| marked(times, mark)).collect();
        report(bench, (&name(mark), mark, rate), &peers, &samples)?;
    }
    Ok(())
}

/// What the times of each round come to.
fn marked(rounds: &Rounds<Vec<Duration>>, mark: &Mark) -> Samples {
    let of = |times: &Vec<Duration>| Sample::of_time(quantile(times, mark.share));
    rounds.as_ref().map(|rounds| rounds.iter().map(of).collect()).map_err(Clone::clone)
}

fn report(
    bench: &mut Bench<'_, PostgresBench>,
    (name, mark, rate): (&str, &Mark, u32),
    peers: &[&'static Peer],
    samples: &[Samples],
) -> Result {
    let [Ok(ours), Ok(channel), others @ ..] = samples else {
        return Err("a way is missing".into());
    };
    let case = Case {
        name,
        unit: Unit::Micros,
        against: "a message through a channel between two tasks of the same process",
        goal: Path::Elsewhere.goal(mark, rate),
    };
    let mut figure = bench.figure(case, ours, channel)?;
    for (peer, samples) in peers.iter().zip(others) {
        let label = turns::Way::label(&Way::Peer(peer));
        figure = beside(figure, &label, ours, samples, None);
    }
    bench.report(figure);
    Ok(())
}

impl Way {
    async fn times(
        self,
        database: &PostgresBench,
        field: &Field,
        rate: u32,
        count: u32,
    ) -> Result<Vec<Duration>> {
        match self {
            Self::Ours => through_relay(database, Path::Elsewhere, rate, count).await,
            Self::Channel => through_channel(rate, count).await,
            Self::Peer(peer) => through_peer(field, peer, rate, count + WARM).await,
        }
    }
}

async fn through_peer(field: &Field, peer: &Peer, rate: u32, count: u32) -> Result<Vec<Duration>> {
    let Filled { enqueue: Some(enqueue), .. } = field.fill(peer, 0).await? else {
        return Err("it names no statement".into());
    };
    let pool = field.business(1).await?;
    let mut committed = Vec::new();
    let writing = write(&pool, &enqueue, rate, count, &mut committed);
    let heard = field.listen(peer, count, writing).await?;
    pool.close().await;
    let since = |(heard, committed): (i64, i64)| {
        Duration::from_micros(u64::try_from(heard - committed).unwrap_or(0))
    };
    let warm = usize::try_from(WARM)?;
    Ok(heard.into_iter().zip(committed).skip(warm).map(since).collect())
}

/// Events 1, 2, … at this rate, and when each commit was answered.
async fn write(
    pool: &PgPool,
    enqueue: &str,
    rate: u32,
    count: u32,
    committed: &mut Vec<i64>,
) -> Result {
    let mut pace = pace(rate);
    for order in 1..=count {
        pace.tick().await;
        transact(pool, enqueue, order.into()).await?;
        committed.push(SystemClock.now().unix_micros());
    }
    Ok(())
}

impl turns::Way for Way {
    fn label(&self) -> String {
        match self {
            Self::Ours => "a relay that hears of it by NOTIFY".to_owned(),
            Self::Channel => "a channel".to_owned(),
            Self::Peer(peer) => format!("{} {}", peer.name, peer.version),
        }
    }

    fn is_peer(&self) -> bool {
        matches!(self, Self::Peer(_))
    }
}
