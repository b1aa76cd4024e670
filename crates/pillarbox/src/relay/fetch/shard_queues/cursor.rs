//! Where the reads of a shard begin: at its head, or above rows that are not worth a look.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::Seq;

/// A transaction is seldom open for longer; what commits later still is found by a sweep.
const LONG_AGO: Duration = Duration::from_secs(1);

/// Three kinds of rows are passed. Those of keys that wait, below the base. A crowd of a slow route,
/// until the pass has come to its end. And, while reads from the head are slow, what was seen long ago:
/// it is decided by now, and somebody's old snapshot may keep the database from clearing it away, so
/// that a read would walk through it all.
#[derive(Debug)]
pub(super) struct Cursor {
    /// HeadScan it heads of keys are read, not pages.
    base: Seq,
    crowd: Seq,
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
    crowd: Seq,
    /// The wish that it meets, if it passes nothing but a crowd.
    wish: Option<u32>,
}

impl Cursor {
    pub(super) fn new() -> Self {
        let (base, crowd, old) = (Seq::START, Seq::START, Seq::START);
        Self { base, crowd, old, newest: Seq::START, young: None, wishes: 1, met: 0 }
    }

    /// Where to read next. What is in flight, from `lowest` on, is not passed: its keys would have to be
    /// read one by one.
    pub(super) fn begin(&self, is_slow: bool, lowest: Option<Seq>) -> ReadStart {
        let crowd = self.crowd;
        if !is_slow || self.met != self.wishes {
            return ReadStart { floor: crowd, crowd, wish: Some(self.wishes) };
        }
        let below_hand = lowest.map_or(self.old, |seq| Seq(seq.0.saturating_sub(1)));
        ReadStart { floor: crowd.max(self.old.min(below_hand)), crowd, wish: None }
    }

    /// What is old is to be looked at again, for late commits and replays.
    pub(super) fn look_back(&mut self) {
        self.wishes = self.wishes.wrapping_add(1);
    }

    /// From the base, crowd or not.
    pub(super) fn start_over(&mut self) {
        self.look_back();
        self.crowd = self.base;
    }

    /// Nothing at or below this row is read by pages from now on.
    pub(super) fn raise_base(&mut self, base: Seq) {
        self.base = base;
        self.crowd = self.crowd.max(base);
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

    pub(super) fn passes_a_crowd(&self) -> bool {
        self.crowd > self.base
    }

    /// All up to this row waits. A floor that was set back during the read stays back.
    pub(super) fn pass_crowd(&mut self, begin: ReadStart, last: Seq) -> bool {
        let stands = self.crowd == begin.crowd;
        if stands {
            self.crowd = last;
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
    fn read(floor: &mut Cursor, last: Option<Seq>, is_full: bool, now: Instant) {
        let begin = floor.begin(true, None);
        floor.saw(begin, last, is_full, now);
    }

    /// Rows up to 100 were seen, and again 2 s later.
    fn floor() -> Cursor {
        let mut floor = Cursor::new();
        read(&mut floor, SEEN, false, later(0));
        read(&mut floor, SEEN, false, later(2));
        floor
    }

    #[test]
    fn what_was_seen_long_ago_is_passed_while_reads_are_slow() {
        assert_eq!(floor().begin(true, None).floor, Seq(100));
        assert_eq!(floor().begin(false, None).floor, Seq::START);
    }

    #[test]
    fn what_was_just_seen_is_not() {
        let (mut floor, now) = (Cursor::new(), later(0));
        read(&mut floor, SEEN, false, now);
        read(&mut floor, SEEN, false, now);
        assert_eq!(floor.begin(true, None).floor, Seq::START);
    }

    #[test]
    fn what_is_in_hand_is_not_passed() {
        assert_eq!(floor().begin(true, Some(Seq(50))).floor, Seq(49));
    }

    #[test]
    fn the_head_is_looked_at_until_its_end() {
        let mut floor = floor();
        floor.look_back();
        assert_eq!(floor.begin(true, None).floor, Seq::START);
        read(&mut floor, Some(Seq(10)), true, later(4));
        assert_eq!(floor.begin(true, None).floor, Seq::START, "there may be more that came late");
        read(&mut floor, Some(Seq(10)), false, later(4));
        assert_eq!(floor.begin(true, None).floor, Seq(100));
    }

    #[test]
    fn a_look_that_began_before_the_wish_does_not_meet_it() {
        let mut floor = floor();
        floor.look_back();
        let begin = floor.begin(true, None);
        floor.look_back();
        floor.saw(begin, None, false, later(4));
        assert_eq!(floor.begin(true, None).floor, Seq::START);
    }

    #[test]
    fn a_crowd_is_passed_at_any_speed_until_the_start_over() {
        let mut floor = floor();
        let begin = floor.begin(true, None);
        assert!(floor.pass_crowd(begin, Seq(200)));
        let starts = |floor: &Cursor| [false, true].map(|slow| floor.begin(slow, None).floor);
        assert_eq!(starts(&floor), [Seq(200), Seq(200)]);
        let begin = floor.begin(true, None);
        floor.start_over();
        assert!(!floor.pass_crowd(begin, Seq(300)), "a floor that was set back stays back");
        assert_eq!(starts(&floor), [Seq::START, Seq::START]);
    }
}
