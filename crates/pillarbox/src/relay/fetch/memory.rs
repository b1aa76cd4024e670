//! Memory: how many bytes of payloads and headers from the table there are, and how many rows to ask
//! for so that their content fits in.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use crate::envelope::{MAX_HEADERS_SIZE, MAX_PAYLOAD};

/// Asked for before it is known how large rows are.
const FIRST: u32 = 128;

/// How many bytes may be in memory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// Payloads and headers of all rows from the table that are read and not yet delivered.
    pub(crate) most: usize,
    /// Of the largest event that there can be: there is always room for one.
    pub(crate) largest: usize,
}

impl Limits {
    /// What a relay keeps within.
    pub(crate) const RELAY: Self = Self { most: 32 << 20, largest: MAX_PAYLOAD + MAX_HEADERS_SIZE };

    /// How many bytes a read may bring, while so many are in memory.
    pub(crate) fn budget(self, in_memory: usize) -> usize {
        self.most.saturating_sub(in_memory).max(self.largest)
    }

    /// Whether there is room for a read that is worth it.
    pub(crate) fn is_half_empty(self, in_memory: usize) -> bool {
        in_memory <= self.most / 2
    }
}

/// How many rows to ask for: fewer where their content does not fit in, so that the database does not
/// look at large rows that it cannot send, again and again.
#[derive(Debug)]
pub(crate) struct PageSize {
    rows: u32,
    most: u32,
}

impl PageSize {
    /// Asks for this many rows at most.
    pub(crate) fn new(most: u32) -> Self {
        Self { rows: FIRST.min(most), most }
    }

    pub(crate) fn rows(&self) -> u32 {
        self.rows
    }

    /// So many rows came with their content, and perhaps others without.
    pub(crate) fn came(&mut self, rows: usize, is_all: bool) {
        let rows = u32::try_from(rows).unwrap_or(u32::MAX);
        match (is_all, rows) {
            (false, _) => self.rows = (self.rows / 2).max(rows.min(self.rows)).max(1),
            (true, 0) => {}
            (true, _) => self.rows = self.rows.saturating_mul(2).min(self.most),
        }
    }

    /// The database did not answer: perhaps it was asked for too much.
    pub(crate) fn failed(&mut self) {
        self.came(0, false);
    }
}

/// Counts the bytes that are in memory.
#[derive(Debug, Default)]
pub(crate) struct Memory(Arc<AtomicUsize>);

/// Bytes in memory, until this is dropped.
#[derive(Debug)]
pub(crate) struct InMemory {
    of: Arc<AtomicUsize>,
    bytes: usize,
}

impl Memory {
    pub(crate) fn bytes(&self) -> usize {
        self.0.load(Ordering::Relaxed)
    }

    pub(crate) fn hold(&self, bytes: usize) -> InMemory {
        self.0.fetch_add(bytes, Ordering::Relaxed);
        InMemory { of: Arc::clone(&self.0), bytes }
    }
}

impl Drop for InMemory {
    fn drop(&mut self) {
        self.of.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn there_is_always_room_for_the_largest_event() {
        let limits = Limits { most: 100, largest: 10 };

        let budgets = [0, 90, 91, usize::MAX].map(|bytes| limits.budget(bytes));

        assert_eq!(budgets, [100, 10, 10, 10]);
    }

    #[test]
    fn the_pace_halves_towards_what_came_and_doubles_when_all_came() {
        let mut pace = PageSize::new(2000);
        let mut came = |rows, is_all| {
            pace.came(rows, is_all);
            pace.rows()
        };

        assert_eq!(came(1000, true), 256);
        assert_eq!(came(0, true), 256, "an empty page says nothing");
        assert_eq!(came(200, false), 200);
        assert_eq!(came(30, false), 100);
        assert_eq!(came(300, false), 100, "it does not grow where content was left behind");
        assert_eq!((0..10).map(|_| came(0, false)).last(), Some(1));
    }

    #[test]
    fn the_pace_falls_at_once_however_long_all_has_come() {
        let mut pace = PageSize::new(2000);
        (0..100).for_each(|_| pace.came(2000, true));
        assert_eq!(pace.rows(), 2000);

        pace.failed();

        assert_eq!(pace.rows(), 1000);
        assert_eq!(PageSize::new(10).rows(), 10);
    }

    #[test]
    fn what_is_dropped_counts_no_more() {
        let memory = Memory::default();
        let held = [memory.hold(3), memory.hold(4)];
        assert_eq!(memory.bytes(), 7);

        drop(held);

        assert_eq!(memory.bytes(), 0);
    }
}
