//! What rows that wait cost the others: the way of an event to its listener, the rows that are read
//! for it, and a relay that has nothing to do.

use std::time::Duration;

use pillarbox::RelaySettings;
use pillarbox::store::{ClaimMode, DeliveryMode, Order};
use tokio::time::sleep;

use crate::{
    Result,
    baseline::{Database, OURS, postgres::PostgresBench},
    case::{Bench, Case},
    event::NOTE,
    figure::{Figure, Goal, Point, Unit},
    measure::{Sample, measure, now, quantile},
    relay::latency::{MARKS, Path, RATES, Through},
};

const ROUNDS: u32 = 3;
/// A relay that has not settled down after so many looks at it is measured as it is.
const LOOKS: usize = 12;
/// A session of PostgreSQL that has nothing to do tells within ten seconds what it has read.
const TOLD: Duration = Duration::from_secs(11);

/// Keys are none of those that the others have.
const LOAD: &str = "
insert into outbox_event (
    event_id, event_type, aggregate_type, aggregate_id, partition_key, payload, status, attempts,
    available_at)
select
    '01J' || lpad(n::text, 23, '0'), 'order.placed', 'waits', {columns},
    clock_timestamp() + {wait} + n * interval '1 millisecond'
from generate_series(1, {count}) n";

/// What waits.
#[derive(Clone, Copy, Debug)]
enum WaitingRows {
    Scheduled,
    Retry,
    HeldKey,
}

/// What grows, and how the relay claims.
#[derive(Debug)]
struct Curve {
    rows: WaitingRows,
    claim: ClaimMode,
    axis: &'static str,
}

const CURVES: [Curve; 6] = {
    use ClaimMode::{Rows, Shards};
    use WaitingRows::{HeldKey, Retry, Scheduled};
    [
        Curve { rows: Scheduled, claim: Shards, axis: "rows scheduled" },
        Curve { rows: Retry, claim: Shards, axis: "rows in retry" },
        Curve { rows: HeldKey, claim: Shards, axis: "rows behind a held key" },
        Curve { rows: Scheduled, claim: Rows, axis: "scheduled, row claims" },
        Curve { rows: Retry, claim: Rows, axis: "in retry, row claims" },
        Curve { rows: HeldKey, claim: Rows, axis: "behind a held key, row claims" },
    ]
};

/// What is measured at each point: its name, the unit, and what is aimed at.
const PARTS: [(&str, Unit, Goal); 5] = [
    ("p50", Unit::Micros, Goal::AtMost(1.5)),
    ("p99", Unit::Micros, Goal::AtMost(3.0)),
    ("rows read", Unit::Rows, Goal::OursAtMost(2.0)),
    ("idle relay", Unit::OwnShare, Goal::OursAtMost(2.0)),
    ("idle server", Unit::ServerShare, Goal::OursAtMost(5.0)),
];

/// The samples of each part, and what else is to be said of them.
struct Found {
    samples: [Vec<Sample>; PARTS.len()],
    note: String,
}

pub(crate) async fn run(bench: &mut Bench<'_, PostgresBench>) -> Result {
    let database = &bench.database.workers(4).await?;
    for curve in &CURVES {
        if bench.wants(&format!("growth, {}", curve.axis)) {
            let mode = DeliveryMode { claim: curve.claim, order: Order::Key };
            database.store(OURS)?.configure(&mode).await?;
            points(bench, database, curve).await?;
        }
    }
    database.clear().await?;
    Ok(database.store(OURS)?.configure(&DeliveryMode::default()).await?)
}

/// Each beside the first, at which nothing waits.
async fn points(
    bench: &mut Bench<'_, PostgresBench>,
    database: &PostgresBench,
    curve: &Curve,
) -> Result {
    let mut none: Option<Found> = None;
    for at in curve.sizes(bench.scale().waiting) {
        let found = point(bench, database, curve, at).await?;
        let beside = none.as_ref().unwrap_or(&found);
        for (place, part) in PARTS.iter().enumerate() {
            let samples = [&found, beside].map(|found| &found.samples[place][..]);
            let mut figure = figure(bench, curve, at, part, samples)?;
            if matches!(part.1, Unit::Rows) {
                figure.notes.push(found.note.clone());
            }
            bench.report(figure);
        }
        none.get_or_insert(found);
    }
    Ok(())
}

