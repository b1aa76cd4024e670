//! The tick: one loop for every job that comes round again, ours and yours.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::{fmt, sync::Arc, time::Duration};

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::jitter;

/// Runs jobs that come round again, each at its own interval.
///
/// (Self::run_due) does what is due by the clock, so that a test turns a clock and calls it;
/// [`run_until`](Self::run_until) calls it again and again. Intervals are stretched or shortened
/// by up to a half, by chance, so that many processes do not march in step. A job that fails or
/// panics is told to [`on_error`](Self::on_error) and comes again at its next time.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::scheduler::{JobStatus, Scheduler};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let mut scheduler = Scheduler::new()
///     .job("report", Duration::from_secs(3600), || async {
///         println!("an hour has passed");
///         Ok(JobStatus::Idle)
///     })
///     .on_error(|job, error| eprintln!("{job}: {error}"));
///
/// assert_eq!(scheduler.run_due().await?, 1); // a new job is due at once
/// assert_eq!(scheduler.run_due().await?, 0);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub struct Scheduler {
    clock: Arc<dyn Clock>,
    jobs: Vec<Job>,
    on_error: OnError,
}

/// Whether a job has more to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// Nothing more before its next time.
    Idle,
    /// It stopped half-way, not to take too long: it is due again at once.
    More,
}

struct Job {
    name: &'static str,
    every: Duration,
    /// `None` = never run, due at once.
    next: Option<Timestamp>,
    work: Box<dyn Fn() -> Working + Send + Sync>,
}

type OnError = Box<dyn Fn(&str, &Error) + Send + Sync>;
type Working = Pin<Box<dyn Future<Output = Result<JobStatus>> + Send>>;

/// Longer intervals are as good as never, and no clock overflows with this one.
const LONGEST: Duration = Duration::from_secs(366 * 86_400);

impl Scheduler {
    /// No jobs yet, on the machine's clock.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), jobs: Vec::new(), on_error: Box::new(|_, _| {}) }
    }

    /// On this clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    pub(crate) fn shared_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// With one more job; it is due at once, and then about this often.
    #[must_use]
    pub fn job<F, Fut>(mut self, name: &'static str, every: Duration, work: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<JobStatus>> + Send + 'static,
    {
        let work = Box::new(move || Box::pin(work()) as Working);
        self.jobs.push(Job { name, every: every.min(LONGEST), next: None, work });
        self
    }

    /// Hears of every job that fails, with its name; nobody does unless said.
    #[must_use]
    pub fn on_error(mut self, hear: impl Fn(&str, &Error) + Send + Sync + 'static) -> Self {
        self.on_error = Box::new(hear);
        self
    }

    /// Runs the jobs that are due, one after the other, and says how many these were.
    ///
    /// # Errors
    /// The first error of a job, once all of them had their turn.
    ///
    /// # Cancel safety
    /// The job under way is dropped and is still due; the others keep their time.
    pub async fn run_due(&mut self) -> Result<usize> {
        let (mut ran, mut first) = (0, None);
        for job in &mut self.jobs {
            if !job.remaining(self.clock.now()).is_zero() {
                continue;
            }
            let turn = guarded("the job", async { (job.work)().await }).await;
            ran += 1;
            job.next = match turn {
                Ok(JobStatus::More) => None,
                _ => Some(self.clock.now().saturating_add(job.every.mul_f64(jitter()))),
            };
            if let Err(error) = turn {
                (self.on_error)(job.name, &error);
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(ran), Err)
    }

    /// Runs the jobs until `shutdown` is ready; errors do not end it.
    ///
    /// The first turn of each comes after a part of its interval, by chance.
    ///
    /// # Cancel safety
    /// Dropped or shut down, the job under way is dropped where it waits.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) {
        let now = self.clock.now();
        for job in &mut self.jobs {
            job.next = Some(now.saturating_add(job.every.mul_f64(jitter() - 0.5)));
        }
        let running = async {
            loop {
                tokio::time::sleep(self.pause()).await;
                // Told to `on_error` already.
                let _ = self.run_due().await;
                // Jobs that never wait must not keep the shutdown from being seen.
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = running => {}
        }
    }

    /// How long until the next job is due.
    fn pause(&self) -> Duration {
        let now = self.clock.now();
        self.jobs.iter().map(|job| job.remaining(now)).min().unwrap_or(LONGEST)
    }
}

impl Job {
    /// How long until it is due; a clock that was set back does not stretch the wait.
    fn remaining(&self, now: Timestamp) -> Duration {
        let left = self.next.map_or(Duration::ZERO, |next| next.since(now));
        if left > self.every * 2 { Duration::ZERO } else { left }
    }
}

impl Default for Scheduler {
    fn default() -> Self {
        Self::new()
    }
}

impl fmt::Debug for Scheduler {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let names: Vec<_> = self.jobs.iter().map(|job| job.name).collect();
        f.debug_struct("Scheduler").field("jobs", &names).finish_non_exhaustive()
    }
}

