//! A scheduler for periodic jobs.

use std::any::Any;
use std::future::poll_fn;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::pin::{Pin, pin};
use std::task::Poll;
use std::{fmt, sync::Arc, time::Duration};

use crate::clock::{Clock, SystemClock, Timestamp};
use crate::error::{Error, ErrorKind, Result};
use crate::id::jitter;

/// Runs periodic jobs, each at its own interval.
///
/// [`run_due`](Self::run_due) runs the jobs that are due by the clock, so a test can advance a
/// clock and call it; [`run_until`](Self::run_until) calls it in a loop. Each interval is
/// multiplied by a random factor between 0.5 and 1.5, so that many processes do not run at the same
/// time. A job that fails or panics is reported to [`on_error`](Self::on_error) and runs again at
/// its next time.
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

/// Whether a job has more work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum JobStatus {
    /// The job has finished and runs again after its interval.
    Idle,
    /// The job has more work and is due again at once.
    More,
}

struct Job {
    name: &'static str,
    every: Duration,
    /// `None` if it has never run: it is due at once.
    next: Option<Timestamp>,
    work: Box<dyn Fn() -> JobFuture + Send + Sync>,
}

type OnError = Box<dyn Fn(&str, &Error) + Send + Sync>;
type JobFuture = Pin<Box<dyn Future<Output = Result<JobStatus>> + Send>>;

/// The longest interval. Adding it to a clock does not overflow.
const MAX_INTERVAL: Duration = Duration::from_secs(366 * 86_400);

impl Scheduler {
    /// Creates a scheduler without jobs, on the system clock.
    pub fn new() -> Self {
        Self { clock: Arc::new(SystemClock), jobs: Vec::new(), on_error: Box::new(|_, _| {}) }
    }

    /// Sets the clock.
    #[must_use]
    pub fn clock(mut self, clock: impl Clock) -> Self {
        self.clock = Arc::new(clock);
        self
    }

    pub(crate) fn shared_clock(mut self, clock: Arc<dyn Clock>) -> Self {
        self.clock = clock;
        self
    }

    /// Adds a job. It is due at once, and then about once per interval.
    #[must_use]
    pub fn job<F, Fut>(mut self, name: &'static str, every: Duration, work: F) -> Self
    where
        F: Fn() -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Result<JobStatus>> + Send + 'static,
    {
        let work = Box::new(move || Box::pin(work()) as JobFuture);
        self.jobs.push(Job { name, every: every.min(MAX_INTERVAL), next: None, work });
        self
    }

    /// Sets the callback for errors of jobs. It receives the job's name. By default, errors are
    /// ignored.
    #[must_use]
    pub fn on_error(mut self, on_error: impl Fn(&str, &Error) + Send + Sync + 'static) -> Self {
        self.on_error = Box::new(on_error);
        self
    }

    /// Runs the jobs that are due, one after the other, and returns how many ran.
    ///
    /// # Errors
    /// Returns the first error of a job, after all due jobs have run.
    ///
    /// # Cancel safety
    /// If the future is dropped, the running job is dropped and is still due.
    pub async fn run_due(&mut self) -> Result<usize> {
        let (mut ran, mut first) = (0, None);
        for job in &mut self.jobs {
            if !job.remaining(self.clock.now()).is_zero() {
                continue;
            }
            let status = guarded("the job", async { (job.work)().await }).await;
            ran += 1;
            job.next = match status {
                Ok(JobStatus::More) => None,
                _ => Some(self.clock.now().saturating_add(job.every.mul_f64(jitter()))),
            };
            if let Err(error) = status {
                (self.on_error)(job.name, &error);
                first.get_or_insert(error);
            }
        }
        first.map_or(Ok(ran), Err)
    }

    /// Runs the jobs until `shutdown` completes. Errors of jobs do not stop it.
    ///
    /// The first run of each job comes after a random part of its interval.
    ///
    /// # Cancel safety
    /// If the future is dropped or `shutdown` completes, the running job is dropped.
    pub async fn run_until(mut self, shutdown: impl Future<Output = ()>) {
        let now = self.clock.now();
        for job in &mut self.jobs {
            job.next = Some(now.saturating_add(job.every.mul_f64(jitter() - 0.5)));
        }
        let running = async {
            loop {
                tokio::time::sleep(self.pause()).await;
                // Already reported to `on_error`.
                let _ = self.run_due().await;
                // Jobs that never wait must not prevent the shutdown.
                tokio::task::yield_now().await;
            }
        };
        tokio::select! {
            () = shutdown => {}
            () = running => {}
        }
    }

    /// Returns the time until the next job is due.
    fn pause(&self) -> Duration {
        let now = self.clock.now();
        self.jobs.iter().map(|job| job.remaining(now)).min().unwrap_or(MAX_INTERVAL)
    }
}

impl Job {
    /// Returns the time until the job is due, also if the clock was set back.
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

/// Runs a future and converts a panic into an error.
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
    let message = format!("{what} panicked: {}", text.unwrap_or("(no message)"));
    Error::new(ErrorKind::Unavailable, message)
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;
    use std::sync::atomic::{AtomicU32, Ordering};

