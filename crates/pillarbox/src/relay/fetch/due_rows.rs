//! Due rows: makes waiting rows new when their time has come, and new rows wait whose time has not.

use std::time::Duration;

use tokio::time::Instant;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{ShardId, jitter};
use crate::relay::store_tasks::StoreTasks;
use crate::store::{Due, DueRow, Pending, Promote, RowLease, Store};
use crate::telemetry::{Component, Observers, RelayEvent};

/// As many rows become new at a time.
const LIMIT: u32 = 1000;

/// The database counts from when it wrote, in milliseconds on SQLite: looking a moment too early
/// would be in vain.
const SLACK: Duration = Duration::from_millis(2);

/// Looks come no closer than this: many rows may be due one after the other.
const GAP: Duration = Duration::from_millis(5);

/// A commit of this process may have brought a delayed event: it is looked for this soon.
const HINT: Duration = Duration::from_millis(50);

/// A look takes at most one part in so many of a connection's time where it finds nothing.
const SHARE: u32 = 50;

/// When to look for waiting rows that are due, and rows that are to wait.
#[derive(Debug)]
pub(crate) struct DueRows {
    poll: Duration,
    /// When to look next, unless a look is under way.
    next: Option<Instant>,
    /// When the last look ended.
    last: Instant,
    /// When the look under way began.
    begun: Option<Instant>,
    /// Rows that were read before their time.
    early: Vec<RowLease>,
    /// The relay stops: what is due later stays in the table.
    is_stopping: bool,
    observers: Observers,
}

impl DueRows {
    /// The first look is due at once.
    pub(crate) fn new(poll: Duration, now: Instant, observers: Observers) -> Self {
        let (next, early) = (Some(now), Vec::new());
        Self { poll, next, last: now, begun: None, early, is_stopping: false, observers }
    }

    /// A row is due then.
    pub(crate) fn at(&mut self, when: Instant) {
        self.look_by(when + SLACK);
    }

    /// There may be a row that is due soon.
    pub(crate) fn hint(&mut self) {
        self.look_by(self.last + HINT);
    }

    fn look_by(&mut self, when: Instant) {
        if !self.is_stopping {
            self.next = Some(self.next.map_or(when, |next| next.min(when)));
        }
    }

    /// Takes note of the rows that were read before their time.
    pub(crate) fn note_early(&mut self, rows: &[Pending]) {
        self.early.extend(rows.iter().filter(|row| row.is_early).map(RowLease::from));
    }

    /// Looks for what is due now, and not again after that.
    pub(crate) fn look_last(&mut self, now: Instant) {
        (self.is_stopping, self.next) = (true, Some(now));
    }

    /// Whether rows may become new that are due now.
    pub(crate) fn is_looking(&self) -> bool {
        self.begun.is_some() || (self.is_stopping && self.next.is_some())
    }

    /// When to look next, unless a look is under way.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.next.filter(|_| self.begun.is_none())
    }

    /// Starts a look at these shards, if it is time.
    pub(crate) fn start<A: Send + 'static>(
        &mut self,
        now: Instant,
        shards: impl FnOnce() -> Vec<ShardId>,
        tasks: &mut StoreTasks<A>,
        answer: fn(Result<Due>) -> A,
    ) {
        if let Some(early) = self.begin(now) {
            let (store, promote) = (tasks.store(), Promote { shards: shards(), limit: LIMIT });
            tasks.call(async move { look(&*store, &early, &promote).await }, answer);
        }
    }

    /// Begins a look, if it is time. Returns the rows that are to wait.
    fn begin(&mut self, now: Instant) -> Option<Vec<RowLease>> {
        let is_due = self.next.is_some_and(|next| next <= now) || !self.early.is_empty();
        if self.begun.is_some() || !is_due {
            return None;
        }
        (self.begun, self.next) = (Some(now), None);
        Some(std::mem::take(&mut self.early))
    }

    /// Takes in an answer. Returns the rows that are new now.
    pub(crate) fn answered(&mut self, due: Result<Due>, now: Instant) -> Vec<DueRow> {
        self.ended(&due, now);
        due.map(|due| due.rows).unwrap_or_else(|error| {
            self.observers.on_event(&RelayEvent::failed(Component::Read, &error));
            Vec::new()
        })
    }

    /// A look has ended. One that took long is not repeated soon, whatever is due.
    fn ended(&mut self, due: &Result<Due>, now: Instant) {
        let Some(begun) = self.begun.take() else { return };
        let took = now.saturating_duration_since(begun);
        self.last = now;
        let poll = self.poll.mul_f64(jitter());
        match due {
            // There are more.
            Ok(Due { next: Some(Duration::ZERO), .. }) => return self.next = Some(now),
            _ if self.is_stopping => return self.next = None,
            Ok(Due { next: Some(wait), .. }) if *wait < poll => self.look_by(now + *wait + SLACK),
            Ok(_) => self.look_by(now + poll.max(took * SHARE)),
            Err(_) => self.look_by(now + poll),
        }
        self.next = self.next.map(|next| next.max(now + took.max(GAP)));
    }
}

