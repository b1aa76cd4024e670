//! How long after the answer to its commit an event reaches its listener: in the same process, and in
//! another, which hears of commits by NOTIFY.

use std::{
    collections::HashMap,
    ops::Range,
    time::{Duration, Instant},
};

use pillarbox::{Cx, Envelope, EventId, Failure, Listeners, Outbox};
use pillarbox::{Relay, RelayHandle, RelaySettings, WriterHandle};
use tokio::sync::mpsc::{self, UnboundedReceiver};
use tokio::time::{MissedTickBehavior, interval};

use crate::{
    Result,
    baseline::{Database, OURS},
    case::{Bench, Case},
    figure::{Goal, Unit},
    measure::{Sample, alternate, now, quantile},
};

/// Transactions a second.
pub(crate) const RATES: [u32; 2] = [300, 1000];

#[derive(Clone, Copy, PartialEq)]
enum Way {
    Ours,
    Channel,
}

/// Which way an event goes.
#[derive(Clone, Copy, PartialEq)]
pub(crate) enum Path {
    Here {
        keyed: bool,
    },
    /// Written through an outbox that shares nothing with the relay but the database.
    Elsewhere,
}

/// Of all times, the one that such a share is not longer than.
#[derive(Clone, Copy)]
pub(crate) struct Mark {
    pub(crate) share: f64,
    pub(crate) word: &'static str,
    here: f64,
    elsewhere: f64,
}

pub(crate) const MARKS: [Mark; 2] = [
    Mark { share: 0.5, word: "p50", here: 10.0, elsewhere: 500.0 },
    Mark { share: 0.99, word: "p99", here: 100.0, elsewhere: 5000.0 },
];

pub(super) async fn run<D: Database>(bench: &mut Bench<'_, D>) -> Result {
    let can_ring = bench.database.store(OURS)?.name() == "postgres";
    for rate in RATES {
        for keyed in [false, true] {
            case(bench, Path::Here { keyed }, rate).await?;
        }
        if can_ring {
            case(bench, Path::Elsewhere, rate).await?;
        }
    }
    Ok(())
}

/// The same rounds for every mark.
async fn case<D: Database>(bench: &mut Bench<'_, D>, path: Path, rate: u32) -> Result {
    let name = |mark: &Mark| format!("commit to {}, {rate} tx/s, {}", path.listener(), mark.word);
    if !MARKS.iter().any(|mark| bench.wants(&name(mark))) {
        return Ok(());
    }
    let (database, count) = (bench.database, bench.scale().timed);
    let mut samples = vec![Vec::new(); MARKS.len()];
    alternate(bench.scale().rounds, &[Way::Ours, Way::Channel], async |way| {
        let times = match way {
            Way::Ours => through_relay(database, path, rate, count).await?,
            Way::Channel => through_channel(rate, count).await?,
        };
        for (mark, samples) in MARKS.iter().zip(&mut samples) {
            samples.push((way, Sample::of_time(quantile(&times, mark.share))));
        }
        Ok(Sample::of_time(Duration::ZERO))
    })
    .await?;
    for (mark, samples) in MARKS.iter().zip(samples) {
        // The first of each way warms up.
        let of =
            |way| samples.iter().filter(move |(its, _)| *its == way).map(|(_, it)| *it).skip(1);
        let (ours, channel): (Vec<_>, Vec<_>) =
            (of(Way::Ours).collect(), of(Way::Channel).collect());
        let name = name(mark);
        let case = Case {
            name: &name,
            unit: Unit::Micros,
            against: "a message through a channel between two tasks of the same process",
            goal: path.goal(mark, rate),
        };
        let figure = bench.figure(case, &ours, &channel)?;
        bench.report(figure);
    }
    Ok(())
}

