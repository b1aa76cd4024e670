//! Where the reads of a shard begin: at its head, or above rows that are not worth a look.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::Seq;

/// A transaction is seldom open for longer; what commits later still is found by a sweep.
const LONG_AGO: Duration = Duration::from_secs(1);

/// Three kinds of rows are passed. Those of keys that wait, below the base. Rows of slow routes,
/// until the pass has come to its end. And, while reads from the head are slow, what was seen long ago:
/// it is decided by now, and somebody's old snapshot may keep the database from clearing it away, so
/// that a read would walk through it all.
#[derive(Debug)]
pub(super) struct Cursor {
    /// HeadScan it heads of keys are read, not pages.
    base: Seq,
    skipped: Seq,
    /// All that could be seen at or below it was seen long ago.
    old: Seq,
    /// The newest row seen.
    newest: Seq,
    /// What is to be old next, and since when it has been seen.
    young: Option<(Instant, Seq)>,
    /// How often a look at the head was wanted, and which of these wishes has been met.
    wishes: u32,
    met: u32,
}

/// Where a read begins, and what was known then.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadStart {
    pub(super) floor: Seq,
    skipped: Seq,
    /// The wish that it meets, if it passes nothing but a skipped.
    wish: Option<u32>,
}

impl Cursor {
    pub(super) fn new() -> Self {
        let (base, skipped, old) = (Seq::START, Seq::START, Seq::START);
        Self { base, skipped, old, newest: Seq::START, young: None, wishes: 1, met: 0 }
    }

    /// Where to read next. What is in flight, from `lowest` on, is not passed: its keys would have to be
    /// read one by one.
    pub(super) fn begin(&self, is_slow: bool, lowest: Option<Seq>) -> ReadStart {
        let skipped = self.skipped;
        if !is_slow || self.met != self.wishes {
            return ReadStart { floor: skipped, skipped, wish: Some(self.wishes) };
        }
        let below_hand = lowest.map_or(self.old, |seq| Seq(seq.0.saturating_sub(1)));
        ReadStart { floor: skipped.max(self.old.min(below_hand)), skipped, wish: None }
    }

    /// What is old is to be looked at again, for late commits and replays.
    pub(super) fn look_back(&mut self) {
        self.wishes = self.wishes.wrapping_add(1);
    }

    /// From the base, skipped or not.
    pub(super) fn start_over(&mut self) {
        self.look_back();
        self.skipped = self.base;
    }

    /// Nothing at or below this row is read by pages from now on.
    pub(super) fn raise_base(&mut self, base: Seq) {
        self.base = base;
        self.skipped = self.skipped.max(base);
    }

    /// Pages begin at the head of the shard again.
    pub(super) fn drop_base(&mut self) {
        self.base = Seq::START;
        self.start_over();
    }

    /// Whether a read that began so passes nothing above the base.
    pub(super) fn is_from_base(&self, begin: ReadStart) -> bool {
        begin.floor == self.base
    }

    pub(super) fn base(&self) -> Seq {
        self.base
    }

    pub(super) fn skips_rows(&self) -> bool {
        self.skipped > self.base
    }

    /// All up to this row waits. A floor that was set back during the read stays back.
    pub(super) fn skip_to(&mut self, begin: ReadStart, last: Seq) -> bool {
        let stands = self.skipped == begin.skipped;
        if stands {
            self.skipped = last;
        }
        stands
    }

    /// A page was read, up to `last`; there may be more behind a full one.
    pub(super) fn saw(&mut self, begin: ReadStart, last: Option<Seq>, is_full: bool, now: Instant) {
        let is_past_old = !is_full || last.is_some_and(|last| last >= self.old);
        if let Some(wish) = begin.wish.filter(|_| is_past_old) {
            self.met = wish;
        }
        self.newest = self.newest.max(last.unwrap_or(Seq::START));
        let (since, seq) = *self.young.get_or_insert((now, self.newest));
        if now >= since + LONG_AGO {
            self.old = self.old.max(seq);
            self.young = Some((now, self.newest));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    const SEEN: Option<Seq> = Some(Seq(100));

    fn later(seconds: u64) -> Instant {
        instant() + Duration::from_secs(seconds)
    }

    /// Reads a page up to `last`, with more behind it or not.
    fn read(cursor: &mut Cursor, last: Option<Seq>, is_full: bool, now: Instant) {
        let begin = cursor.begin(true, None);
        cursor.saw(begin, last, is_full, now);
    }

    /// Rows up to 100 were seen, and again 2 s later.
    fn cursor() -> Cursor {
        let mut cursor = Cursor::new();
        read(&mut cursor, SEEN, false, later(0));
        read(&mut cursor, SEEN, false, later(2));
        cursor
    }

    #[test]
    fn what_was_seen_long_ago_is_passed_while_reads_are_slow() {
        assert_eq!(cursor().begin(true, None).floor, Seq(100));
        assert_eq!(cursor().begin(false, None).floor, Seq::START);
    }

    #[test]
    fn what_was_just_seen_is_not() {
        let (mut cursor, now) = (Cursor::new(), later(0));
        read(&mut cursor, SEEN, false, now);
        read(&mut cursor, SEEN, false, now);
        assert_eq!(cursor.begin(true, None).floor, Seq::START);
    }

    #[test]
    fn what_is_in_hand_is_not_passed() {
        assert_eq!(cursor().begin(true, Some(Seq(50))).floor, Seq(49));
    }

    #[test]
    fn the_head_is_looked_at_until_its_end() {
        let mut cursor = cursor();
        cursor.look_back();
        assert_eq!(cursor.begin(true, None).floor, Seq::START);
        read(&mut cursor, Some(Seq(10)), true, later(4));
        assert_eq!(cursor.begin(true, None).floor, Seq::START, "there may be more that came late");
        read(&mut cursor, Some(Seq(10)), false, later(4));
        assert_eq!(cursor.begin(true, None).floor, Seq(100));
    }

    #[test]
    fn a_look_that_began_before_the_wish_does_not_meet_it() {
        let mut cursor = cursor();
        cursor.look_back();
        let begin = cursor.begin(true, None);
        cursor.look_back();
        cursor.saw(begin, None, false, later(4));
        assert_eq!(cursor.begin(true, None).floor, Seq::START);
    }

    #[test]
    fn skipped_rows_are_passed_at_any_speed_until_the_start_over() {
        let mut cursor = cursor();
        let begin = cursor.begin(true, None);
        assert!(cursor.skip_to(begin, Seq(200)));
        let starts = |cursor: &Cursor| [false, true].map(|slow| cursor.begin(slow, None).floor);
        assert_eq!(starts(&cursor), [Seq(200), Seq(200)]);
        let begin = cursor.begin(true, None);
        cursor.start_over();
        assert!(!cursor.skip_to(begin, Seq(300)), "a floor that was set back stays back");
        assert_eq!(starts(&cursor), [Seq::START, Seq::START]);
    }
}