fn figure(
    bench: &Bench<'_, PostgresBench>,
    curve: &Curve,
    at: u32,
    (what, unit, goal): &(&'static str, Unit, Goal),
    [ours, none]: [&[Sample]; 2],
) -> Result<Figure> {
    let case = Case {
        name: &format!("growth, {} {at}, {what}", curve.axis),
        unit: *unit,
        against: "the same where no row waits",
        goal: Some(*goal),
    };
    let mut figure = bench.figure(case, ours, none)?;
    figure.point = Some(Point { axis: curve.axis, at, what: Some(what) });
    Ok(figure)
}

async fn point(
    bench: &Bench<'_, PostgresBench>,
    database: &PostgresBench,
    curve: &Curve,
    at: u32,
) -> Result<Found> {
    database.clear().await?;
    database.execute(&curve.rows.load(at)).await?;
    database.analyze_table(OURS).await?;
    // What the load has left to write would be in the way of commits.
    database.execute("checkpoint").await?;
    let settings = RelaySettings { claim: curve.claim, ..RelaySettings::default() };
    let mut relay = Through::start(database, Path::Elsewhere, settings).await?;
    let settled = settle_down(database, bench.scale().idle / 2).await?;
    let before = database.read().await?;
    let idle = measure(database, nothing(bench.scale().idle)).await?;
    sleep(TOLD).await;
    let between = database.read().await?;
    let (mut marks, each) = ([Vec::new(), Vec::new()], bench.scale().timed);
    for round in 0..ROUNDS {
        let times = relay.times(database, round * each..(round + 1) * each, RATES[0]).await?;
        for (mark, samples) in MARKS.iter().zip(&mut marks) {
            samples.push(Sample::of_time(quantile(&times, mark.share)));
        }
    }
    sleep(TOLD).await;
    let (read, while_idle) = (database.read().await?.since(between), between.since(before));
    relay.stop().await?;
    let events = u64::from(ROUNDS * each);
    let note = format!(
        "{} entries of its indexes read for {events} events; while idle {} rows and {} entries in \
         {:.0} s; after {:.0} s the relay had settled down",
        read.entries,
        while_idle.rows,
        while_idle.entries,
        (bench.scale().idle + TOLD).as_secs_f64(),
        settled.as_secs_f64(),
    );
    let [p50, p99] = marks;
    let rows = vec![Sample::of_rows(read.rows, events)];
    Ok(Found { samples: [p50, p99, rows, vec![idle], vec![idle]], note })
}

/// Until two looks in a row show about the same CPU time; returns how long that took.
async fn settle_down(database: &PostgresBench, look: Duration) -> Result<Duration> {
    let begun = now();
    let mut last: Option<f64> = None;
    for _ in 0..LOOKS {
        let sample = measure(database, nothing(look)).await?;
        let shares = [sample.own_cpu, sample.server_cpu].map(|cpu| sample.share(cpu));
        let share = shares.into_iter().flatten().sum::<f64>();
        if last.is_some_and(|last| (share - last).abs() <= 0.5 + last / 5.0) {
            break;
        }
        last = Some(share);
    }
    Ok(begun.elapsed())
}

async fn nothing(time: Duration) -> Result<u64> {
    sleep(time).await;
    Ok(1)
}

impl Curve {
    /// Row claims are measured at both ends alone.
    fn sizes(&self, all: &[u32]) -> Vec<u32> {
        match self.claim {
            ClaimMode::Rows => all.first().into_iter().chain(all.last()).copied().collect(),
            _ => all.to_vec(),
        }
    }
}

impl WaitingRows {
    /// The statement that writes so many of these.
    fn load(self, count: u32) -> String {
        let (key, free, status, attempts, wait) = match self {
            // Every other one has a key.
            Self::Scheduled => {
                ("(n % 10000)::text", "case n % 2 when 0 then '' end", "2", "0", "7 days")
            }
            Self::Retry => ("n::text", "null", "2", "1", "1 day"),
            Self::HeldKey => ("'held'", "null", "case n when 1 then 4 else 0 end", "0", "-1 hour"),
        };
        let payload = format!("json_build_object('order_id', n, 'note', '{NOTE}')");
        let columns = format!("{key}, {free}, {payload}, {status}, {attempts}");
        LOAD.replace("{columns}", &columns)
            .replace("{wait}", &format!("interval '{wait}'"))
            .replace("{count}", &count.to_string())
    }
}
