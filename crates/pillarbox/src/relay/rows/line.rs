//! The line: rows in hand that wait for a worker.

use std::collections::VecDeque;
use std::sync::Arc;

use tokio::time::Instant;

use super::tenure::RowTenure;
use crate::clock::Deadline;
use crate::id::Epoch;
use crate::local_queue::{LocalEvent, Permit};
use crate::relay::hot::{IN_A_ROW, lease_of};
use crate::relay::job::Job;
use crate::relay::memory::InMemory;
use crate::store::{Content, Pending, RowLease};

/// A row that waits for a worker.
#[derive(Debug)]
pub(super) struct Waiting {
    pub(super) tenure: Arc<RowTenure>,
    since: Instant,
    row: Row,
}

#[derive(Debug)]
enum Row {
    Claimed(Box<Pending>, InMemory),
    Hot(Box<LocalEvent>),
}

/// A delivery under way, kept here so that a panic cannot take it along.
#[derive(Debug)]
pub(super) struct UnderWay {
    pub(super) job: Job,
    pub(super) tenure: Arc<RowTenure>,
    /// Its place in the hot lane, if it came through it.
    pub(super) room: Option<Permit>,
    /// Its bytes in memory, if it came from the table.
    pub(super) _bytes: Option<InMemory>,
}

impl Waiting {
    pub(super) fn claimed(row: Pending, until: Deadline, since: Instant, bytes: InMemory) -> Self {
        let tenure = RowTenure::new(RowLease::from(&row), until);
        Self { tenure, since, row: Row::Claimed(Box::new(row), bytes) }
    }

    /// A hot row was born under a lease, as if it had been claimed.
    pub(super) fn hot(event: Box<LocalEvent>, since: Instant) -> Self {
        let tenure = RowTenure::new(lease_of(&event), event.deadline);
        Self { tenure, since, row: Row::Hot(event) }
    }

    pub(super) fn is_hot(&self) -> bool {
        matches!(self.row, Row::Hot(_))
    }

    /// Whether somebody had it in hand and never decided on it.
    pub(super) fn is_suspect(&self) -> bool {
        matches!(&self.row, Row::Claimed(row, _) if row.lapsed)
    }

    /// What is delivered, and what is kept of it meanwhile.
    pub(super) fn start(self) -> (UnderWay, Content) {
        let is_suspect = self.is_suspect();
        let tenure = self.tenure;
        match self.row {
            Row::Claimed(row, bytes) => {
                let job = Job::of(&row, Epoch(0)).suspect(is_suspect);
                (UnderWay { job, tenure, room: None, _bytes: Some(bytes) }, row.content)
            }
            Row::Hot(event) => {
                let LocalEvent { envelope, place, room, .. } = *event;
                let job = Job::of_hot(&envelope, place);
                let under_way = UnderWay { job, tenure, room: Some(room), _bytes: None };
                (under_way, Content::Event(envelope))
            }
        }
    }
}

/// Two lines, from memory and from the table, of which the workers take in turn; and suspects, which
/// come first and are not given back, for that would clear them.
#[derive(Debug, Default)]
pub(super) struct Line {
    hot: VecDeque<Waiting>,
    table: VecDeque<Waiting>,
    suspects: VecDeque<Waiting>,
    in_a_row: u32,
}

impl Line {
    pub(super) fn push(&mut self, waiting: Waiting) {
        let line = match () {
            () if waiting.is_hot() => &mut self.hot,
            () if waiting.is_suspect() => &mut self.suspects,
            () => &mut self.table,
        };
        line.push_back(waiting);
    }

    /// The next to start; two of three are hot at most while the table has something.
    pub(super) fn next(&mut self) -> Option<Waiting> {
        if let Some(suspect) = self.suspects.pop_front() {
            return Some(suspect);
        }
        let is_turn_of_hot = self.in_a_row < IN_A_ROW || self.table.is_empty();
        if let Some(waiting) = self.hot.pop_front_if(|_| is_turn_of_hot) {
            self.in_a_row += 1;
            return Some(waiting);
        }
        self.in_a_row = 0;
        self.table.pop_front()
    }

