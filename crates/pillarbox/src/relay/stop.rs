//! A graceful stop: how long it may take, and what it leaves behind.

use std::time::Duration;

use tokio::time::Instant;

use crate::id::ShardId;
use crate::relay::Settings;
use crate::store::Store;

/// How long the count of what was left may take.
const COUNT: Duration = Duration::from_secs(1);

/// What a relay left behind when it stopped.
///
/// # Examples
/// ```
/// use pillarbox::{Listeners, MemoryStore, Relay, StopSummary};
///
/// # tokio::runtime::Builder::new_multi_thread().enable_all().build()?.block_on(async {
/// let relay = Relay::new(MemoryStore::new(), Listeners::new()).spawn().await?;
/// let summary = relay.stop().await?;
///
/// assert_eq!(summary, StopSummary { abandoned: 0, left: Some(0) });
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct StopSummary {
    /// Deliveries that had begun and were not finished and recorded within `drain`.
    ///
    /// Their events are delivered again.
    pub abandoned: u64,
    /// Due events that this relay could have delivered and did not, for lack of time.
    ///
    /// Counted up to 100,000; `None` if the database did not answer, or the relay had lost its lease,
    /// so that others have its shards. Events that are delayed, waiting for a retry, behind such an
    /// event of their key, or in another relay's shards are not among them.
    pub left: Option<u64>,
}

/// When the phases of a stop end.
#[derive(Clone, Copy, Debug)]
pub(super) struct StopDeadlines {
    /// Deliveries may start until then.
    pub(super) start: Instant,
    /// Deliveries that have started may finish until then.
    pub(super) finish: Instant,
}

impl StopDeadlines {
    /// The last delivery to start has its whole timeout left, where `drain` is long enough.
    pub(super) fn new(settings: &Settings, now: Instant) -> Self {
        let Settings { drain, delivery_timeout, .. } = *settings;
        let start = drain.checked_sub(delivery_timeout).filter(|start| !start.is_zero());
        Self { start: now + start.unwrap_or(drain / 2), finish: now + drain }
    }
}

/// How an engine ended.
#[derive(Debug)]
pub(super) struct Ended {
    pub(super) abandoned: usize,
    pub(super) unfinished: Unfinished,
}

/// The shards that may have due events left; `None` where the relay had lost them.
pub(super) type Unfinished = Option<Vec<ShardId>>;

impl Ended {
    /// Counts what is left, as long as it is worth waiting for.
    pub(super) async fn summary(self, store: &dyn Store) -> StopSummary {
        let left = match &self.unfinished {
            None => None,
            Some(shards) if shards.is_empty() => Some(0),
            Some(shards) => {
                let counting = tokio::time::timeout(COUNT, store.count_due(shards)).await;
                counting.ok().and_then(Result::ok)
            }
        };
        StopSummary { abandoned: self.abandoned as u64, left }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::instant;

    fn seconds(drain: u64, delivery_timeout: u64) -> [u64; 2] {
        let settings = Settings {
            drain: Duration::from_secs(drain),
            delivery_timeout: Duration::from_secs(delivery_timeout),
            ..Settings::default()
        };
        let now = instant();
        let StopDeadlines { start, finish } = StopDeadlines::new(&settings, now);
        [start, finish].map(|end| (end - now).as_secs())
    }

    #[test]
    fn the_last_delivery_to_start_has_its_timeout_left() {
        assert_eq!(seconds(15, 10), [5, 15]);
        assert_eq!(seconds(60, 10), [50, 60]);
    }

    #[test]
    fn a_short_drain_still_starts_deliveries() {
        assert_eq!(seconds(10, 10), [5, 10]);
        assert_eq!(seconds(4, 10), [2, 4]);
    }
}
