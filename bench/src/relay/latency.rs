//! How long after the answer to its commit an event reaches its listener: in the same process, and in
//! another, which hears of commits by NOTIFY.

use std::{
    collections::HashMap,
    sync::{Arc, Mutex, PoisonError},
    time::{Duration, Instant},
};

use pillarbox::{Cx, Envelope, EventId, Failure, Listeners, Relay, RelaySettings, WriterOnly};
use tokio::sync::mpsc;
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Result,
    bare::{Database, OURS},
    case::{Bench, Case},
    figure::{Goal, Unit},
    round::{Sample, by_turns, now, quantile},
};

/// Transactions a second.
const RATE: u32 = 300;

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Channel,
}

/// Which way an event goes.
#[derive(Clone, Copy, PartialEq)]
enum Path {
    Here {
        keyed: bool,
    },
    /// Written through an outbox that shares nothing with the relay but the database.
    Elsewhere,
}

/// Of all times, the one that such a share is not longer than.
#[derive(Clone, Copy)]
struct Mark {
    share: f64,
    word: &'static str,
    here: f64,
    elsewhere: f64,
}

const MARKS: [Mark; 2] = [
    Mark { share: 0.5, word: "p50", here: 10.0, elsewhere: 500.0 },
    Mark { share: 0.99, word: "p99", here: 100.0, elsewhere: 5000.0 },
];

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    for mark in MARKS {
        for keyed in [false, true] {
            case(bench, Path::Here { keyed }, mark).await?;
        }
        if bench.database.store(OURS)?.name() == "postgres" {
            case(bench, Path::Elsewhere, mark).await?;
        }
    }
    Ok(())
}

async fn case<D: Database>(bench: &mut Bench<'_, D>, path: Path, mark: Mark) -> Result {
    let Mark { share, word, here, elsewhere } = mark;
    let (way, goal) = match path {
        Path::Here { keyed: true } => ("listener, with a key", here),
        Path::Here { keyed: false } => ("listener, without a key", here),
        Path::Elsewhere => ("listener of a relay that hears of it by NOTIFY", elsewhere),
    };
    let name = format!("commit to {way}, {RATE} tx/s, {word}");
    if !bench.wants(&name) {
        return Ok(());
    }
    let database = bench.database;
    let count = bench.scale().timed;
    let samples = by_turns(bench.scale().rounds, &[Way::Ours, Way::Channel], async |way| {
        let times = match way {
            Way::Ours => through_relay(database, path, count).await?,
            Way::Channel => through_channel(count).await?,
        };
        Ok(Sample::of_time(quantile(&times, share)))
    })
    .await?;
    let [ours, channel] = &samples[..] else { return Err("a way is missing".into()) };
    let case = Case {
        name: &name,
        unit: Unit::Micros,
        against: "a message through a channel between two tasks of the same process",
        goal: Some(Goal::MoreByAtMost(goal)),
    };
    let figure = bench.figure(case, ours, channel)?;
    bench.report(figure);
    Ok(())
}

/// Moments by event, from whichever side comes first.
type Moments = Arc<Mutex<HashMap<EventId, Instant>>>;

async fn through_relay<D: Database>(database: &D, path: Path, count: u32) -> Result<Vec<Duration>> {
    database.clear().await?;
    let (heard, mut hears) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let told = heard.send((event.event_id().clone(), now()));
        async move { told.map_err(Failure::retry) }
    });
    let settings = RelaySettings { retention_done: Duration::ZERO, ..RelaySettings::default() };
    let relay = Relay::shared(database.store(OURS)?, listeners).settings(settings);
    let writer = WriterOnly::shared(database.store(OURS)?);
    let (outbox, keyed) = match path {
        Path::Here { keyed } => (relay.outbox(), keyed),
        Path::Elsewhere => (writer.outbox(), true),
    };
    let (handle, writer) = (relay.spawn().await?, writer.spawn().await?);
    let moments: Moments = Arc::default();
    let mut pace = pace();
    for order in 0..count {
        pace.tick().await;
        let (id, at) = database.emit(&outbox, order.into(), keyed).await?;
        moments.lock().unwrap_or_else(PoisonError::into_inner).insert(id, at);
    }
    let mut times = Vec::new();
    while times.len() < count as usize {
        let (id, heard_at) = hears.recv().await.ok_or("the relay ended")?;
        let committed = moments.lock().unwrap_or_else(PoisonError::into_inner).remove(&id);
        let committed = committed.ok_or("an event that nobody emitted, or a second time")?;
        times.push(heard_at.saturating_duration_since(committed));
    }
    handle.stop().await?;
    writer.stop().await?;
    Ok(times)
}

async fn through_channel(count: u32) -> Result<Vec<Duration>> {
    let (tell, mut hears) = mpsc::unbounded_channel::<Instant>();
    let hearing = tokio::spawn(async move {
        let mut times = Vec::new();
        while let Some(told) = hears.recv().await {
            times.push(told.elapsed());
        }
        times
    });
    let mut pace = pace();
    for _ in 0..count {
        pace.tick().await;
        tell.send(now())?;
    }
    drop(tell);
    Ok(hearing.await?)
}

fn pace() -> tokio::time::Interval {
    let mut pace = interval(Duration::from_secs(1) / RATE);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
