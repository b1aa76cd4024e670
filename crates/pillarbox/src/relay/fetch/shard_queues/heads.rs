//! Rows at and below the base of a shard: rows of keys that wait for their head, one for each key.
//!
//! The base is put at the newest row of a shard when a page shows mostly rows that an older one of
//! their key comes before. Above it rows are read by pages, new ones first of all. Below it heads of
//! keys are read with every sweep, and the rest of a key when its head has been decided on.

use std::time::Duration;

use tokio::time::Instant;

use crate::store::HeadsCursor;

/// Heads are read for at most one part in so many of the time, and at least this often.
const SHARE: u32 = 20;
const LONGEST_PAUSE: Duration = Duration::from_secs(60);

/// The walk over the heads of a shard.
#[derive(Debug)]
pub(super) struct HeadScan {
    /// Where to go on.
    cursor: HeadsCursor,
    is_wanted: bool,
    /// Another walk was wanted since this one began.
    again: bool,
    /// The base is to be put at the newest row.
    rises: bool,
    /// Whether this walk has found anything at or below the base.
    has_found: bool,
    /// How long the reads of this walk have taken.
    took: Duration,
    /// The next walk begins no sooner, unless the relay stops.
    paused: Option<Instant>,
}

impl HeadScan {
    pub(super) fn new() -> Self {
        Self {
            cursor: HeadsCursor::start(),
            is_wanted: true,
            again: false,
            rises: true,
            has_found: false,
            took: Duration::ZERO,
            paused: None,
        }
    }

    /// Heads are to be read from the first key on, as soon as the walk under way is over.
    pub(super) fn want(&mut self) {
        (self.is_wanted, self.again) = (true, true);
    }

    /// The base is to be put at the newest row.
    pub(super) fn raise(&mut self) {
        (self.rises, self.is_wanted) = (true, true);
    }

    /// Whether the base is about to be put at the newest row.
    pub(super) fn rises(&self) -> bool {
        self.rises
    }

    /// Whether the base is to be put at the newest row now.
    pub(super) fn rise(&mut self) -> bool {
        std::mem::take(&mut self.rises)
    }

    pub(super) fn is_wanted(&self) -> bool {
        self.is_wanted
    }

    /// When the next page is to be read.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.paused.filter(|_| self.is_wanted)
    }

    /// A pause that is over needs no timer: the next page is read as soon as a read can begin.
    pub(super) fn tick(&mut self, now: Instant) {
        self.paused = self.paused.filter(|paused| *paused > now);
    }

    pub(super) fn is_due(&self, now: Instant, is_last_pass: bool) -> bool {
        self.is_wanted && (is_last_pass || self.paused.is_none_or(|paused| paused <= now))
    }

    /// Begins a page. Returns where.
    pub(super) fn begin(&mut self) -> HeadsCursor {
        self.again &= self.cursor != HeadsCursor::start();
        self.cursor.clone()
    }

    /// A page was taken in, up to `next`; without that, the walk has come to its end. Returns
    /// whether there is anything to walk over again.
    pub(super) fn took(
        &mut self,
        next: Option<HeadsCursor>,
        has_found: bool,
        took: Duration,
        now: Instant,
    ) -> bool {
        self.has_found |= has_found;
        self.took += took;
        let Some(next) = next else {
            let goes_on = self.has_found || self.rises;
            self.end(now);
            return goes_on;
        };
        self.cursor = next;
        true
    }

    fn end(&mut self, now: Instant) {
        let paused = Some(now + (self.took * SHARE).min(LONGEST_PAUSE));
        let is_wanted = self.rises || self.again;
        *self = Self { is_wanted, rises: self.rises, paused, ..Self::new() };
    }
}
