//! What happens next to an event: decided here, once, without a clock and without a database.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{fmt, time::Duration};

use crate::verdict::{ErrorText, Failed, Next, Verdict};

/// Says how long to wait before an attempt.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::{Backoff, RetryPolicy};
///
/// let policy = Backoff::new(Duration::from_millis(200), Duration::from_secs(60));
///
/// assert_eq!(policy.delay(1), Duration::from_millis(200));
/// assert_eq!(policy.delay(3), Duration::from_millis(800));
/// assert_eq!(policy.delay(99), Duration::from_secs(60));
/// ```
pub trait RetryPolicy: Send + Sync + fmt::Debug + 'static {
    /// The wait after this many failed attempts, before jitter.
    fn delay(&self, failed_attempts: u32) -> Duration;
}

/// Doubles the wait with each failure, up to a longest one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Backoff {
    base: Duration,
    max: Duration,
}

impl Backoff {
    /// Starts at `base` and never exceeds `max`.
    pub fn new(base: Duration, max: Duration) -> Self {
        Self { base, max }
    }
}

impl Default for Backoff {
    /// 200 ms, up to 60 s.
    fn default() -> Self {
        Self::new(Duration::from_millis(200), Duration::from_secs(60))
    }
}

impl RetryPolicy for Backoff {
    fn delay(&self, failed_attempts: u32) -> Duration {
        let doublings = failed_attempts.saturating_sub(1).min(31);
        self.base.saturating_mul(1 << doublings).min(self.max)
    }
}

/// What becomes of an event that was given up.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, serde::Deserialize, serde::Serialize)]
#[serde(rename_all = "lowercase")]
pub enum OnDead {
    /// A keyed event holds its key, visibly, until it is replayed.
    #[default]
    Hold,
    /// It blocks nobody: the next event of its key goes on.
    Skip,
}

/// What becomes of an event that was delivered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum OnDone {
    Mark,
    Delete,
}

impl OnDone {
    /// An event that is not kept is deleted at once.
    pub(crate) fn after(retention: Duration) -> Self {
        if retention.is_zero() { Self::Delete } else { Self::Mark }
    }
}

/// A century is as good as for ever, and no clock overflows with it.
const LONGEST: Duration = Duration::from_secs(100 * 366 * 86_400);

/// The rules by which a delivery is judged.
#[derive(Debug)]
pub(crate) struct RetryRules {
    pub(crate) policy: Box<dyn RetryPolicy>,
    pub(crate) max_attempts: u32,
    pub(crate) on_dead: OnDead,
    pub(crate) on_done: OnDone,
}

/// A delivery that is over.
#[derive(Debug)]
pub(crate) struct Delivered<'a> {
    /// Attempts that had failed before this one.
    pub(crate) attempts: u32,
    pub(crate) keyed: bool,
    pub(crate) outcome: Result<(), &'a Failed>,
    /// A factor around 1 that keeps retries from marching in step.
    pub(crate) jitter: f64,
}

impl RetryRules {
    pub(crate) fn verdict(&self, delivered: &Delivered<'_>) -> Verdict {
        let Err(failure) = delivered.outcome else {
            return match self.on_done {
                OnDone::Mark => Verdict::Done,
                OnDone::Delete => Verdict::Delete,
            };
        };
        let error = failure.error.clone();
        let failed = delivered.attempts.saturating_add(1);
        match failure.next {
            Next::Defer(delay) => Verdict::Defer { delay: delay.min(LONGEST), error },
            Next::Dead => self.give_up(delivered.keyed, error),
            _ if failed >= self.max_attempts => self.give_up(delivered.keyed, error),
            Next::RetryAfter(delay) => Verdict::Retry { delay: delay.min(LONGEST), error },
            Next::Retry => {
                let delay = self.delay(failed).min(LONGEST).mul_f64(delivered.jitter);
                Verdict::Retry { delay, error }
            }
        }
    }

    /// The policy may be a stranger's code; one that panics must not take the relay along.
    fn delay(&self, failed: u32) -> Duration {
        let asked = catch_unwind(AssertUnwindSafe(|| self.policy.delay(failed)));
        asked.unwrap_or_else(|_| Backoff::default().delay(failed))
    }

    fn give_up(&self, keyed: bool, error: ErrorText) -> Verdict {
        match self.on_dead {
            OnDead::Hold if keyed => Verdict::Held { error },
            OnDead::Hold | OnDead::Skip => Verdict::Dead { error },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::verdict::Failure;

    fn judge(outcome: Result<(), Failure>, attempts: u32, on_dead: OnDead) -> Verdict {
        let rules = RetryRules {
            policy: Box::new(Backoff::default()),
            max_attempts: 10,
            on_dead,
            on_done: OnDone::Mark,
        };
        let outcome = outcome.map_err(Failed::from);
        let outcome = outcome.as_ref().copied();
        rules.verdict(&Delivered { attempts, keyed: true, outcome, jitter: 1.5 })
    }

    fn error(text: &str) -> ErrorText {
        ErrorText::new(text)
    }

    #[test]
    fn a_failure_waits_longer_each_time() {
        let verdict = judge(Err("down".into()), 2, OnDead::Hold);

        let delay = Duration::from_millis(1200);
        assert_eq!(verdict, Verdict::Retry { delay, error: error("down") });
    }

    #[test]
    fn the_tenth_failure_is_the_last() {
        assert_eq!(
            judge(Err("down".into()), 9, OnDead::Hold),
            Verdict::Held { error: error("down") }
        );
        assert_eq!(
            judge(Err("down".into()), 9, OnDead::Skip),
            Verdict::Dead { error: error("down") }
        );
    }

    #[test]
    fn the_listener_may_name_the_wait_and_it_still_counts() {
        let after = |attempts| {
            let wait = Duration::from_secs(9);
            judge(Err(Failure::retry_after(wait, "busy")), attempts, OnDead::Skip)
        };

        let delay = Duration::from_secs(9);
        assert_eq!(after(0), Verdict::Retry { delay, error: error("busy") });
        assert_eq!(after(9), Verdict::Dead { error: error("busy") });
    }

    #[test]
    fn a_deferral_never_uses_up_the_attempts() {
        let delay = Duration::from_secs(1);

        let verdict = judge(Err(Failure::defer(delay, "closed")), 9, OnDead::Skip);

        assert_eq!(verdict, Verdict::Defer { delay, error: error("closed") });
    }

    #[derive(Debug)]
    struct Broken;

    impl RetryPolicy for Broken {
        fn delay(&self, _: u32) -> Duration {
            panic!("a stranger's bug")
        }
    }

    #[test]
    fn a_policy_that_panics_is_replaced_by_the_usual_one() {
        let rules = RetryRules {
            policy: Box::new(Broken),
            max_attempts: 10,
            on_dead: OnDead::Hold,
            on_done: OnDone::Mark,
        };

        assert_eq!(rules.delay(1), Duration::from_millis(200));
    }

    #[test]
    fn a_wait_without_end_is_a_century() {
        let verdict = judge(Err(Failure::defer(Duration::MAX, "never")), 0, OnDead::Skip);

        assert_eq!(verdict, Verdict::Defer { delay: LONGEST, error: error("never") });
    }

    #[test]
    fn success_is_done_however_often_it_failed_before() {
        assert_eq!(judge(Ok(()), 9, OnDead::Hold), Verdict::Done);
    }
}