    use super::*;

    const MINUTE: Duration = Duration::from_secs(60);

    #[derive(Clone, Debug)]
    struct TestClock(Arc<Mutex<Timestamp>>);

    impl TestClock {
        fn new() -> Self {
            Self(Arc::new(Mutex::new(SystemClock.now())))
        }

        fn advance(&self, by: Duration) {
            let mut now = self.0.lock().unwrap();
            *now = now.saturating_add(by);
        }
    }

    impl Clock for TestClock {
        fn now(&self) -> Timestamp {
            *self.0.lock().unwrap()
        }
    }

    fn counting(
        status: JobStatus,
    ) -> (Arc<AtomicU32>, impl Fn() -> std::future::Ready<Result<JobStatus>>) {
        let count = Arc::new(AtomicU32::new(0));
        let counts = Arc::clone(&count);
        (count, move || {
            counts.fetch_add(1, Ordering::Relaxed);
            std::future::ready(Ok(status))
        })
    }

    #[tokio::test]
    async fn a_job_runs_again_after_half_to_one_and_a_half_intervals() {
        let clock = TestClock::new();
        let (count, work) = counting(JobStatus::Idle);
        let mut scheduler = Scheduler::new().clock(clock.clone()).job("job", MINUTE, work);

        for round in 1..=100 {
            assert_eq!(scheduler.run_due().await.unwrap(), 1);
            clock.advance(MINUTE / 2 - Duration::from_millis(1));
            assert_eq!(scheduler.run_due().await.unwrap(), 0, "round {round}: too early");
            clock.advance(MINUTE + Duration::from_millis(2));
        }

        assert_eq!(count.load(Ordering::Relaxed), 100);
    }

    #[tokio::test]
    async fn a_job_with_more_work_is_due_at_once() {
        let (count, work) = counting(JobStatus::More);
        let mut scheduler = Scheduler::new().clock(TestClock::new()).job("job", MINUTE, work);

        for _ in 0..3 {
            assert_eq!(scheduler.run_due().await.unwrap(), 1);
        }

        assert_eq!(count.load(Ordering::Relaxed), 3);
    }

    #[tokio::test]
    async fn a_job_that_fails_or_panics_does_not_affect_the_others() {
        let errors = Arc::new(Mutex::new(Vec::new()));
        let reported = Arc::clone(&errors);
        let (count, work) = counting(JobStatus::Idle);
        let mut scheduler = Scheduler::new()
            .job("panics", MINUTE, || async { panic!("on purpose") })
            .job("fails", MINUTE, || async { Err(Error::invalid("on purpose")) })
            .job("works", MINUTE, work)
            .on_error(move |job, error| reported.lock().unwrap().push(format!("{job}: {error}")));

        let error = scheduler.run_due().await.unwrap_err();

        assert_eq!(error.to_string(), "the job panicked: on purpose");
        assert_eq!(
            *errors.lock().unwrap(),
            ["panics: the job panicked: on purpose", "fails: on purpose"]
        );
        assert_eq!(count.load(Ordering::Relaxed), 1);
        assert_eq!(scheduler.run_due().await.unwrap(), 0, "each has its next time");
    }

    #[tokio::test]
    async fn a_clock_that_is_set_back_does_not_stop_the_jobs() {
        let clock = TestClock::new();
        let (_, work) = counting(JobStatus::Idle);
        let mut scheduler = Scheduler::new().clock(clock.clone()).job("job", MINUTE, work);
        clock.advance(Duration::from_secs(86_400));
        scheduler.run_due().await.unwrap();

        let earlier = Timestamp::from_unix_micros(clock.now().unix_micros() - 86_400_000_000);
        *clock.0.lock().unwrap() = earlier;

        assert_eq!(scheduler.run_due().await.unwrap(), 1);
    }

    #[tokio::test(start_paused = true)]
    async fn it_runs_until_the_shutdown() {
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