/// What is called may be a stranger's code: its panic is an error, and others go on.
pub(crate) async fn guarded<T>(what: &str, work: impl Future<Output = Result<T>>) -> Result<T> {
    let mut work = pin!(work);
    poll_fn(|cx| {
        let polled = catch_unwind(AssertUnwindSafe(|| work.as_mut().poll(cx)));
        polled.unwrap_or_else(|panic| Poll::Ready(Err(panicked(what, &*panic))))
    })
    .await
}

fn panicked(what: &str, panic: &(dyn Any + Send)) -> Error {
    let text = panic.downcast_ref::<&str>().copied();
    let text = text.or_else(|| panic.downcast_ref::<String>().map(String::as_str));
    let message = format!("{what} panicked: {}", text.unwrap_or("it does not say why"));
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[derive(Clone, Debug)]
    struct Turned(Arc<Mutex<Timestamp>>);

    impl Turned {
        fn new() -> Self {
            Self(Arc::new(Mutex::new(SystemClock.now())))
        }

        fn turn(&self, by: Duration) {
            let mut now = self.0.lock().unwrap();
            *now = now.saturating_add(by);
        }
    }

    impl Clock for Turned {
        fn now(&self) -> Timestamp {
            *self.0.lock().unwrap()
        }
    }

    fn counting(
        turn: JobStatus,
    ) -> (Arc<AtomicU32>, impl Fn() -> std::future::Ready<Result<JobStatus>>) {
        let count = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&count);
        (count, move || {
            counts.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(turn))
        })
    }

    #[tokio::test]
    async fn a_job_comes_round_within_half_and_one_and_a_half_intervals() {
        let clock = Turned::new();
        let (count, work) = counting(JobStatus::Idle);
        let mut scheduler = Scheduler::new().clock(clock.clone()).job("job", MINUTE, work);

        for round in 1..=100 {
            assert_eq!(scheduler.run_due().await.unwrap(), 1);
            clock.turn(MINUTE / 2 - Duration::from_millis(1));
            assert_eq!(scheduler.run_due().await.unwrap(), 0, "round {round}: too early");
            clock.turn(MINUTE + Duration::from_millis(2));
        }

        assert_eq!(count.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn a_job_with_more_to_do_is_due_at_once() {
        let (count, work) = counting(JobStatus::More);
        let mut scheduler = Scheduler::new().clock(Turned::new()).job("job", MINUTE, work);

        for _ in 0..3 {
            assert_eq!(scheduler.run_due().await.unwrap(), 1);
        }

        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_job_that_fails_or_panics_keeps_no_other_from_its_turn() {
        let heard = Arc::new(Mutex::new(Vec::new()));
        let hears = Arc::clone(&heard);
        let (count, work) = counting(JobStatus::Idle);
        let mut scheduler = Scheduler::new()
            .job("panics", MINUTE, || async { panic!("on demand") })
            .job("fails", MINUTE, || async { Err(Error::invalid("on demand")) })
            .job("works", MINUTE, work)
            .on_error(move |job, error| hears.lock().unwrap().push(format!("{job}: {error}")));

        let error = scheduler.run_due().await.unwrap_err();

        assert_eq!(error.to_string(), "the job panicked: on demand");
        assert_eq!(
            *heard.lock().unwrap(),
            ["panics: the job panicked: on demand", "fails: on demand"]
        );
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(scheduler.run_due().await.unwrap(), 0, "each has its next time");
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_does_not_stop_it() {
        let clock = Turned::new();
        let (_, work) = counting(JobStatus::Idle);
        let mut scheduler = Scheduler::new().clock(clock.clone()).job("job", MINUTE, work);
        clock.turn(Duration::from_secs(86_400));
        scheduler.run_due().await.unwrap();

        let earlier = Timestamp::from_unix_micros(clock.now().unix_micros() - 86_400_000_000);
        *clock.0.lock().unwrap() = earlier;

        assert_eq!(scheduler.run_due().await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_until_it_is_told_to_stop() {
        let (stop, stopped) = tokio::sync::oneshot::channel::<()>();
        let stop = Mutex::new(Some(stop));
        let count = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&count);
        let scheduler = Scheduler::new().job("job", Duration::from_millis(1), move || {
            if counts.fetch_add(1, Ordering::Relaxed) == 2 {
                drop(stop.lock().unwrap().take());
            }
            std::future::ready(Err(Error::invalid("errors do not end it")))
        });

        scheduler.run_until(async { drop(stopped.await) }).await;

        assert_eq!(count.load(Ordering::Relaxed), 3);
    }
}
