//! The circuit breaker: leave a route alone that only fails.

use std::{
    num::NonZeroU32,
    sync::{Arc, Mutex, MutexGuard, PoisonError},
    time::Duration,
};

use tokio::time::Instant;
use tracing::{info, warn};

use super::route::PerRoute;
use super::{Layer, Next, Outcome, checked};
use crate::clock::instant;
use crate::listener::Cx;
use crate::verdict::{Failure, Next as Asked};

/// Leaves a route alone that fails again and again, and looks now and then whether it is mended.
///
/// After so many failures in a row the circuit of that route opens: its events are deferred, and
/// no attempt is counted. After the cool-down one event is let through as a probe. Its success
/// closes the circuit, its failure, which counts as its attempt, opens it for another cool-down.
///
/// Retries, timeouts and panics are failures. Deferrals and dead letters are neither failure nor
/// success: the one says *not now*, the other that the event, not the route, is wrong.
///
/// # Examples
/// ```
/// use std::{num::NonZeroU32, time::Duration};
/// use pillarbox::layer::CircuitBreaker;
///
/// let five = NonZeroU32::new(5).expect("five is not zero");
/// let breaker = CircuitBreaker::new(five, Duration::from_secs(30));
/// # drop(breaker);
/// ```
#[derive(Debug)]
pub struct CircuitBreaker {
    rule: Rule,
    routes: PerRoute<Mutex<Circuit>>,
}

impl CircuitBreaker {
    /// Opens after this many failures in a row, for this long.
    ///
    /// # Panics
    /// When the cool-down is zero or longer than a year.
    #[track_caller]
    pub fn new(failures: NonZeroU32, cool_down: Duration) -> Self {
        let cool_down = checked("the cool-down", cool_down);
        Self { rule: Rule { failures: failures.get(), cool_down }, routes: PerRoute::new() }
    }
}

impl Layer for CircuitBreaker {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let circuit = self.routes.of(&cx, Mutex::default);
        let admitted = lock(&circuit).admit(self.rule, instant());
        let era = match admitted {
            Ok(era) => era,
            Err(wait) => return Err(Failure::defer(wait, "the circuit of its route is open")),
        };
        let mut watch = Watch { circuit, rule: self.rule, era, cx, report: Report::Failed };
        let outcome = next.run().await;
        watch.report = Report::of(&outcome);
        outcome
    }
}

fn lock(circuit: &Mutex<Circuit>) -> MutexGuard<'_, Circuit> {
    circuit.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug)]
struct Rule {
    failures: u32,
    cool_down: Duration,
}

/// What a delivery says about its route.
#[derive(Clone, Copy)]
enum Report {
    Fine,
    Failed,
    Nothing,
}

impl Report {
    fn of(outcome: &Outcome) -> Self {
        match outcome.as_ref().map_err(Failure::next) {
            Ok(()) => Self::Fine,
            Err(Asked::Retry | Asked::RetryAfter(_)) => Self::Failed,
            Err(Asked::Defer(_) | Asked::Dead) => Self::Nothing,
        }
    }
}

/// Reports when the delivery ends; one that is dropped or panics has failed.
struct Watch {
    circuit: Arc<Mutex<Circuit>>,
    rule: Rule,
    era: u64,
    cx: Cx,
    report: Report,
}

impl Drop for Watch {
    fn drop(&mut self) {
        let (route, mut circuit) = (self.cx.route(), lock(&self.circuit));
        match circuit.report(self.rule, self.era, self.report, instant()) {
            Some(Change::Opened) => warn!(route, "circuit opened, its events are deferred"),
            Some(Change::Closed) => info!(route, "circuit closed"),
            None => {}
        }
    }
}

/// The circuit of one route.
#[derive(Default)]
struct Circuit {
    state: State,
    /// Counts the changes of state: what began before the last one says nothing about now.
    era: u64,
}

enum State {
    Closed { failures: u32 },
    Open { until: Instant },
    Probing,
}

impl Default for State {
    fn default() -> Self {
        Self::Closed { failures: 0 }
    }
}

enum Change {
    Opened,
    Closed,
}

/// Nobody waits longer for a probe to end, which usually takes no time at all.
const PROBE: Duration = Duration::from_secs(1);

impl Circuit {
    /// The era to report for, or how long to wait.
    fn admit(&mut self, rule: Rule, now: Instant) -> Result<u64, Duration> {
        match self.state {
            State::Closed { .. } => Ok(self.era),
            State::Probing => Err(rule.cool_down.min(PROBE)),
            State::Open { until } if until > now => Err(until - now),
            State::Open { .. } => {
                self.become_state(State::Probing);
                Ok(self.era)
            }
        }
    }

    fn report(&mut self, rule: Rule, era: u64, report: Report, now: Instant) -> Option<Change> {
        if era != self.era {
            return None;
        }
        match (&mut self.state, report) {
            (State::Closed { failures }, Report::Fine) => *failures = 0,
            (State::Closed { failures }, Report::Failed) => {
                *failures += 1;
                if *failures >= rule.failures {
                    return Some(self.open_until(now + rule.cool_down));
                }
            }
            (State::Probing, Report::Fine) => {
                self.become_state(State::default());
                return Some(Change::Closed);
            }
            (State::Probing, Report::Failed) => {
                return Some(self.open_until(now + rule.cool_down));
            }
            // The next event is the probe.
            (State::Probing, Report::Nothing) => self.become_state(State::Open { until: now }),
            (State::Closed { .. }, Report::Nothing) | (State::Open { .. }, _) => {}
        }
        None
    }

