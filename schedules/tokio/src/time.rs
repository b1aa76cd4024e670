//! The time of a schedule: it passes when the schedule says so.
//!
//! Whoever looks finds it a little later by chance. Sleepers are woken one by one, the next first,
//! by [`pass`], a task like any other: between two of them as much happens as chance lets happen.
//! It takes its time, or leases would run out before anybody could do anything.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::future::poll_fn;
use std::ops::{Add, AddAssign, Sub};
use std::pin::{Pin, pin};
use std::task::{Context, Poll, Waker};
pub use std::time::Duration;

use shuttle::rand::{Rng, thread_rng};

/// No schedule asks for what was before.
const BEGINNING: Duration = Duration::from_secs(1_000_000);

/// What a look at the clock adds, at most.
const LOOK: u64 = 60;

/// How many turns a sleeper waits, on average, when it is the next.
const SLOWLY: u32 = 16;

thread_local! {
    static CLOCK: RefCell<Clock> = RefCell::default();
}

#[derive(Default)]
struct Clock {
    now: Duration,
    last: u64,
    sleepers: BTreeMap<(Instant, u64), Waker>,
    hand: Option<Waker>,
}

pub(crate) fn begin() {
    let begun = Clock { now: BEGINNING, ..Clock::default() };
    drop(CLOCK.replace(begun));
}

/// Wakes one sleeper after the other, for as long as it is not dropped.
pub async fn pass() {
    loop {
        poll_fn(wait_for_sleepers).await;
        crate::task::yield_now().await;
        if thread_rng().gen_range(0..SLOWLY) != 0 {
            continue;
        }
        let next = CLOCK.with_borrow_mut(|clock| {
            let ((when, _), waker) = clock.sleepers.pop_first()?;
            clock.now = clock.now.max(when.0);
            Some(waker)
        });
        next.into_iter().for_each(Waker::wake);
    }
}

fn wait_for_sleepers(cx: &mut Context<'_>) -> Poll<()> {
    CLOCK.with_borrow_mut(|clock| {
        if !clock.sleepers.is_empty() {
            return Poll::Ready(());
        }
        clock.hand = Some(cx.waker().clone());
        Poll::Pending
    })
}

/// A moment of the schedule.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

impl Instant {
    /// The time now, or a little later.
    pub fn now() -> Self {
        let later = Duration::from_micros(thread_rng().gen_range(0..=LOOK));
        CLOCK.with_borrow_mut(|clock| {
            clock.now += later;
            Self(clock.now)
        })
    }

    /// How long ago it was.
    pub fn elapsed(&self) -> Duration {
        Self::now() - *self
    }

    /// How long the schedule has lasted, by its own time.
    pub fn age() -> Duration {
        CLOCK.with_borrow(|clock| clock.now - BEGINNING)
    }

    /// An earlier moment, if there was one.
    pub fn checked_sub(&self, duration: Duration) -> Option<Self> {
        self.0.checked_sub(duration).map(Self)
    }

    /// How long after another it is; zero when it is not after.
    pub fn saturating_duration_since(&self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, duration: Duration) -> Self {
        Self(self.0 + duration)
    }
}

impl AddAssign<Duration> for Instant {
    fn add_assign(&mut self, duration: Duration) {
        self.0 += duration;
    }
}

impl Sub<Duration> for Instant {
    type Output = Self;

    fn sub(self, duration: Duration) -> Self {
        Self(self.0 - duration)
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.saturating_duration_since(earlier)
    }
}

/// Waits for a moment.
#[derive(Debug)]
pub struct Sleep {
    until: Instant,
    place: Option<u64>,
}

pub fn sleep_until(until: Instant) -> Sleep {
    Sleep { until, place: None }
}

pub fn sleep(duration: Duration) -> Sleep {
    sleep_until(Instant::now() + duration)
}

impl Future for Sleep {
    type Output = ();

    fn poll(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<()> {
        let hand = CLOCK.with_borrow_mut(|clock| {
            if clock.now >= self.until.0 {
                return Poll::Ready(());
            }
            let place = *self.place.get_or_insert_with(|| {
                clock.last += 1;
                clock.last
            });
            clock.sleepers.insert((self.until, place), cx.waker().clone());
            Poll::Pending
        });
        if hand.is_pending() {
            let hand = CLOCK.with_borrow_mut(|clock| clock.hand.take());
            hand.into_iter().for_each(Waker::wake);
        }
        hand
    }
}

impl Drop for Sleep {
    fn drop(&mut self) {
        let Some(place) = self.place else { return };
        CLOCK.with_borrow_mut(|clock| clock.sleepers.remove(&(self.until, place)));
    }
}

/// An answer, if it comes in time.
pub async fn timeout<F: IntoFuture>(
    duration: Duration,
    answer: F,
) -> Result<F::Output, error::Elapsed> {
    let (mut answer, mut end) = (pin!(answer.into_future()), pin!(sleep(duration)));
    poll_fn(|cx| match answer.as_mut().poll(cx) {
        Poll::Ready(answer) => Poll::Ready(Ok(answer)),
        Poll::Pending => end.as_mut().poll(cx).map(|()| Err(error::Elapsed)),
    })
    .await
}

pub mod error {
    /// No answer came in time.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct Elapsed;
}