    /// How many from memory wait.
    pub(super) fn hot(&self) -> usize {
        self.hot.len()
    }

    /// How many of the table wait.
    pub(super) fn claimed(&self) -> usize {
        self.table.len() + self.suspects.len()
    }

    /// Since when the one has waited that has waited longest.
    pub(super) fn oldest(&self) -> Option<Instant> {
        let first = [&self.hot, &self.table].map(|line| line.front().map(|it| it.since));
        first.into_iter().flatten().min()
    }

    /// Takes those out that have waited since then or before; they came in the order of time.
    pub(super) fn take_since(&mut self, moment: Instant) -> Vec<RowLease> {
        let mut taken = Vec::new();
        for line in [&mut self.hot, &mut self.table] {
            while let Some(waiting) = line.pop_front_if(|it| it.since <= moment) {
                taken.push(waiting.tenure.row);
            }
        }
        taken
    }

    /// Takes all of them out.
    pub(super) fn take_all(&mut self) -> Vec<RowLease> {
        let all = self.hot.drain(..).chain(self.table.drain(..)).chain(self.suspects.drain(..));
        all.map(|waiting| waiting.tenure.row).collect()
    }

    /// Forgets those that are another's by now.
    pub(super) fn drop_lost(&mut self) {
        self.hot.retain(|waiting| !waiting.tenure.is_lost());
        self.table.retain(|waiting| !waiting.tenure.is_lost());
        self.suspects.retain(|waiting| !waiting.tenure.is_lost());
    }

    pub(super) fn tenures(&self) -> impl Iterator<Item = &Arc<RowTenure>> {
        self.hot.iter().chain(&self.table).chain(&self.suspects).map(|waiting| &waiting.tenure)
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
    use crate::relay::memory::Memory;
    use crate::store::{Content, Predecessor, Status};
    use crate::telemetry::Observers;
    use crate::tx::Inserted;

    fn event() -> Envelope {
        Envelope::json("test.step", &1).unwrap()
    }

    fn cold(lapsed: bool) -> Waiting {
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
    fn hot(count: usize) -> Vec<Waiting> {
        let (lane, mut mail) = LocalQueue::new(100);
        lane.open(LocalRelay {
            owner: OwnerId::generate(),
            lease: Duration::from_secs(60),
            clock: Arc::new(SystemClock),
            observers: Observers::default(),
            shards: None,
        });
        let sent = vec![event(); count];
        let occurred_at = Timestamp::from_unix_micros(0);
        let place = Inserted { seq: Seq(2), shard: ShardId(0), occurred_at, is_next: true };
        let reservation = lane.reserve(&sent).unwrap();
        Handover::new(lane, reservation, vec![Some(place); count], &sent).keep(&sent);
        let leased = std::iter::from_fn(|| match mail.try_next()? {
            Message::Leased(event) => Some(Waiting::hot(event, instant())),
            other => panic!("{other:?}"),
        });
        leased.collect()
    }

    /// Where the next ones come from: hot, table or suspect.
    fn drawn(line: &mut Line) -> String {
        let kind = |it: Waiting| match () {
            () if it.is_hot() => 'h',
            () if it.is_suspect() => 's',
            () => 't',
        };
        std::iter::from_fn(|| line.next().map(kind)).collect()
    }

    #[test]
    fn two_of_three_are_hot_while_the_table_has_something() {
        let mut line = Line::default();
        hot(9).into_iter().for_each(|it| line.push(it));
        (0..3).for_each(|_| line.push(cold(false)));
        line.push(cold(true));

        assert_eq!(drawn(&mut line), "shhthhthhthhh");
    }

    #[test]
    fn neither_waits_for_the_other_when_that_has_nothing() {
        let mut line = Line::default();
        (0..3).for_each(|_| line.push(cold(false)));
        assert_eq!(drawn(&mut line), "ttt");

        hot(5).into_iter().for_each(|it| line.push(it));
        assert_eq!(drawn(&mut line), "hhhhh");
        (0..2).for_each(|_| line.push(cold(false)));
        hot(3).into_iter().for_each(|it| line.push(it));
        assert_eq!(drawn(&mut line), "hhtht", "from the beginning");
    }
}
