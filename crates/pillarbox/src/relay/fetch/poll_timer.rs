//! When to claim again: at once while there is more, else when woken, or at the next poll.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::jitter;
use crate::relay::SECOND;

/// Says when to look for due rows.
#[derive(Debug)]
pub(crate) struct PollTimer {
    is_wanted: bool,
    poll: Duration,
    next_poll: Instant,
    /// After a claim that failed: not before.
    pause: Option<Instant>,
    /// The relay stops: a poll is no reason to look.
    is_stopping: bool,
}

impl PollTimer {
    /// The first look is due at once.
    pub(crate) fn new(poll: Duration, now: Instant) -> Self {
        let next_poll = now + poll.mul_f64(jitter());
        Self { is_wanted: true, poll, next_poll, pause: None, is_stopping: false }
    }

    /// There may be something to claim.
    pub(crate) fn now(&mut self) {
        self.is_wanted = true;
    }

    /// Looks until nothing is due, and not again after that.
    pub(crate) fn stop_polling(&mut self) {
        (self.is_stopping, self.is_wanted) = (true, true);
    }

    /// Whether to claim now, or after a pause.
    pub(crate) fn is_due(&self) -> bool {
        self.is_wanted
    }

    /// Whether to claim now.
    pub(crate) fn is_wanted(&self) -> bool {
        self.is_wanted && self.pause.is_none()
    }

    /// A claim begins: what happens from here on is a reason for another one.
    pub(crate) fn begin(&mut self) {
        self.is_wanted = false;
    }

    /// The claim failed, and is tried again a little later.
    pub(crate) fn failed(&mut self, now: Instant) {
        self.is_wanted = true;
        self.pause = Some(now + self.poll.min(SECOND));
    }

    /// Time has passed.
    pub(crate) fn tick(&mut self, now: Instant) {
        self.pause = self.pause.filter(|until| *until > now);
        if self.is_stopping {
            return;
        }
        if self.next_poll <= now {
            self.next_poll = now + self.poll.mul_f64(jitter());
            self.is_wanted = true;
        }
    }

    /// When time matters next.
    pub(crate) fn next(&self) -> Option<Instant> {
        let polls = (!self.is_stopping).then_some(self.next_poll);
        [polls, self.pause].into_iter().flatten().min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    const HOUR: Duration = Duration::from_secs(3600);

    /// One that has nothing to do before its poll.
    fn idle() -> (PollTimer, Instant) {
        let now = instant();
        let mut look = PollTimer::new(HOUR, now);
        assert!(look.is_wanted(), "the first is due at once");
        look.begin();
        (look, now)
    }

    #[test]
    fn it_looks_when_told_and_at_the_poll() {
        let (mut look, now) = idle();
        look.tick(now + HOUR / 3);
        assert!(!look.is_wanted());

        look.now();
        assert!(look.is_wanted());
        look.begin();
        look.tick(now + HOUR * 2);
        assert!(look.is_wanted());
        assert!(look.next() > Some(now + HOUR * 2), "the next poll is ahead");
    }

    #[test]
    fn a_claim_that_failed_is_repeated_after_a_pause() {
        let (mut look, now) = idle();
        look.failed(now);
        look.now();
        assert!(!look.is_wanted());

        look.tick(now + SECOND);

        assert!(look.is_wanted());
    }
}
