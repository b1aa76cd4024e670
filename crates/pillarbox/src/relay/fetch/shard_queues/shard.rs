//! What is read of one shard, and what is not.

use std::time::Duration;

use tokio::time::Instant;

use super::Tally;
use super::cursor::{Cursor, ReadStart};
use super::heads::HeadScan;
use crate::id::{Epoch, Seq};
use crate::store::{HeadsCursor, ReadHeads};

#[derive(Debug)]
pub(super) struct Shard {
    epoch: Epoch,
    cursor: Cursor,
    /// What is read by heads of keys, if anything is.
    heads: Option<HeadScan>,
    /// Whether a read may find something new.
    needs_read: bool,
    /// How the read under way was begun for it. One begun before it was lost and taken again shows
    /// what was decided since as undecided: its rows do not count.
    asked: Option<ReadStart>,
    /// The last page was full: there are rows behind it.
    more: bool,
    /// How many rows of the last page waited: the next one is to be larger by as many.
    waiting: u32,
    /// To be read from its head, once the pass under way has come to its end: a pass that is cut
    /// short again and again would never reach the rows behind many that wait.
    again: bool,
    /// When the first row without a key is free that is leased, or was put off.
    next_due: Option<Instant>,
    /// How far the last pass over the shard has come.
    last_pass: LastPass,
}

/// The last pass over a shard.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LastPass {
    /// No read has begun since the relay stops.
    Ahead,
    /// A read has begun since then.
    Begun,
    /// All that was committed before was read.
    Over,
}

impl Shard {
    pub(super) fn new(epoch: Epoch) -> Self {
        Self {
            epoch,
            cursor: Cursor::new(),
            heads: None,
            needs_read: true,
            asked: None,
            more: false,
            waiting: 0,
            again: false,
            next_due: None,
            last_pass: LastPass::Ahead,
        }
    }

    pub(super) fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Whether a read by pages may find something.
    pub(super) fn needs_read(&self) -> bool {
        self.needs_read && self.last_pass != LastPass::Over
    }

    /// Something may have been committed.
    pub(super) fn wake(&mut self) {
        self.needs_read = true;
        self.heads.iter_mut().for_each(HeadScan::want);
    }

    /// A read has failed: what it was for is still to be read.
    pub(super) fn want_read(&mut self) {
        self.needs_read = true;
    }

    /// A row has left memory: there is room for one behind the last page.
    pub(super) fn freed(&mut self) {
        self.needs_read |= self.more;
    }

    /// From the head: at once, or when the pass under way has come to its end.
    pub(super) fn start_over(&mut self) {
        self.needs_read = true;
        self.last_pass = LastPass::Ahead;
        self.heads.iter_mut().for_each(HeadScan::want);
        if self.more && self.cursor.skips_rows() {
            self.again = true;
            self.cursor.look_back();
        } else {
            self.cursor.start_over();
        }
    }

    /// A page that was not full ends the pass.
    fn end_pass(&mut self) {
        if std::mem::take(&mut self.again) {
            self.needs_read = true;
            self.cursor.start_over();
        } else if self.last_pass == LastPass::Begun {
            self.last_pass = LastPass::Over;
        }
    }

    /// A waiting row is new now. Returns whether only its key shows it, for pages do not.
    pub(super) fn promoted(&mut self, seq: Seq) -> bool {
        self.start_over();
        let rises = self.heads.as_ref().is_some_and(HeadScan::rises);
        rises || seq <= self.cursor.base()
    }

    /// A row of the shard, which is not in flight, is due then.
    pub(super) fn note_due(&mut self, when: Instant) {
        self.next_due = Some(self.next_due.map_or(when, |next| next.min(when)));
    }

    pub(super) fn tick(&mut self, now: Instant) {
        if self.next_due.is_some_and(|when| when <= now) {
            self.next_due = None;
            self.start_over();
        }
        if let Some(heads) = &mut self.heads {
            heads.tick(now);
        }
    }

    pub(super) fn next_due(&self) -> Option<Instant> {
        let heads = self.heads.as_ref().and_then(HeadScan::next_due);
        [self.next_due, heads].into_iter().flatten().min()
    }

