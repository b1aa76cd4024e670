//! How heavy rows are: a page of large ones must not fill the memory.

use super::Pages;
use crate::store::Pending;

/// Payloads of a page, of all shards together.
const PAGE: usize = 32 << 20;

/// However heavy they are: workers must have something to do.
const LEAST: u32 = 64;

/// What was not read yet is taken for heavy.
const UNKNOWN: usize = 256 << 10;

/// As many rows decide what the next ones are reckoned with.
const LAST: usize = 128;

/// The bytes that a row is reckoned with.
#[derive(Debug)]
pub(super) struct Weight(usize);

impl Weight {
    pub(super) const fn new() -> Self {
        Self(UNKNOWN)
    }

    /// What a few rows weigh says little of the next ones.
    pub(super) fn saw(&mut self, rows: &[Pending]) {
        let sizes = rows.iter().filter_map(|row| row.event.as_ref().ok());
        let bytes: usize = sizes.map(|event| event.payload().as_bytes().len()).sum();
        if let Some(mean) = bytes.checked_div(rows.len()) {
            let count = rows.len().min(LAST);
            self.0 = (self.0 * (LAST - count) + mean * count) / LAST;
        }
    }

    /// Fewer rows where they are heavy, and at least one of each shard.
    pub(super) fn bound(&self, pages: Pages, shards: usize) -> Pages {
        let most = u32::try_from(PAGE / self.0.max(1)).unwrap_or(u32::MAX).max(LEAST);
        let each = most / u32::try_from(shards).unwrap_or(u32::MAX).max(1);
        Pages { batch: pages.batch.min(most), least: pages.least.min(each.max(1)) }
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;
    use crate::envelope::Envelope;
    use crate::id::{Seq, ShardId, Token};
    use crate::store::Status;

    const PAGES: Pages = Pages { batch: 2000, least: 16 };

    fn page(rows: usize, bytes: usize) -> Vec<Pending> {
        let event = Envelope::bytes("test.step", vec![0; bytes]).unwrap();
        let row = || Pending {
            seq: Seq(1),
            shard: ShardId(0),
            key: None,
            token: Token(0),
            status: Status::New,
            attempts: 0,
            due_in: Duration::ZERO,
            lapsed: false,
            behind: false,
            event: Ok(event.clone()),
        };
        (0..rows).map(|_| row()).collect()
    }

    fn rows_of(weight: &Weight) -> [u32; 2] {
        let Pages { batch, least } = weight.bound(PAGES, 64);
        [batch, least]
    }

    #[test]
    fn a_full_page_says_what_the_next_one_weighs() {
        let mut weight = Weight::new();
        assert_eq!(rows_of(&weight), [128, 2], "nobody knows yet");

        weight.saw(&page(LAST, 200));
        assert_eq!(rows_of(&weight), [2000, 16]);

        weight.saw(&page(LAST, 1 << 20));
        assert_eq!(rows_of(&weight), [64, 1]);
        weight.saw(&[]);
        assert_eq!(rows_of(&weight), [64, 1], "an empty page says nothing");
    }

    #[test]
    fn one_heavy_row_does_not_speak_for_all() {
        let mut weight = Weight::new();
        weight.saw(&page(LAST, 200));

        weight.saw(&page(1, 1 << 20));

        assert_eq!(rows_of(&weight), [2000, 16]);
    }
}
