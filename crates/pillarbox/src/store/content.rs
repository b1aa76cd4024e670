//! Content: payload and headers of a row, which a read brings only within its budget.

use std::collections::{BTreeSet, HashMap, HashSet};

use super::{Pending, Predecessor};
use crate::envelope::{Envelope, InvalidRow};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use crate::envelope::{MAX_HEADERS_SIZE, MAX_PAYLOAD, Row, Sizes};
use crate::id::{Seq, ShardId};

/// What a row holds, as far as it was read.
#[derive(Clone, Debug)]
pub enum Content {
    /// The event.
    Event(Envelope),
    /// The row is not a valid event, and why. It can only be given up.
    Invalid(InvalidRow),
    /// Payload and headers were not read: they are beyond the [`Budget`], or not needed yet. The row
    /// must not be started; a later read brings them.
    Unread {
        /// As many bytes as they can have.
        size: usize,
    },
}

impl Content {
    /// The event, if it was read and is valid.
    pub fn event(&self) -> Option<&Envelope> {
        match self {
            Self::Event(envelope) => Some(envelope),
            Self::Invalid(_) | Self::Unread { .. } => None,
        }
    }

    /// Whether it is still to be read.
    pub fn is_unread(&self) -> bool {
        matches!(self, Self::Unread { .. })
    }

    /// Bytes of payload and headers in memory.
    pub fn bytes(&self) -> usize {
        self.event().map_or(0, Envelope::size)
    }
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl Content {
    /// The event, or why the row is none, where all that an event may have was asked for.
    pub(super) fn whole(self) -> Result<Envelope, InvalidRow> {
        match self {
            Self::Event(envelope) => Ok(envelope),
            Self::Invalid(bad) => Err(bad),
            Self::Unread { size } => {
                let cause = format!("its {size} bytes of payload and headers were not read");
                Err(InvalidRow { event_id: String::new(), cause })
            }
        }
    }
}

impl From<Result<Envelope, InvalidRow>> for Content {
    fn from(opened: Result<Envelope, InvalidRow>) -> Self {
        match opened {
            Ok(envelope) => Self::Event(envelope),
            Err(bad) => Self::Invalid(bad),
        }
    }
}

/// How much content a read may bring.
///
/// # Contract
/// - The content of all rows together MUST NOT have more than `bytes`, except that the first row to
///   be started comes with its content, however large it is. The rest comes as [`Content::Unread`].
/// - What is larger than any event, in payload or headers, MUST NOT leave the database: it comes as
///   [`Content::Invalid`] with its size and the limit.
/// - Rows in `skip`, and rows that are not due or that another one [comes before](Predecessor) MAY come
///   without content.
#[derive(Clone, Debug)]
pub struct Budget {
    /// Bytes of payload and headers, of all rows together.
    pub bytes: usize,
    /// Rows whose content the reader has, or needs no more.
    pub skip: BTreeSet<Seq>,
}

impl Budget {
    /// So many bytes.
    pub const fn new(bytes: usize) -> Self {
        Self { bytes, skip: BTreeSet::new() }
    }

    /// As much as there is.
    pub const fn unlimited() -> Self {
        Self::new(usize::MAX)
    }

    /// How large the content of a row may be to come at once, where so many rows are asked for: all
    /// of them together keep within the budget then.
    pub fn fit(&self, rows: usize) -> usize {
        self.bytes / rows.max(1)
    }

    /// Whether a row that came without content is to be started, so that it should have some.
    fn wants(&self, row: &Pending) -> bool {
        row.content.is_unread()
            && row.due_in.is_zero()
            && row.before == Predecessor::Nothing
            && !self.skip.contains(&row.seq)
    }

