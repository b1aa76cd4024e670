//! Claimed rows that wait for a worker.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use crate::clock::Deadline;
use crate::id::Epoch;
use crate::local_queue::{LocalEvent, Permit};
use crate::relay::dispatch::crash_guard::Suspect;
use crate::relay::dispatch::deliverer::LeaseKind;
use crate::relay::dispatch::dispatched::Dispatched;
use crate::relay::dispatch::worker_pool::Assignment;
use crate::relay::fetch::local_events::{IN_A_ROW, lease_of};
use crate::relay::fetch::memory::InMemory;
use crate::relay::fetch::row_lease::RowLeaseGuard;
use crate::store::{Content, Pending, RowLease};

/// A row that waits for a worker.
#[derive(Debug)]
pub(crate) struct Waiting {
    pub(crate) guard: Arc<RowLeaseGuard>,
    since: Instant,
    row: Row,
}

#[derive(Debug)]
enum Row {
    Claimed(Box<Pending>, InMemory),
    Local(Box<LocalEvent>),
}

/// What is kept of a row from its start until its verdict is written.
#[derive(Debug)]
pub(crate) struct RowHold {
    pub(crate) guard: Arc<RowLeaseGuard>,
    /// Its place in the local queue, if it came from there.
    _permit: Option<Permit>,
    /// Its bytes in memory until it is delivered, if it came from the table.
    bytes: Option<InMemory>,
}

impl RowHold {
    /// Its content is gone from memory.
    pub(crate) fn unload(&mut self) {
        self.bytes = None;
    }
}

impl Waiting {
    pub(crate) fn claimed(row: Pending, until: Deadline, since: Instant, bytes: InMemory) -> Self {
        let guard = RowLeaseGuard::new(RowLease::from(&row), until);
        Self { guard, since, row: Row::Claimed(Box::new(row), bytes) }
    }

    /// A row of this process was inserted under a lease, as if it had been claimed.
    pub(crate) fn local(event: Box<LocalEvent>, since: Instant) -> Self {
        let guard = RowLeaseGuard::new(lease_of(&event), event.deadline);
        Self { guard, since, row: Row::Local(event) }
    }

    pub(crate) fn is_local(&self) -> bool {
        matches!(self.row, Row::Local(_))
    }

    /// Whether a relay had claimed it and never decided on it.
    pub(crate) fn is_suspect(&self) -> bool {
        matches!(&self.row, Row::Claimed(row, _) if row.lapsed)
    }

    /// What is delivered, and what is kept of it meanwhile.
    pub(crate) fn start(self) -> (Dispatched, RowHold, Assignment) {
        let is_suspect = self.is_suspect();
        let guard = self.guard;
        let (dispatched, content, permit, bytes) = match self.row {
            Row::Claimed(row, bytes) => {
                let dispatched = Dispatched::of(&row, Epoch(0)).suspect(is_suspect);
                (dispatched, row.content, None, Some(bytes))
            }
            Row::Local(event) => {
                let LocalEvent { envelope, inserted, room, .. } = *event;
                let dispatched = Dispatched::of_local(&envelope, inserted);
                (dispatched, Content::Event(envelope), Some(room), None)
            }
        };
        let assignment = dispatched.assignment(LeaseKind::Claim(Arc::clone(&guard)), content);
        (dispatched, RowHold { guard, _permit: permit, bytes }, assignment)
    }
}

impl Suspect for Waiting {
    fn row(&self) -> RowLease {
        self.guard.row
    }
}

/// Two lines, from memory and from the table, of which the workers take in turn; and suspects, which
/// come first and are not given back, for that would clear them.
#[derive(Debug, Default)]
pub(crate) struct ReadyRows {
    local: VecDeque<Waiting>,
    table: VecDeque<Waiting>,
    suspects: VecDeque<Waiting>,
    in_a_row: u32,
}

impl ReadyRows {
    pub(crate) fn push(&mut self, waiting: Waiting) {
        let line = match () {
            () if waiting.is_local() => &mut self.local,
            () if waiting.is_suspect() => &mut self.suspects,
            () => &mut self.table,
        };
        line.push_back(waiting);
    }

    /// The next to start; two of three are local at most while the table has something.
    pub(crate) fn next(&mut self) -> Option<Waiting> {
        if let Some(suspect) = self.suspects.pop_front() {
            return Some(suspect);
        }
        let is_turn_of_local = self.in_a_row < IN_A_ROW || self.table.is_empty();
        if let Some(waiting) = self.local.pop_front_if(|_| is_turn_of_local) {
            self.in_a_row += 1;
            return Some(waiting);
        }
        self.in_a_row = 0;
        self.table.pop_front()
    }

    /// How many from memory wait.
    pub(crate) fn local(&self) -> usize {
        self.local.len()
    }

