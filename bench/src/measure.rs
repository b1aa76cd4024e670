//! Rounds: the same work done in several ways by turns, and what each came to.

use std::error::Error;
use std::time::{Duration, Instant};

use tokio::task::JoinSet;

use crate::{Result, baseline::Database, cpu, memory};

/// What one round of one way came to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sample {
    /// Events, transactions or calls.
    pub(crate) count: u64,
    pub(crate) wall: Duration,
    pub(crate) server_cpu: Option<Duration>,
    pub(crate) own_cpu: Option<Duration>,
    /// Bytes that the server wrote to its log.
    pub(crate) log_bytes: Option<u64>,
    /// The most memory that this process had.
    pub(crate) peak: Option<u64>,
    /// Rows that the server read.
    pub(crate) rows: Option<u64>,
}

impl Sample {
    /// A time that was found by other means.
    pub(crate) const fn of_time(time: Duration) -> Self {
        Self::counted(1, time)
    }

    /// A count and a time that were found by other means.
    const fn counted(count: u64, wall: Duration) -> Self {
        let (server_cpu, own_cpu, log_bytes, peak, rows) = (None, None, None, None, None);
        Self { count, wall, server_cpu, own_cpu, log_bytes, peak, rows }
    }

    /// Rows that the server read for so many events.
    pub(crate) const fn of_rows(rows: u64, events: u64) -> Self {
        Self { rows: Some(rows), ..Self::counted(events, Duration::ZERO) }
    }

    pub(crate) fn per_second(&self) -> f64 {
        self.count as f64 / self.wall.as_secs_f64()
    }

    pub(crate) fn micros_each(&self) -> f64 {
        self.wall.as_secs_f64() * 1e6 / self.count as f64
    }

    pub(crate) fn server_micros(&self) -> Option<f64> {
        self.server_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.count as f64)
    }

    pub(crate) fn own_micros(&self) -> Option<f64> {
        self.own_cpu.map(|cpu| cpu.as_secs_f64() * 1e6 / self.count as f64)
    }

    pub(crate) fn log_bytes_each(&self) -> Option<f64> {
        self.log_bytes.map(|bytes| bytes as f64 / self.count as f64)
    }

    pub(crate) fn rows_each(&self) -> Option<f64> {
        self.rows.map(|rows| rows as f64 / self.count as f64)
    }

    /// How much of a core this CPU time kept busy meanwhile, in percent.
    pub(crate) fn share(&self, cpu: Option<Duration>) -> Option<f64> {
        cpu.map(|cpu| cpu.as_secs_f64() / self.wall.as_secs_f64() * 100.0)
    }

    pub(crate) fn peak_mib(&self) -> Option<f64> {
        self.peak.map(|bytes| bytes as f64 / f64::from(1 << 20))
    }
}

/// What a server has used so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ResourceUse {
    pub(crate) cpu: Option<Duration>,
    pub(crate) log_bytes: Option<u64>,
}

impl ResourceUse {
    pub(crate) fn since(self, before: Self) -> Self {
        let log_bytes = self.log_bytes.zip(before.log_bytes).map(|(after, before)| after - before);
        Self { cpu: since(self.cpu, before.cpu), log_bytes }
    }
}

/// Runs some work that returns how much it did, and reads clocks and meters around it.
pub(crate) async fn measure<D: Database>(
    database: &D,
    work: impl Future<Output = Result<u64>>,
) -> Result<Sample> {
    metered(async || database.used().await, work).await
}

/// The same, by meters of another kind.
pub(crate) async fn metered(
    read: impl AsyncFn() -> Result<ResourceUse>,
    work: impl Future<Output = Result<u64>>,
) -> Result<Sample> {
    let (used, own) = (read().await?, cpu::own());
    memory::forget_peak();
    let (count, wall) = timed(work).await;
    let peak = memory::peak();
    let own = since(cpu::own(), own);
    let used = read().await?.since(used);
    Ok(Sample {
        count: count?,
        wall,
        server_cpu: used.cpu,
        own_cpu: own,
        log_bytes: used.log_bytes,
        peak,
        rows: None,
    })
}