    /// Whether the last pass has not come to its end.
    pub(super) fn is_unread(&self) -> bool {
        self.last_pass != LastPass::Over || self.heads.as_ref().is_some_and(HeadScan::is_wanted)
    }

    /// How many rows of the last page waited.
    pub(super) fn waiting(&self) -> u32 {
        self.waiting
    }

    /// Begins a page. What is in flight, from `lowest` on, is not passed.
    pub(super) fn begin_page(
        &mut self,
        is_slow: bool,
        lowest: Option<Seq>,
        is_last_pass: bool,
    ) -> Seq {
        let start = self.cursor.begin(is_slow, lowest);
        (self.needs_read, self.asked) = (false, Some(start));
        if is_last_pass {
            self.last_pass = LastPass::Begun;
        }
        start.floor
    }

    /// Begins a read of keys.
    pub(super) fn begin_keys(&mut self) {
        self.asked = Some(self.cursor.begin(false, None));
    }

    /// Whether it is time to read heads.
    pub(super) fn needs_heads(&self, now: Instant, is_last_pass: bool) -> bool {
        self.heads.as_ref().is_some_and(|heads| heads.is_due(now, is_last_pass))
    }

    /// Begins a page of heads. Returns where it begins, and up to which row.
    pub(super) fn begin_heads(&mut self) -> Option<(HeadsCursor, Seq)> {
        self.begin_keys();
        let after = self.heads.as_mut()?.begin();
        Some((after, self.cursor.base()))
    }

    /// The read under way does not count for the shard any more.
    pub(super) fn end_read(&mut self) {
        self.asked = None;
    }

    /// How the read under way was begun for the shard as it is owned now.
    pub(super) fn asked(&self) -> Option<ReadStart> {
        self.asked
    }

    /// Whether the read under way passes nothing above the base.
    pub(super) fn is_read_from_base(&self) -> bool {
        self.asked.is_some_and(|start| self.cursor.is_from_base(start))
    }

    /// A page was taken in.
    pub(super) fn took_page(
        &mut self,
        start: ReadStart,
        tally: &Tally,
        is_full: bool,
        is_blocked: bool,
        now: Instant,
    ) {
        self.more = is_full || tally.is_cut;
        self.waiting = u32::try_from(tally.waiting).unwrap_or(u32::MAX);
        self.needs_read |= self.more && tally.accepted > 0;
        // Others had all the budget: this one is to be read first.
        self.needs_read |= tally.is_cut && tally.waiting == 0;
        self.cursor.saw(start, tally.last, self.more, now);
        let skips = self.more && tally.is_mostly_waiting() && !is_blocked;
        if let Some(last) = tally.last.filter(|_| skips) {
            self.needs_read |= self.cursor.skip_to(start, last);
        }
        if !self.more {
            self.end_pass();
        }
        if is_blocked {
            self.heads.get_or_insert_with(HeadScan::new).raise();
        }
    }

    /// A page of heads has come: raises the base, if it is time. Returns the base.
    pub(super) fn raise_base(&mut self, read: &ReadHeads, newest: Seq) -> Seq {
        let is_first = read.after == HeadsCursor::start();
        if is_first && self.heads.as_mut().is_some_and(HeadScan::rise) {
            self.cursor.raise_base(newest);
            // Rows may have come since.
            self.needs_read = true;
        }
        self.cursor.base()
    }

    /// A page of heads was taken in, up to `next`; without that, it was the last one.
    pub(super) fn took_heads(
        &mut self,
        next: Option<HeadsCursor>,
        has_found: bool,
        took: Duration,
        now: Instant,
    ) {
        let Some(heads) = self.heads.as_mut() else { return };
        if !heads.took(next, has_found, took, now) {
            self.heads = None;
            self.cursor.drop_base();
            self.needs_read = true;
            self.last_pass = LastPass::Ahead;
        }
    }

    #[cfg(test)]
    pub(super) fn base(&self) -> Seq {
        self.cursor.base()
    }

    #[cfg(test)]
    pub(super) fn has_more(&self) -> bool {
        self.more
    }

    #[cfg(test)]
    pub(super) fn read_nothing(&mut self) {
        self.needs_read = false;
    }
}
