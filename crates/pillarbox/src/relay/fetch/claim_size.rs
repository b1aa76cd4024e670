//! How many rows to claim ahead of the workers.

use std::time::Duration;

use tokio::time::Instant;

/// As much is claimed ahead as was delivered within this time.
const SPAN: Duration = Duration::from_millis(100);

/// How many rows to claim that no worker has begun with.
///
/// A row that waits here could be delivered by another relay, so quick listeners have many and slow
/// ones none.
#[derive(Debug)]
pub(crate) struct ClaimSize {
    workers: u32,
    most: u32,
    ahead: u32,
    since: Instant,
    delivered: u32,
}

impl ClaimSize {
    /// Begins with one row for each worker.
    pub(crate) fn new(workers: u32, most: u32, now: Instant) -> Self {
        Self { workers, most, ahead: workers.min(most), since: now, delivered: 0 }
    }

    /// A delivery is over.
    pub(crate) fn delivered(&mut self) {
        self.delivered = self.delivered.saturating_add(1);
    }

    /// Rows have waited for too long: none are claimed ahead until deliveries are quick again.
    pub(crate) fn too_much(&mut self) {
        self.ahead = 0;
    }

    /// How many rows to claim ahead.
    pub(crate) fn ahead(&mut self, now: Instant) -> u32 {
        let elapsed = now.saturating_duration_since(self.since);
        if elapsed >= SPAN {
            let recent = scaled(self.delivered, elapsed);
            let is_quick = recent >= self.workers;
            self.ahead = if is_quick { recent } else { self.ahead.min(self.workers) };
            self.ahead = self.ahead.min(self.most);
            (self.since, self.delivered) = (now, 0);
        }
        self.ahead
    }
}

/// What was delivered in one span, on average over the time that has passed.
fn scaled(delivered: u32, elapsed: Duration) -> u32 {
    let spans = elapsed.as_micros() / SPAN.as_micros();
    u32::try_from(u128::from(delivered) / spans.max(1)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    fn deliver(size: &mut ClaimSize, count: u32) {
        (0..count).for_each(|_| size.delivered());
    }

    #[test]
    fn it_grows_with_what_is_delivered_and_never_beyond_the_most() {
        let start = instant();
        let mut size = ClaimSize::new(4, 1000, start);
        assert_eq!(size.ahead(start), 4);

        deliver(&mut size, 80);
        assert_eq!(size.ahead(start + SPAN / 2), 4, "not before the time is over");
        assert_eq!(size.ahead(start + SPAN), 80);
        deliver(&mut size, 5000);
        assert_eq!(size.ahead(start + SPAN * 2), 1000);
        deliver(&mut size, 5000);
        assert_eq!(size.ahead(start + SPAN * 102), 50, "5000 in a hundred spans");
    }

    #[test]
    fn slow_deliveries_leave_one_for_each_worker() {
        let start = instant();
        let mut size = ClaimSize::new(4, 1000, start);
        deliver(&mut size, 100);
        assert_eq!(size.ahead(start + SPAN), 100);

        deliver(&mut size, 1);

        assert_eq!(size.ahead(start + SPAN * 2), 4);
    }

    #[test]
    fn rows_that_waited_too_long_spoil_it_until_deliveries_are_quick() {
        let start = instant();
        let mut size = ClaimSize::new(4, 1000, start);
        size.too_much();
        assert_eq!(size.ahead(start), 0);
        deliver(&mut size, 3);
        assert_eq!(size.ahead(start + SPAN), 0);

        deliver(&mut size, 4);

        assert_eq!(size.ahead(start + SPAN * 2), 4);
    }

    #[test]
    fn few_rows_in_all_bound_it_from_the_start() {
        assert_eq!(ClaimSize::new(8, 3, instant()).ahead(instant()), 3);
    }
}
