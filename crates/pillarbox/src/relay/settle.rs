//! Settle: writes verdicts until they are written.

mod batch;
pub(super) mod locked;
pub(super) mod release;

use tokio::time::Instant;

pub(super) use self::batch::Fence;
use self::batch::{BatchWriter, Written};
use self::locked::Locked;
use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{OwnerId, Seq};
use crate::relay::dispatch::dispatched::Dispatched;
use crate::relay::store_tasks::StoreTasks;
use crate::store::{RowVerdict, Settlement};
use crate::telemetry::{Component, Observers, RelayEvent};
use crate::verdict::Verdict;

use std::time::Duration;

/// How long failures wait for more of them. A retry comes later by as much, at most.
const GATHER: Duration = Duration::from_millis(20);

/// A delivery that is over, and its verdict.
#[derive(Debug)]
pub(super) struct Decided<H> {
    pub(super) dispatched: Dispatched,
    pub(super) verdict: Verdict,
    /// What is kept until the verdict is written.
    pub(super) hold: H,
}

/// What became of a verdict.
#[derive(Debug)]
pub(super) struct Settled {
    pub(super) dispatched: Dispatched,
    pub(super) verdict: Verdict,
    /// Whether it was written now. Else it was written before, or somebody else has decided.
    pub(super) is_applied: bool,
    /// Its shard is another owner's.
    pub(super) is_shard_lost: bool,
}

/// An answer to a [`Settler`].
#[derive(Debug)]
pub(super) enum SettleAnswer {
    Written(Result<Written>),
    /// Which of the locked rows still are.
    StillLocked(Result<Vec<Seq>>),
}

/// Writes verdicts, one batch at a time. What is decided meanwhile goes into the next batch.
///
/// With leases on shards, failures are written by themselves, and less often while there are
/// successes to write: the one updates rows and the other ends them, and a write of both is slower
/// than one of each.
#[derive(Debug)]
pub(super) struct Settler<H> {
    owner: OwnerId,
    fence: Fence,
    observers: Observers,
    /// How long a refused verdict waits.
    pause: Duration,
    decided: Vec<Decided<H>>,
    /// Failures that wait for more of them, and since when.
    failed: Vec<Decided<H>>,
    failed_since: Option<Instant>,
    /// In the write under way.
    writing: Vec<Decided<H>>,
    /// Verdicts that the database refuses to write, and when to try them again.
    refused: Vec<Decided<H>>,
    refused_until: Option<Instant>,
    /// Verdicts on rows that other transactions have locked.
    locked: Locked<Decided<H>>,
}

impl<H> Settler<H> {
    pub(super) fn new(fence: Fence, owner: OwnerId, pause: Duration, observers: Observers) -> Self {
        Self {
            owner,
            fence,
            observers,
            pause,
            decided: Vec::new(),
            failed: Vec::new(),
            failed_since: None,
            writing: Vec::new(),
            refused: Vec::new(),
            refused_until: None,
            locked: Locked::default(),
        }
    }

    pub(super) fn push(&mut self, decided: Decided<H>) {
        let is_success = matches!(decided.verdict, Verdict::Done | Verdict::Delete);
        if is_success || self.fence != Fence::Shards {
            return self.decided.push(decided);
        }
        self.failed_since.get_or_insert_with(instant);
        self.failed.push(decided);
    }

    /// How many verdicts are not written.
    pub(super) fn len(&self) -> usize {
        self.waiting() + self.writing.len() + self.refused.len() + self.locked.len()
    }

    /// Whether every verdict is written that can be.
    pub(super) fn is_quiet(&self) -> bool {
        self.waiting() + self.writing.len() == 0
    }

    fn waiting(&self) -> usize {
        self.decided.len() + self.failed.len()
    }

    /// What is kept of the verdicts that are not written.
    pub(super) fn holds(&self) -> impl Iterator<Item = &H> {
        let waiting = self.decided.iter().chain(&self.failed).chain(&self.writing);
        waiting.chain(&self.refused).chain(self.locked.iter()).map(|it| &it.hold)
    }