impl Path {
    const fn listener(self) -> &'static str {
        match self {
            Self::Here { keyed: true } => "listener, with a key",
            Self::Here { keyed: false } => "listener, without a key",
            Self::Elsewhere => "listener of a relay that hears of it by NOTIFY",
        }
    }

    /// What is aimed at is for the first of the rates.
    pub(crate) fn goal(self, mark: &Mark, rate: u32) -> Option<Goal> {
        let goal = match self {
            Self::Here { .. } => mark.here,
            Self::Elsewhere => mark.elsewhere,
        };
        (rate == RATES[0]).then_some(Goal::MoreByAtMost(goal))
    }
}

pub(crate) async fn through_relay<D: Database>(
    database: &D,
    path: Path,
    rate: u32,
    count: u32,
) -> Result<Vec<Duration>> {
    database.clear().await?;
    let mut way = Through::start(database, path, RelaySettings::default()).await?;
    let times = way.times(database, 0..count, rate).await?;
    way.stop().await?;
    Ok(times)
}

/// A relay whose listener says when it heard of what, and an outbox.
pub(crate) struct Through {
    relay: RelayHandle,
    writer: WriterHandle,
    outbox: Outbox,
    keyed: bool,
    hears: UnboundedReceiver<(EventId, Instant)>,
}

impl Through {
    /// With these settings, but for rows that are done: they are deleted at once.
    pub(crate) async fn start<D: Database>(
        database: &D,
        path: Path,
        settings: RelaySettings,
    ) -> Result<Self> {
        let (heard, hears) = mpsc::unbounded_channel();
        let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let told = heard.send((event.event_id().clone(), now()));
            async move { told.map_err(Failure::retry) }
        });
        let settings = RelaySettings { retention_done: Duration::ZERO, ..settings };
        let relay = Relay::new(database.store(OURS)?, listeners).settings(settings);
        let writer = Relay::writer_only(database.store(OURS)?);
        let (outbox, keyed) = match path {
            Path::Here { keyed } => (relay.outbox(), keyed),
            Path::Elsewhere => (writer.outbox(), true),
        };
        let (relay, writer) = (relay.spawn().await?, writer.spawn().await?);
        Ok(Self { relay, writer, outbox, keyed, hears })
    }

    /// How long each of these orders takes from its commit to the listener.
    pub(crate) async fn times<D: Database>(
        &mut self,
        database: &D,
        orders: Range<u32>,
        rate: u32,
    ) -> Result<Vec<Duration>> {
        let count = orders.len();
        let mut moments: HashMap<EventId, Instant> = HashMap::new();
        let mut pace = pace(rate);
        for order in orders {
            pace.tick().await;
            let (id, at) = database.emit(&self.outbox, order.into(), self.keyed).await?;
            moments.insert(id, at);
        }
        let mut times = Vec::new();
        while times.len() < count {
            let (id, heard_at) = self.hears.recv().await.ok_or("the relay ended")?;
            let committed = moments.remove(&id);
            let committed = committed.ok_or("an event that nobody emitted, or a second time")?;
            times.push(heard_at.saturating_duration_since(committed));
        }
        Ok(times)
    }

    pub(crate) async fn stop(self) -> Result {
        self.relay.stop().await?;
        self.writer.stop().await?;
        Ok(())
    }
}

pub(crate) async fn through_channel(rate: u32, count: u32) -> Result<Vec<Duration>> {
    let (tell, mut hears) = mpsc::unbounded_channel::<Instant>();
    let hearing = tokio::spawn(async move {
        let mut times = Vec::new();
        while let Some(told) = hears.recv().await {
            times.push(told.elapsed());
        }
        times
    });
    let mut pace = pace(rate);
    for _ in 0..count {
        pace.tick().await;
        tell.send(now())?;
    }
    drop(tell);
    Ok(hearing.await?)
}

pub(crate) fn pace(rate: u32) -> tokio::time::Interval {
    let mut pace = interval(Duration::from_secs(1) / rate);
    pace.set_missed_tick_behavior(MissedTickBehavior::Delay);
    pace
}
