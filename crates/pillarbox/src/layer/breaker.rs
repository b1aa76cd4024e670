//! The circuit breaker: stops delivering to a route that keeps failing.

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
use crate::verdict::{Failure, Next as Action};

/// Stops delivering to a route that keeps failing, and probes it periodically.
///
/// After a number of consecutive failures the circuit of the route opens: its events are deferred,
/// without counting attempts. After the cool-down one event is delivered as a probe. If it
/// succeeds, the circuit closes. If it fails, which counts as an attempt, the circuit stays open
/// for another cool-down.
///
/// Retries, timeouts and panics count as failures. Deferrals and dead letters count as neither
/// failure nor success: a deferral only means *not now*, and a dead letter means that the event is
/// wrong, not the route.
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
    settings: Settings,
    routes: PerRoute<Mutex<Circuit>>,
}

impl CircuitBreaker {
    /// Creates a breaker that opens after this many consecutive failures, for `cool_down`.
    ///
    /// # Panics
    /// If the cool-down is zero or longer than a year.
    #[track_caller]
    pub fn new(failures: NonZeroU32, cool_down: Duration) -> Self {
        let cool_down = checked("the cool-down", cool_down);
        Self { settings: Settings { failures: failures.get(), cool_down }, routes: PerRoute::new() }
    }
}

impl Layer for CircuitBreaker {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let circuit = self.routes.of(&cx, Mutex::default);
        let admitted = lock(&circuit).admit(self.settings, instant());
        let generation = match admitted {
            Ok(generation) => generation,
            Err(wait) => return Err(Failure::defer(wait, "the circuit of its route is open")),
        };
        let settings = self.settings;
        let mut guard = ReportOnDrop { circuit, settings, generation, cx, report: Report::Failure };
        let outcome = next.run().await;
        guard.report = Report::of(&outcome);
        outcome
    }
}

fn lock(circuit: &Mutex<Circuit>) -> MutexGuard<'_, Circuit> {
    circuit.lock().unwrap_or_else(PoisonError::into_inner)
}

#[derive(Clone, Copy, Debug)]
struct Settings {
    failures: u32,
    cool_down: Duration,
}

/// What the outcome of a delivery means for its route.
#[derive(Clone, Copy)]
enum Report {
    Success,
    Failure,
    Neutral,
}

impl Report {
    fn of(outcome: &Outcome) -> Self {
        match outcome.as_ref().map_err(Failure::next) {
            Ok(()) => Self::Success,
            Err(Action::Retry | Action::RetryAfter(_)) => Self::Failure,
            Err(Action::Defer(_) | Action::Dead) => Self::Neutral,
        }
    }
}

/// Reports the outcome when the delivery ends. A delivery that is dropped or panics has failed.
struct ReportOnDrop {
    circuit: Arc<Mutex<Circuit>>,
    settings: Settings,
    generation: u64,
    cx: Cx,
    report: Report,
}

impl Drop for ReportOnDrop {
    fn drop(&mut self) {
        let (route, mut circuit) = (self.cx.route(), lock(&self.circuit));
        match circuit.report(self.settings, self.generation, self.report, instant()) {
            Some(Change::Opened) => {
                warn!(route, "circuit opened, events of this route are deferred")
            }
            Some(Change::Closed) => info!(route, "circuit closed"),
            None => {}
        }
    }
}

/// The circuit of one route.
#[derive(Default)]
struct Circuit {
    state: State,
    /// The number of state changes. Deliveries that started before the last one are not counted.
    generation: u64,
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

/// The longest deferral of an event while a probe is running.
const PROBE_WAIT: Duration = Duration::from_secs(1);

impl Circuit {
    /// Returns the generation to report for, or how long to wait.
    fn admit(&mut self, settings: Settings, now: Instant) -> Result<u64, Duration> {
        match self.state {
            State::Closed { .. } => Ok(self.generation),
            State::Probing => Err(settings.cool_down.min(PROBE_WAIT)),
            State::Open { until } if until > now => Err(until - now),
            State::Open { .. } => {
                self.set_state(State::Probing);
                Ok(self.generation)
            }
        }
    }