    /// How many of the table wait.
    pub(crate) fn claimed(&self) -> usize {
        self.table.len() + self.suspects.len()
    }

    /// Since when the one has waited that has waited longest.
    pub(crate) fn oldest(&self) -> Option<Instant> {
        let first = [&self.local, &self.table].map(|line| line.front().map(|it| it.since));
        first.into_iter().flatten().min()
    }

    /// Takes those out that have waited since then or before; they came in the order of time.
    pub(crate) fn take_since(&mut self, moment: Instant) -> Vec<RowLease> {
        let mut taken = Vec::new();
        for line in [&mut self.local, &mut self.table] {
            while let Some(waiting) = line.pop_front_if(|it| it.since <= moment) {
                taken.push(waiting.guard.row);
            }
        }
        taken
    }

    /// Takes all of them out.
    pub(crate) fn take_all(&mut self) -> Vec<RowLease> {
        let all = self.local.drain(..).chain(self.table.drain(..)).chain(self.suspects.drain(..));
        all.map(|waiting| waiting.guard.row).collect()
    }

    /// Forgets those that are another's by now.
    pub(crate) fn drop_lost(&mut self) {
        self.local.retain(|waiting| !waiting.guard.is_lost());
        self.table.retain(|waiting| !waiting.guard.is_lost());
        self.suspects.retain(|waiting| !waiting.guard.is_lost());
    }

    pub(crate) fn guards(&self) -> impl Iterator<Item = &Arc<RowLeaseGuard>> {
        self.local.iter().chain(&self.table).chain(&self.suspects).map(|waiting| &waiting.guard)
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::clock::{SystemClock, Timestamp, instant};
    use crate::envelope::Envelope;
    use crate::id::{OwnerId, Seq, ShardId, Token};
    use crate::local_queue::{Handover, LocalQueue, LocalRelay, Message};
    use crate::relay::fetch::memory::Memory;
    use crate::store::{Content, Predecessor, Status};
    use crate::telemetry::Observers;
    use crate::tx::Inserted;

    fn event() -> Envelope {
        Envelope::json("test.step", &1).unwrap()
    }

    fn from_table(lapsed: bool) -> Waiting {
        let row = Pending {
            seq: Seq(1),
            shard: ShardId(0),
            key: None,
            token: Token(1),
            status: Status::New,
            attempts: 0,
            due_in: Duration::ZERO,
            is_early: false,
            lapsed,
            before: Predecessor::Nothing,
            content: Content::Event(event()),
        };
        let until = Deadline::after(&SystemClock, Duration::from_secs(60));
        Waiting::claimed(row, until, instant(), Memory::default().hold(0))
    }

    /// So many from memory.
    fn local(count: usize) -> Vec<Waiting> {
        let (queue, mut messages) = LocalQueue::new(100);
        queue.open(LocalRelay {
            owner: OwnerId::generate(),
            lease: Duration::from_secs(60),
            clock: Arc::new(SystemClock),
            observers: Observers::default(),
            shards: None,
        });
        let sent = vec![event(); count];
        let occurred_at = Timestamp::from_unix_micros(0);
        let inserted = Inserted { seq: Seq(2), shard: ShardId(0), occurred_at, is_next: true };
        let reservation = queue.reserve(&sent).unwrap();
        Handover::new(queue, reservation, vec![Some(inserted); count], &sent).keep(&sent);
        let leased = std::iter::from_fn(|| match messages.try_next()? {
            Message::Leased(event) => Some(Waiting::local(event, instant())),
            other => panic!("{other:?}"),
        });
        leased.collect()
    }

    /// Where the next ones come from: local queue, table or suspect.
    fn drawn(line: &mut ReadyRows) -> String {
        let kind = |it: Waiting| match () {
            () if it.is_local() => 'h',
            () if it.is_suspect() => 's',
            () => 't',
        };
        std::iter::from_fn(|| line.next().map(kind)).collect()
    }

    #[test]
    fn two_of_three_are_local_while_the_table_has_something() {
        let mut line = ReadyRows::default();
        local(9).into_iter().for_each(|it| line.push(it));
        (0..3).for_each(|_| line.push(from_table(false)));
        line.push(from_table(true));

        assert_eq!(drawn(&mut line), "shhthhthhthhh");
    }

    #[test]
    fn neither_waits_for_the_other_when_that_has_nothing() {
        let mut line = ReadyRows::default();
        (0..3).for_each(|_| line.push(from_table(false)));
        assert_eq!(drawn(&mut line), "ttt");

        local(5).into_iter().for_each(|it| line.push(it));
        assert_eq!(drawn(&mut line), "hhhhh");
        (0..2).for_each(|_| line.push(from_table(false)));
        local(3).into_iter().for_each(|it| line.push(it));
        assert_eq!(drawn(&mut line), "hhtht", "from the beginning");
    }
}
