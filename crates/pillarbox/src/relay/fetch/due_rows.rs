//! Due rows: makes waiting rows new when their time has come, and new rows wait whose time has not.

use std::{sync::Arc, time::Duration};

use tokio::task::Id;
use tokio::time::Instant;

use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{ShardId, jitter};
use crate::relay::fetch::shard_reader::no_answer;
use crate::store::{Due, Pending, Promote, RowLease, Store};

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
    look: Option<Promotion>,
    /// Rows that were read before their time.
    early: Vec<RowLease>,
    /// The relay stops: what is due later stays in the table.
    is_stopping: bool,
}

/// A look under way.
#[derive(Debug)]
struct Promotion {
    id: Id,
    begun: Instant,
}

impl DueRows {
    /// The first look is due at once.
    pub(crate) fn new(poll: Duration, now: Instant) -> Self {
        let (next, early) = (Some(now), Vec::new());
        Self { poll, next, last: now, look: None, early, is_stopping: false }
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
        self.look.is_some() || (self.is_stopping && self.next.is_some())
    }

    /// When to look next, unless a look is under way.
    pub(crate) fn next_timer(&self) -> Option<Instant> {
        self.next.filter(|_| self.look.is_none())
    }

    /// Whether this task looks.
    pub(crate) fn is_looked_by(&self, id: Id) -> bool {
        self.look.as_ref().is_some_and(|look| look.id == id)
    }

    /// Begins a look at these shards, if it is time.
    pub(crate) fn start(
        &mut self,
        now: Instant,
        shards: impl FnOnce() -> Vec<ShardId>,
        spawn: impl FnOnce(Asked) -> Id,
    ) {
        let is_due = self.next.is_some_and(|next| next <= now) || !self.early.is_empty();
        if self.look.is_some() || !is_due {
            return;
        }
        let early = std::mem::take(&mut self.early);
        let asked = Asked { early, promote: Promote { shards: shards(), limit: LIMIT } };
        self.look = Some(Promotion { id: spawn(asked), begun: now });
        self.next = None;
    }

    /// A look has ended. One that took long is not repeated soon, whatever is due.
    pub(crate) fn ended(&mut self, due: &Result<Due>, now: Instant) {
        let Some(Promotion { begun, .. }) = self.look.take() else { return };
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

/// What a look is to do.
#[derive(Debug)]
pub(crate) struct Asked {
    early: Vec<RowLease>,
    promote: Promote,
}

/// Asks the store, as long as it is worth waiting for. Rows that could not be postponed are read again.
pub(crate) async fn look(store: Arc<dyn Store>, asked: Asked, patience: Duration) -> Result<Due> {
    let looking = async {
        crash_point!("promote.before"?);
        if !asked.early.is_empty() {
            store.postpone(&asked.early).await?;
        }
        let due = store.promote(&asked.promote).await?;
        crash_point!("promote.after"?);
        Ok(due)
    };
    tokio::time::timeout(patience, looking).await.unwrap_or_else(|_| Err(no_answer()))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;
    use crate::error::{Error, ErrorKind};

    const POLL: Duration = Duration::from_secs(1);

    /// Whether a look begins.
    async fn begins(due: &mut DueRows, now: Instant) -> bool {
        let (task, mut has_begun) = (tokio::spawn(async {}), false);
        due.start(now, Vec::new, |_| {
            has_begun = true;
            task.id()
        });
        task.await.unwrap();
        has_begun
    }

    fn found(next: Option<Duration>) -> Result<Due> {
        Ok(Due { rows: Vec::new(), next })
    }

    /// One that has looked and found nothing.
    async fn idle() -> (DueRows, Instant) {
        let now = instant();
        let mut due = DueRows::new(POLL, now);
        assert!(begins(&mut due, now).await, "the first look is due at once");
        due.ended(&found(None), now);
        (due, now)
    }

    #[tokio::test]
    async fn it_looks_with_every_poll() {
        let (mut due, now) = idle().await;

        assert!(!begins(&mut due, now + POLL / 3).await);
        assert!(begins(&mut due, now + POLL * 2).await);
        assert!(!begins(&mut due, now + POLL * 4).await, "one look at a time");
    }

    #[tokio::test]
    async fn it_looks_when_the_next_row_is_due() {
        let (mut due, now) = idle().await;
        due.at(now + POLL / 4);

        assert!(!begins(&mut due, now + POLL / 5).await);
        assert!(begins(&mut due, now + POLL / 3).await);
        due.ended(&found(Some(POLL / 10)), now + POLL / 3);
        assert!(begins(&mut due, now + POLL / 2).await, "as the store has said");
    }

    #[tokio::test]
    async fn it_looks_again_at_once_while_there_are_more() {
        let (mut due, now) = idle().await;
        due.at(now);
        assert!(begins(&mut due, now + POLL / 3).await);

        due.ended(&found(Some(Duration::ZERO)), now + POLL / 3);

        assert!(begins(&mut due, now + POLL / 3).await);
    }

    #[tokio::test]
    async fn a_row_that_is_due_during_a_look_is_not_forgotten() {
        let now = instant();
        let mut due = DueRows::new(POLL, now);
        begins(&mut due, now).await;

        due.at(now + POLL / 4);
        due.ended(&found(None), now);

        assert!(begins(&mut due, now + POLL / 3).await);
    }

    #[tokio::test]
    async fn a_look_that_took_long_is_not_repeated_soon() {
        let now = instant();
        let mut due = DueRows::new(POLL, now);
        begins(&mut due, now).await;

        due.ended(&found(None), now + POLL);

        assert!(!begins(&mut due, now + POLL * 40).await);
        due.at(now);
        assert!(begins(&mut due, now + POLL * 40).await, "unless a row is known to be due");
    }

    #[tokio::test]
    async fn a_look_that_failed_is_repeated() {
        let now = instant();
        let mut due = DueRows::new(POLL, now);
        begins(&mut due, now).await;

        due.ended(&Err(Error::new(ErrorKind::Unavailable, "gone")), now);

        assert!(begins(&mut due, now + POLL * 2).await);
    }

    #[tokio::test]
    async fn a_stop_looks_once_for_what_is_due_now() {
        let (mut due, now) = idle().await;
        due.look_last(now);
        assert!(due.is_looking());
        assert!(begins(&mut due, now).await);
        due.at(now);

        due.ended(&found(Some(POLL / 10)), now);

        assert!(!due.is_looking() && !begins(&mut due, now + POLL * 4).await);
    }
}