    fn open_until(&mut self, until: Instant) -> Change {
        self.become_state(State::Open { until });
        Change::Opened
    }

    fn become_state(&mut self, state: State) {
        self.state = state;
        self.era += 1;
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layer::tests::{Around, SECOND, failing, fine};

    fn breaker(failures: u32) -> Around {
        let failures = NonZeroU32::new(failures).unwrap();
        Around::layer(CircuitBreaker::new(failures, 10 * SECOND))
    }

    fn not_called(_: Cx) -> std::future::Ready<Outcome> {
        panic!("the circuit is open")
    }

    fn stuck(_: Cx) -> impl Future<Output = Outcome> {
        std::future::pending()
    }

    async fn wait_of(breaker: &Around, route: &str) -> Asked {
        breaker.deliver(route, not_called).await.unwrap_err().next()
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_only_that_route() {
        let breaker = breaker(2);

        for _ in 0..2 {
            breaker.deliver("a", failing).await.unwrap_err();
        }

        assert_eq!(wait_of(&breaker, "a").await, Asked::Defer(10 * SECOND));
        assert!(breaker.deliver("b", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_between_starts_the_count_again() {
        let breaker = breaker(2);

        breaker.deliver("a", failing).await.unwrap_err();
        breaker.deliver("a", fine).await.unwrap();
        breaker.deliver("a", failing).await.unwrap_err();

        assert!(breaker.deliver("a", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn one_probe_at_a_time_decides() {
        let breaker = breaker(1);
        breaker.deliver("a", failing).await.unwrap_err();
        tokio::time::advance(10 * SECOND).await;

        let (probe, other) = tokio::join!(
            breaker.deliver("a", |_| async {
                tokio::time::sleep(SECOND).await;
                Ok(())
            }),
            breaker.deliver("a", not_called)
        );

        assert!(probe.is_ok());
        assert_eq!(other.unwrap_err().next(), Asked::Defer(PROBE));
        assert!(breaker.deliver("a", fine).await.is_ok(), "closed again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_opens_it_again() {
        let breaker = breaker(1);
        breaker.deliver("a", failing).await.unwrap_err();
        tokio::time::advance(10 * SECOND).await;

        breaker.deliver("a", failing).await.unwrap_err();

        assert_eq!(wait_of(&breaker, "a").await, Asked::Defer(10 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_dropped_has_failed() {
        let breaker = breaker(1);
        breaker.deliver("a", failing).await.unwrap_err();
        tokio::time::advance(10 * SECOND).await;

        let cut = tokio::time::timeout(SECOND, breaker.deliver("a", stuck)).await;

        assert!(cut.is_err());
        assert_eq!(wait_of(&breaker, "a").await, Asked::Defer(10 * SECOND), "and probes no more");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_says_nothing_leaves_it_to_the_next() {
        let breaker = breaker(1);
        breaker.deliver("a", failing).await.unwrap_err();
        tokio::time::advance(10 * SECOND).await;

        let dead = |_| async { Err(Failure::dead("a wrong event")) };
        breaker.deliver("a", dead).await.unwrap_err();

        assert!(breaker.deliver("a", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn dead_letters_and_deferrals_do_not_open_it() {
        let breaker = breaker(1);

        breaker.deliver("a", |_| async { Err(Failure::dead("wrong")) }).await.unwrap_err();
        breaker.deliver("a", |_| async { Err(Failure::defer(SECOND, "busy")) }).await.unwrap_err();

        assert!(breaker.deliver("a", fine).await.is_ok());
    }

    /// It began before the circuit opened, and knows nothing of how the route is now.
    #[tokio::test(start_paused = true)]
    async fn a_late_success_decides_for_no_probe() {
        let breaker = breaker(1);
        let after = |seconds: u32, outcome: fn(Cx) -> std::future::Ready<Outcome>| {
            move |cx: Cx| async move {
                tokio::time::sleep(seconds * SECOND).await;
                outcome(cx).await
            }
        };

        let late = breaker.deliver("a", after(11, fine));
        let rest = async {
            breaker.deliver("a", failing).await.unwrap_err();
            tokio::time::sleep(10 * SECOND).await;
            let probe = breaker.deliver("a", after(5, failing));
            let meanwhile = async {
                tokio::time::sleep(2 * SECOND).await;
                wait_of(&breaker, "a").await
            };
            tokio::join!(probe, meanwhile)
        };
        let (late, (probe, meanwhile)) = tokio::join!(late, rest);

        assert!(late.is_ok() && probe.is_err());
        assert_eq!(meanwhile, Asked::Defer(PROBE), "the probe is still under way");
        assert_eq!(wait_of(&breaker, "a").await, Asked::Defer(10 * SECOND));
    }
}