    /// Which rows to fetch the content of. `line` is the number of the line that a row stands in: its
    /// shard or its key. Lines take turns, in order of their numbers, and each ends in front of the
    /// first row that does not fit: what is behind it could not be started.
    pub(super) fn choose(
        &self,
        rows: &[Pending],
        line: impl Fn(&Pending) -> usize,
    ) -> Vec<(ShardId, Seq)> {
        let mut lengths: HashMap<usize, usize> = HashMap::new();
        let mut wanted = Vec::new();
        for row in rows.iter().filter(|row| self.wants(row)) {
            let (line, Content::Unread { size }) = (line(row), &row.content) else { continue };
            let place = lengths.entry(line).or_default();
            wanted.push((*place, line, *size, (row.shard, row.seq)));
            *place += 1;
        }
        wanted.sort_by_key(|(place, line, ..)| (*place, *line));
        if wanted.is_empty() {
            return Vec::new();
        }
        let come: usize = rows.iter().map(|row| row.content.bytes()).sum();
        let mut left = self.bytes.saturating_sub(come);
        let (mut ended, mut chosen) = (HashSet::new(), Vec::new());
        for (_, line, size, row) in wanted {
            if (size > left && !chosen.is_empty()) || ended.contains(&line) {
                ended.insert(line);
                continue;
            }
            left = left.saturating_sub(size);
            chosen.push(row);
        }
        chosen
    }
}

/// Puts in what was fetched. A row that is not there any more leaves the page.
pub(super) fn fill(
    rows: &mut Vec<Pending>,
    chosen: &[(ShardId, Seq)],
    mut fetched: HashMap<Seq, Content>,
) {
    let chosen: HashSet<Seq> = chosen.iter().map(|(_, seq)| *seq).collect();
    rows.retain_mut(|row| {
        if !chosen.contains(&row.seq) {
            return true;
        }
        let found = fetched.remove(&row.seq);
        let is_there = found.is_some();
        found.into_iter().for_each(|content| row.content = content);
        is_there
    });
}

/// How many bytes of payload and headers a statement sends of a row: both, or none of the row.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[derive(Clone, Copy, Debug)]
pub(super) struct Fit {
    pub(super) payload: i64,
    pub(super) headers: i64,
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl Fit {
    /// Whatever an event may have.
    pub(super) const WHOLE: Self =
        Self { payload: MAX_PAYLOAD as i64, headers: MAX_HEADERS_SIZE as i64 };

    /// A quarter is for headers, which are small.
    pub(super) fn of(budget: &Budget, rows: usize) -> Self {
        let fit = i64::try_from(budget.fit(rows)).unwrap_or(i64::MAX);
        let headers = (fit / 4).min(Self::WHOLE.headers);
        Self { payload: (fit - fit / 4).min(Self::WHOLE.payload), headers }
    }
}

/// What a row holds, of which the database sent what fits, and sizes.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(super) fn opened(row: Row, sizes: Sizes) -> Content {
    if let Err(bad) = sizes.check(&row.event_id) {
        return Content::Invalid(bad);
    }
    let has_payload = row.payload.is_some() || row.payload_bytes.is_some();
    let is_whole =
        has_payload == sizes.payload.is_some() && row.headers.is_some() == sizes.headers.is_some();
    if is_whole { row.open().into() } else { Content::Unread { size: sizes.at_most() } }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::id::Token;
    use crate::store::Status;

    fn unread(shard: i16, seq: i64, size: usize) -> Pending {
        Pending {
            seq: Seq(seq),
            shard: ShardId(shard),
            key: None,
            token: Token(0),
            status: Status::New,
            attempts: 0,
            due_in: Duration::ZERO,
            is_early: false,
            lapsed: false,
            before: Predecessor::Nothing,
            content: Content::Unread { size },
        }
    }

    fn chosen(budget: &Budget, rows: &[Pending]) -> Vec<i64> {
        let line = |row: &Pending| row.shard.0.unsigned_abs().into();
        budget.choose(rows, line).iter().map(|(_, seq)| seq.0).collect()
    }

    #[test]
    fn lines_take_turns_within_the_budget() {
        let rows = [unread(0, 1, 4), unread(0, 2, 4), unread(0, 3, 4), unread(1, 4, 4)];

        assert_eq!(chosen(&Budget::new(12), &rows), [1, 4, 2]);
        assert_eq!(chosen(&Budget::new(11), &rows), [1, 4]);
        assert_eq!(chosen(&Budget::unlimited(), &rows), [1, 4, 2, 3]);
    }

    #[test]
    fn one_comes_whatever_its_size_and_nothing_behind_one_that_does_not_fit() {
        let rows = [unread(0, 1, 9), unread(1, 2, 9), unread(1, 3, 1)];

        assert_eq!(chosen(&Budget::new(0), &rows), [1]);
        assert_eq!(chosen(&Budget::new(10), &rows), [1]);
    }

    #[test]
    fn what_is_in_memory_counts() {
        let event = Envelope::bytes("a", vec![0; 10]).unwrap();
        let small = Pending { content: Content::Event(event), ..unread(0, 1, 0) };
        let rows = [small, unread(0, 2, 4), unread(0, 3, 4)];

        assert_eq!(chosen(&Budget::new(17), &rows), [2]);
        assert_eq!(chosen(&Budget::new(18), &rows), [2, 3]);
    }

    #[test]
    fn what_cannot_start_is_left_out() {
        let budget = Budget { skip: [Seq(1)].into(), ..Budget::unlimited() };
        let rows = [
            unread(0, 1, 4),
            Pending { before: Predecessor::Unread, ..unread(0, 2, 4) },
            Pending { due_in: Duration::from_secs(1), ..unread(0, 3, 4) },
            Pending { before: Predecessor::Waiting, ..unread(0, 4, 4) },
            unread(0, 5, 4),
        ];

        assert_eq!(chosen(&budget, &rows), [5]);
    }

    #[test]
    fn a_row_that_is_gone_leaves_the_page() {
        let mut rows = vec![unread(0, 1, 4), unread(0, 2, 4), unread(0, 3, 4)];
        let event = Content::Event(Envelope::bytes("a", vec![]).unwrap());

        fill(&mut rows, &[(ShardId(0), Seq(1)), (ShardId(0), Seq(2))], [(Seq(2), event)].into());

        let left: Vec<_> = rows.iter().map(|row| (row.seq.0, row.content.is_unread())).collect();
        assert_eq!(left, [(2, false), (3, true)]);
    }
}
