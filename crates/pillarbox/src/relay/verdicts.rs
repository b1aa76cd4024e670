//! Verdicts that are to be written.
//!
//! Failures are written by themselves and now and then, while there is success to write: the one is
//! a change of rows and the other their end, and a write of both is slower than one of each.

use std::time::Duration;

use tokio::time::Instant;

use super::job::Judged;
use crate::verdict::Verdict;

/// How long failures wait for more of them. A retry comes later by as much, at most.
const GATHER: Duration = Duration::from_millis(20);

#[derive(Debug, Default)]
pub(super) struct Verdicts {
    done: Vec<Judged>,
    failed: Vec<Judged>,
    /// Since when a failure has waited.
    since: Option<Instant>,
}

impl Verdicts {
    pub(super) fn extend(&mut self, judged: impl IntoIterator<Item = Judged>, now: Instant) {
        for judged in judged {
            if matches!(judged.verdict, Verdict::Done | Verdict::Delete) {
                self.done.push(judged);
            } else {
                self.since.get_or_insert(now);
                self.failed.push(judged);
            }
        }
    }

    pub(super) fn len(&self) -> usize {
        self.done.len() + self.failed.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// What to write next.
    pub(super) fn take(&mut self, now: Instant) -> Vec<Judged> {
        let is_time = self.since.is_some_and(|since| now >= since + GATHER);
        if is_time || self.done.is_empty() {
            self.since = None;
            return std::mem::take(&mut self.failed);
        }
        std::mem::take(&mut self.done)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::{Timestamp, instant};
    use crate::envelope::Envelope;
    use crate::id::{Seq, ShardId};
    use crate::relay::job::Job;
    use crate::tx::Inserted;
    use crate::verdict::ErrorText;

    fn judged(verdict: Verdict) -> Judged {
        let envelope = Envelope::json("test.step", &1).unwrap();
        let occurred_at = Timestamp::from_unix_micros(0);
        let place = Inserted { seq: Seq(1), shard: ShardId(0), occurred_at, is_next: true };
        Judged { job: Job::of_hot(&envelope, place), verdict }
    }

    fn failed() -> Judged {
        judged(Verdict::Retry { delay: Duration::ZERO, error: ErrorText::new("no") })
    }

    fn done() -> Judged {
        judged(Verdict::Delete)
    }

    #[test]
    fn failures_wait_while_there_is_success_but_not_for_long() {
        let (mut verdicts, now) = (Verdicts::default(), instant());
        verdicts.extend([done(), failed(), done()], now);
        assert_eq!(verdicts.take(now).len(), 2);

        verdicts.extend([done()], now);
        let next = verdicts.take(now + GATHER);
        assert!(matches!(next[..], [Judged { verdict: Verdict::Retry { .. }, .. }]), "{next:?}");
        assert_eq!(verdicts.len(), 1);
    }

    #[test]
    fn failures_alone_are_written_at_once() {
        let (mut verdicts, now) = (Verdicts::default(), instant());
        verdicts.extend([failed()], now);
        assert_eq!(verdicts.take(now).len(), 1);
        assert!(verdicts.is_empty());
    }
}