    fn report(
        &mut self,
        settings: Settings,
        generation: u64,
        report: Report,
        now: Instant,
    ) -> Option<Change> {
        if generation != self.generation {
            return None;
        }
        match (&mut self.state, report) {
            (State::Closed { failures }, Report::Success) => *failures = 0,
            (State::Closed { failures }, Report::Failure) => {
                *failures += 1;
                if *failures >= settings.failures {
                    return Some(self.open_until(now + settings.cool_down));
                }
            }
            (State::Probing, Report::Success) => {
                self.set_state(State::default());
                return Some(Change::Closed);
            }
            (State::Probing, Report::Failure) => {
                return Some(self.open_until(now + settings.cool_down));
            }
            // The next event is the probe.
            (State::Probing, Report::Neutral) => self.set_state(State::Open { until: now }),
            (State::Closed { .. }, Report::Neutral) | (State::Open { .. }, _) => {}
        }
        None
    }

    fn open_until(&mut self, until: Instant) -> Change {
        self.set_state(State::Open { until });
        Change::Opened
    }

    fn set_state(&mut self, state: State) {
        self.state = state;
        self.generation += 1;
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

    async fn wait_of(breaker: &Around, route: &str) -> Action {
        breaker.deliver(route, not_called).await.unwrap_err().next()
    }

    #[tokio::test(start_paused = true)]
    async fn it_opens_after_failures_in_a_row_and_only_that_route() {
        let breaker = breaker(2);

        for _ in 0..2 {
            breaker.deliver("a", failing).await.unwrap_err();
        }

        assert_eq!(wait_of(&breaker, "a").await, Action::Defer(10 * SECOND));
        assert!(breaker.deliver("b", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn a_success_resets_the_count() {
        let breaker = breaker(2);

        breaker.deliver("a", failing).await.unwrap_err();
        breaker.deliver("a", fine).await.unwrap();
        breaker.deliver("a", failing).await.unwrap_err();

        assert!(breaker.deliver("a", fine).await.is_ok());
    }

    #[tokio::test(start_paused = true)]
    async fn only_one_probe_runs_at_a_time() {
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
        assert_eq!(other.unwrap_err().next(), Action::Defer(PROBE_WAIT));
        assert!(breaker.deliver("a", fine).await.is_ok(), "closed again");
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_fails_opens_it_again() {
        let breaker = breaker(1);
        breaker.deliver("a", failing).await.unwrap_err();
        tokio::time::advance(10 * SECOND).await;

        breaker.deliver("a", failing).await.unwrap_err();

        assert_eq!(wait_of(&breaker, "a").await, Action::Defer(10 * SECOND));
    }

    #[tokio::test(start_paused = true)]
    async fn a_probe_that_is_dropped_has_failed() {
        let breaker = breaker(1);
        breaker.deliver("a", failing).await.unwrap_err();
        tokio::time::advance(10 * SECOND).await;

        let cut = tokio::time::timeout(SECOND, breaker.deliver("a", stuck)).await;

        assert!(cut.is_err());
        assert_eq!(
            wait_of(&breaker, "a").await,
            Action::Defer(10 * SECOND),
            "and the probe is over"
        );
    }

    #[tokio::test(start_paused = true)]
    async fn after_a_neutral_probe_the_next_event_is_the_probe() {
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

    /// A delivery that started before the circuit opened says nothing about the route now.
    #[tokio::test(start_paused = true)]
    async fn a_success_of_a_delivery_from_before_the_opening_is_ignored() {
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
        assert_eq!(meanwhile, Action::Defer(PROBE_WAIT), "the probe is still running");
        assert_eq!(wait_of(&breaker, "a").await, Action::Defer(10 * SECOND));
    }
}