/// What was used between two looks at a meter.
pub(crate) fn since(after: Option<Duration>, before: Option<Duration>) -> Option<Duration> {
    after.zip(before).map(|(after, before)| after.saturating_sub(before))
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is about the real clock")]
pub(crate) async fn timed<T>(work: impl Future<Output = T>) -> (T, Duration) {
    let start = Instant::now();
    let done = work.await;
    (done, start.elapsed())
}

/// Runs tasks side by side and adds up what they did.
pub(crate) async fn side_by_side<F>(tasks: impl IntoIterator<Item = F>) -> Result<u64>
where
    F: Future<Output = Result<u64>> + Send + 'static,
{
    let mut running: JoinSet<Result<u64>> = tasks.into_iter().collect();
    let mut count = 0;
    while let Some(done) = running.join_next().await {
        count += done??;
    }
    Ok(count)
}

/// Repeats some work for a while, this many times side by side, and counts it.
#[expect(clippy::disallowed_methods, reason = "a benchmark is about the real clock")]
pub(crate) async fn repeat<F>(
    slice: Duration,
    side: usize,
    work: impl Fn() -> F + Clone + Send + 'static,
) -> Result<u64>
where
    F: Future<Output = Result> + Send + 'static,
{
    let end = Instant::now() + slice;
    let tasks = (0..side).map(|_| {
        let work = work.clone();
        async move {
            let mut count = 0;
            while Instant::now() < end {
                work().await?;
                count += 1;
            }
            Ok(count)
        }
    });
    side_by_side(tasks).await
}

/// Does the work in each way, forwards and backwards by turns, so that a drift of the machine
/// meets all of them; the first round warms up and does not count.
pub(crate) async fn alternate<W: Copy>(
    rounds: usize,
    ways: &[W],
    mut work: impl AsyncFnMut(W) -> Result<Sample>,
) -> Result<Vec<Vec<Sample>>> {
    let mut samples = vec![Vec::new(); ways.len()];
    for round in 0..=rounds {
        let mut order: Vec<usize> = (0..ways.len()).collect();
        if round % 2 == 1 {
            order.reverse();
        }
        for way in order {
            let sample = work(ways[way]).await?;
            if round > 0 {
                samples[way].push(sample);
            }
        }
    }
    Ok(samples)
}

#[expect(clippy::disallowed_methods, reason = "a benchmark is about the real clock")]
pub(crate) fn now() -> Instant {
    Instant::now()
}

/// Whether the database chose this one as the victim: PostgreSQL says 40P01, MySQL's 1213 is 40001.
pub(crate) fn is_deadlock(error: &(dyn Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(sqlx::Error::Database(answer)) = error.downcast_ref() {
            return matches!(answer.code().as_deref(), Some("40P01" | "40001"));
        }
        next = error.source();
    }
    false
}

/// The time that this share of all times does not exceed; zero when there is none.
pub(crate) fn quantile(times: &[Duration], share: f64) -> Duration {
    let mut times = times.to_vec();
    times.sort_unstable();
    let most = (times.len() as f64 * share).ceil();
    let place = (1..=times.len()).find(|place| *place as f64 >= most).unwrap_or(1);
    times.get(place - 1).copied().unwrap_or_default()
}

/// The middle of some numbers, and the least and the greatest of them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Spread {
    pub(crate) median: f64,
    pub(crate) least: f64,
    pub(crate) most: f64,
}

impl Spread {
    pub(crate) fn of(numbers: impl IntoIterator<Item = f64>) -> Option<Self> {
        let mut numbers: Vec<f64> = numbers.into_iter().collect();
        numbers.sort_by(f64::total_cmp);
        let (least, most) = (*numbers.first()?, *numbers.last()?);
        let half = numbers.len() / 2;
        let median = if numbers.len() % 2 == 1 {
            numbers[half]
        } else {
            f64::midpoint(numbers[half - 1], numbers[half])
        };
        Some(Self { median, least, most })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_of_an_even_count_lies_between() {
        let spread = Spread::of([4.0, 1.0, 3.0, 2.0]).unwrap();

        assert_eq!(spread, Spread { median: 2.5, least: 1.0, most: 4.0 });
    }

    #[test]
    fn a_quantile_is_one_of_the_times() {
        let times: Vec<Duration> = (1..=200).rev().map(Duration::from_micros).collect();

        assert_eq!(quantile(&times, 0.99), Duration::from_micros(198));
        assert_eq!(quantile(&times[..1], 0.5), Duration::from_micros(200));
        assert_eq!(quantile(&[], 0.5), Duration::ZERO);
    }

    #[test]
    fn nothing_has_no_median() {
        assert_eq!(Spread::of([]), None);
    }
}
