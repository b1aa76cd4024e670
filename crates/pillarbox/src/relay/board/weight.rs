//! How heavy rows are: a page of large ones must not fill the memory.

use super::Pages;
use crate::store::Pending;

/// Payloads of a page, of all shards together.
const PAGE: usize = 32 << 20;

/// What was not read yet is taken for heavy, and turns out to be light within a few pages.
const UNKNOWN: usize = 256 << 10;

/// The bytes that a row is reckoned with.
#[derive(Debug)]
pub(super) struct Weight(usize);

impl Weight {
    pub(super) const fn new() -> Self {
        Self(UNKNOWN)
    }

    /// Heavier rows count at once, lighter ones little by little.
    pub(super) fn saw(&mut self, rows: &[Pending]) {
        let sizes = rows.iter().filter_map(|row| row.event.as_ref().ok());
        let bytes: usize = sizes.map(|event| event.payload().as_bytes().len()).sum();
        if let Some(mean) = bytes.checked_div(rows.len()) {
            self.0 = mean.max(self.0.midpoint(mean));
        }
    }

    /// Fewer rows where they are heavy, and at least one of each shard.
    pub(super) fn bound(&self, pages: Pages, shards: usize) -> Pages {
        let most = u32::try_from(PAGE / self.0.max(1)).unwrap_or(u32::MAX).max(1);
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

    fn page(bytes: usize) -> [Pending; 1] {
        [Pending {
            seq: Seq(1),
            shard: ShardId(0),
            key: None,
            token: Token(0),
            status: Status::New,
            attempts: 0,
            due_in: Duration::ZERO,
            lapsed: false,
            behind: false,
            event: Ok(Envelope::bytes("test.step", vec![0; bytes]).unwrap()),
        }]
    }

    fn rows_of(weight: &Weight) -> [u32; 2] {
        let Pages { batch, least } = weight.bound(PAGES, 64);
        [batch, least]
    }

    #[test]
    fn pages_grow_to_their_size_when_rows_are_light() {
        let mut weight = Weight::new();
        assert_eq!(rows_of(&weight), [128, 2], "nobody knows yet");

        (0..8).for_each(|_| weight.saw(&page(200)));

        assert_eq!(rows_of(&weight), [2000, 16]);
    }

    #[test]
    fn one_page_of_heavy_rows_makes_the_next_one_small() {
        let mut weight = Weight::new();
        (0..8).for_each(|_| weight.saw(&page(200)));

        weight.saw(&page(1 << 20));

        assert_eq!(rows_of(&weight), [32, 1]);
        weight.saw(&[]);
        assert_eq!(rows_of(&weight), [32, 1], "an empty page says nothing");
    }
}