    /// Rows whose verdict cannot be written now.
    pub(super) fn blocked_rows(&self) -> impl Iterator<Item = Seq> {
        self.refused.iter().chain(self.locked.iter()).map(|it| it.dispatched.row.seq)
    }

    pub(super) fn next_timer(&self) -> Option<Instant> {
        [self.refused_until, self.locked.next_timer()].into_iter().flatten().min()
    }

    /// Tries refused verdicts again.
    pub(super) fn retry_refused(&mut self) {
        self.refused_until = None;
        std::mem::take(&mut self.refused).into_iter().for_each(|decided| self.push(decided));
    }

    /// Starts what can start now: a write, and asking whether locked rows are free.
    pub(super) fn start<A: Send + 'static>(
        &mut self,
        now: Instant,
        tasks: &mut StoreTasks<A>,
        answer: fn(SettleAnswer) -> A,
    ) {
        if self.refused_until.is_some_and(|until| until <= now) {
            self.retry_refused();
        }
        self.start_write(now, tasks, answer);
        if let Some(rows) = self.locked.ask(now) {
            let (store, timeout) = (tasks.store(), tasks.timeout());
            tasks.run(async move { locked::ask(&*store, &rows, timeout).await }, move |still| {
                answer(SettleAnswer::StillLocked(still))
            });
        }
    }

    fn start_write<A: Send + 'static>(
        &mut self,
        now: Instant,
        tasks: &mut StoreTasks<A>,
        answer: fn(SettleAnswer) -> A,
    ) {
        if !self.writing.is_empty() || self.waiting() == 0 {
            return;
        }
        self.writing = self.next_batch(now);
        let batch = self.fence.batch(self.owner.clone(), &self.writing);
        let (store, timeout) = (tasks.store(), tasks.timeout());
        let writer = BatchWriter { store, timeout, observers: self.observers.clone() };
        tasks.run(async move { Ok(writer.write_all(batch).await) }, move |written| {
            answer(SettleAnswer::Written(written))
        });
    }

    fn next_batch(&mut self, now: Instant) -> Vec<Decided<H>> {
        let is_time = self.failed_since.is_some_and(|since| now >= since + GATHER);
        if is_time || self.decided.is_empty() {
            self.failed_since = None;
            return std::mem::take(&mut self.failed);
        }
        std::mem::take(&mut self.decided)
    }

    /// Takes in an answer. Returns the verdicts that need no more writing.
    pub(super) fn answered(&mut self, answer: SettleAnswer) -> Vec<Settled> {
        match answer {
            SettleAnswer::Written(Ok(written)) => return self.written(&written),
            // A store that panics on these will do so again.
            SettleAnswer::Written(Err(error)) => {
                self.observers.on_event(&RelayEvent::failed(Component::Settle, &error));
                let writing = std::mem::take(&mut self.writing);
                writing.into_iter().for_each(|decided| self.refuse(decided));
            }
            SettleAnswer::StillLocked(still) => {
                let free = self.locked.answered(still, instant());
                free.into_iter().for_each(|decided| self.push(decided));
            }
        }
        Vec::new()
    }

    fn written(&mut self, written: &Written) -> Vec<Settled> {
        match self.fence {
            Fence::Shards => {
                crash_point!("settle.taken");
            }
            Fence::ClaimedRows => {
                crash_point!("rows.settle.taken");
            }
            Fence::LocalRows => {}
        }
        let mut settled = Vec::with_capacity(self.writing.len());
        for decided in std::mem::take(&mut self.writing) {
            let (seq, shard) = (decided.dispatched.row.seq, decided.dispatched.row.shard);
            if written.failed.contains(&seq) {
                self.refuse(decided);
            } else if written.locked.contains(&seq) {
                self.set_aside(decided);
            } else {
                let is_applied = written.applied.contains(&seq);
                let is_shard_lost = written.refused.contains(&shard);
                settled.push(self.settled(decided, is_applied, is_shard_lost));
            }
        }
        settled
    }

    fn settled(&self, decided: Decided<H>, is_applied: bool, is_shard_lost: bool) -> Settled {
        let Decided { dispatched, verdict, .. } = decided;
        if !is_applied {
            self.observers.on_event(&RelayEvent::Fenced { event_id: dispatched.event_id() });
        }
        Settled { dispatched, verdict, is_applied, is_shard_lost }
    }

    fn refuse(&mut self, decided: Decided<H>) {
        self.refused_until.get_or_insert_with(|| instant() + self.pause);
        self.refused.push(decided);
    }

    /// Keeps a verdict until its row is free.
    fn set_aside(&mut self, decided: Decided<H>) {
        let (seq, event_id) = (decided.dispatched.row.seq, decided.dispatched.event_id());
        self.observers.on_event(&RelayEvent::RowLocked { seq, event_id });
        self.locked.push(decided, instant());
    }
}

