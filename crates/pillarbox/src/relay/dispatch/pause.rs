//! FairShare that are paused: their events are put off, all others go on.

use std::{
    sync::{PoisonError, RwLock},
    time::Duration,
};

use tokio::time::Instant;

use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::listener::Pattern;
use crate::verdict::Failure;

/// More are a mistake: every delivery is compared with each of them.
const MOST: usize = 256;
/// Every deferral is a write, so a long pause looks less and less often.
const SHORTEST: Duration = Duration::from_millis(500);
const LONGEST: Duration = Duration::from_secs(10);

/// What is paused, and since when.
#[derive(Debug, Default)]
pub(crate) struct Pauses(RwLock<Vec<(Pattern, Instant)>>);

impl Pauses {
    pub(crate) fn pause(&self, pattern: Pattern, now: Instant) -> Result<()> {
        let mut paused = self.0.write().unwrap_or_else(PoisonError::into_inner);
        if paused.iter().any(|(other, _)| *other == pattern) {
            return Ok(());
        }
        if paused.len() == MOST {
            return Err(Error::invalid(format!(
                "{MOST} routes are paused already: resume one, or pause a pattern"
            )));
        }
        paused.push((pattern, now));
        Ok(())
    }

    /// Whether it was paused.
    pub(crate) fn resume(&self, pattern: &Pattern) -> bool {
        let mut paused = self.0.write().unwrap_or_else(PoisonError::into_inner);
        let before = paused.len();
        paused.retain(|(other, _)| other != pattern);
        paused.len() < before
    }

    pub(crate) fn all(&self) -> Vec<Pattern> {
        let paused = self.0.read().unwrap_or_else(PoisonError::into_inner);
        paused.iter().map(|(pattern, _)| pattern.clone()).collect()
    }

    /// Lets an event pass, or puts it off: by as long as the pause has lasted, within bounds.
    pub(crate) fn check(&self, envelope: &Envelope) -> Result<(), Failure> {
        let paused = self.0.read().unwrap_or_else(PoisonError::into_inner);
        let Some((pattern, since)) = paused.iter().find(|(pattern, _)| pattern.matches(envelope))
        else {
            return Ok(());
        };
        let wait = since.elapsed().clamp(SHORTEST, LONGEST);
        Err(Failure::defer(wait, format!("{pattern} is paused")))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;
    use crate::verdict::Next;

    fn pattern(text: &str) -> Pattern {
        Pattern::new(text).unwrap()
    }

    fn wait(pauses: &Pauses, event_type: &str) -> Option<Next> {
        let envelope = Envelope::json(event_type, &1).unwrap();
        pauses.check(&envelope).err().map(|failure| failure.next())
    }

    #[tokio::test(start_paused = true)]
    async fn a_long_pause_looks_less_often() {
        let pauses = Pauses::default();
        pauses.pause(pattern("order.*"), instant()).unwrap();

        assert_eq!(wait(&pauses, "invoice.sent"), None);
        assert_eq!(wait(&pauses, "order.placed"), Some(Next::Defer(SHORTEST)));
        tokio::time::advance(Duration::from_secs(3)).await;
        pauses.pause(pattern("order.*"), instant()).unwrap();
        assert_eq!(wait(&pauses, "order.placed"), Some(Next::Defer(Duration::from_secs(3))));
        tokio::time::advance(Duration::from_secs(3600)).await;
        assert_eq!(wait(&pauses, "order.placed"), Some(Next::Defer(LONGEST)));
    }

    #[tokio::test(start_paused = true)]
    async fn each_pause_ends_by_itself() {
        let pauses = Pauses::default();
        pauses.pause(pattern("order.*"), instant()).unwrap();
        pauses.pause(pattern("order.placed"), instant()).unwrap();

        assert!(pauses.resume(&pattern("order.*")));
        assert!(!pauses.resume(&pattern("order.*")), "it is not paused any more");

        assert!(wait(&pauses, "order.placed").is_some());
        assert!(wait(&pauses, "order.shipped").is_none());
        assert_eq!(pauses.all(), [pattern("order.placed")]);
    }

    #[tokio::test(start_paused = true)]
    async fn there_is_an_end_to_pauses() {
        let pauses = Pauses::default();
        for number in 0..MOST {
            pauses.pause(pattern(&format!("order.{number}")), instant()).unwrap();
        }

        let message = pauses.pause(pattern("one.more"), instant()).unwrap_err().to_string();

        assert!(message.starts_with("256 routes are paused already"), "{message}");
        pauses.pause(pattern("order.7"), instant()).unwrap();
    }
}