/// Rows that could not be postponed are read again.
async fn look(store: &dyn Store, early: &[RowLease], promote: &Promote) -> Result<Due> {
    crash_point!("promote.before"?);
    if !early.is_empty() {
        store.postpone(early).await?;
    }
    let due = store.promote(promote).await?;
    crash_point!("promote.after"?);
    Ok(due)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;
    use crate::error::{Error, ErrorKind};

    const POLL: Duration = Duration::from_secs(1);

    fn due_rows(now: Instant) -> DueRows {
        DueRows::new(POLL, now, Observers::default())
    }

    fn found(next: Option<Duration>) -> Result<Due> {
        Ok(Due { rows: Vec::new(), next })
    }

    /// One that has looked and found nothing.
    fn idle() -> (DueRows, Instant) {
        let now = instant();
        let mut due = due_rows(now);
        assert!(due.begin(now).is_some(), "the first look is due at once");
        due.ended(&found(None), now);
        (due, now)
    }

    #[test]
    fn it_looks_with_every_poll() {
        let (mut due, now) = idle();

        assert!(due.begin(now + POLL / 3).is_none());
        assert!(due.begin(now + POLL * 2).is_some());
        assert!(due.begin(now + POLL * 4).is_none(), "one look at a time");
    }

    #[test]
    fn it_looks_when_the_next_row_is_due() {
        let (mut due, now) = idle();
        due.at(now + POLL / 4);

        assert!(due.begin(now + POLL / 5).is_none());
        assert!(due.begin(now + POLL / 3).is_some());
        due.ended(&found(Some(POLL / 10)), now + POLL / 3);
        assert!(due.begin(now + POLL / 2).is_some(), "as the store has said");
    }

    #[test]
    fn it_looks_again_at_once_while_there_are_more() {
        let (mut due, now) = idle();
        due.at(now);
        assert!(due.begin(now + POLL / 3).is_some());

        due.ended(&found(Some(Duration::ZERO)), now + POLL / 3);

        assert!(due.begin(now + POLL / 3).is_some());
    }

    #[test]
    fn a_row_that_is_due_during_a_look_is_not_forgotten() {
        let now = instant();
        let mut due = due_rows(now);
        due.begin(now).unwrap();

        due.at(now + POLL / 4);
        due.ended(&found(None), now);

        assert!(due.begin(now + POLL / 3).is_some());
    }

    #[test]
    fn a_look_that_took_long_is_not_repeated_soon() {
        let now = instant();
        let mut due = due_rows(now);
        due.begin(now).unwrap();

        due.ended(&found(None), now + POLL);

        assert!(due.begin(now + POLL * 40).is_none());
        due.at(now);
        assert!(due.begin(now + POLL * 40).is_some(), "unless a row is known to be due");
    }

    #[test]
    fn a_look_that_failed_is_repeated() {
        let now = instant();
        let mut due = due_rows(now);
        due.begin(now).unwrap();

        due.ended(&Err(Error::new(ErrorKind::Unavailable, "gone")), now);

        assert!(due.begin(now + POLL * 2).is_some());
    }

    #[test]
    fn a_stop_looks_once_for_what_is_due_now() {
        let (mut due, now) = idle();
        due.look_last(now);
        assert!(due.is_looking());
        assert!(due.begin(now).is_some());
        due.at(now);

        due.ended(&found(Some(POLL / 10)), now);

        assert!(!due.is_looking() && due.begin(now + POLL * 4).is_none());
    }
}