impl<H> Decided<H> {
    fn settlement(&self) -> Settlement {
        Settlement {
            shard: self.dispatched.row.shard,
            epoch: self.dispatched.epoch,
            seq: self.dispatched.row.seq,
            token: self.dispatched.token,
            verdict: self.verdict.clone(),
            settled_by: self.settled_by(),
        }
    }

    fn row_verdict(&self) -> RowVerdict {
        RowVerdict {
            row: self.dispatched.row_lease(),
            verdict: self.verdict.clone(),
            settled_by: self.settled_by(),
        }
    }

    /// What is deleted keeps no name.
    fn settled_by(&self) -> Option<String> {
        let is_kept = !matches!(self.verdict, Verdict::Delete);
        self.dispatched.route.clone().filter(|_| is_kept)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Timestamp;
    use crate::envelope::Envelope;
    use crate::id::ShardId;
    use crate::tx::Inserted;
    use crate::verdict::ErrorText;

    fn settler() -> Settler<()> {
        let pause = Duration::from_secs(5);
        Settler::new(Fence::Shards, OwnerId::generate(), pause, Observers::default())
    }

    fn decided(verdict: Verdict) -> Decided<()> {
        let envelope = Envelope::json("test.step", &1).unwrap();
        let occurred_at = Timestamp::from_unix_micros(0);
        let inserted = Inserted { seq: Seq(1), shard: ShardId(0), occurred_at, is_next: true };
        Decided { dispatched: Dispatched::of_local(&envelope, inserted), verdict, hold: () }
    }

    fn failed() -> Decided<()> {
        decided(Verdict::Retry { delay: Duration::ZERO, error: ErrorText::new("no") })
    }

    fn done() -> Decided<()> {
        decided(Verdict::Delete)
    }

    #[test]
    fn failures_wait_while_there_is_success_but_not_for_long() {
        let (mut settler, now) = (settler(), instant());
        [done(), failed(), done()].into_iter().for_each(|it| settler.push(it));
        assert_eq!(settler.next_batch(now).len(), 2);

        settler.push(done());
        let next = settler.next_batch(instant() + GATHER);
        assert!(matches!(next[..], [Decided { verdict: Verdict::Retry { .. }, .. }]), "{next:?}");
        assert_eq!(settler.waiting(), 1);
    }

    #[test]
    fn failures_alone_are_written_at_once() {
        let mut settler = settler();
        settler.push(failed());

        assert_eq!(settler.next_batch(instant()).len(), 1);
        assert!(settler.is_quiet());
    }

    #[test]
    fn a_batch_that_the_store_panics_on_is_tried_again_after_a_pause() {
        let mut settler = settler();
        settler.writing.push(done());
        let error = crate::error::Error::new(crate::error::ErrorKind::Unavailable, "panicked");

        let settled = settler.answered(SettleAnswer::Written(Err(error)));

        assert!(settled.is_empty() && settler.is_quiet());
        assert!(settler.next_timer() > Some(instant() + Duration::from_secs(4)));
        settler.retry_refused();
        assert_eq!((settler.waiting(), settler.len()), (1, 1));
    }
}
