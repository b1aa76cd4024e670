//! Reads shards, keys and heads of keys, one read at a time, and says when to read.

use std::time::Duration;

use tokio::time::Instant;

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::Result;
use crate::id::{Seq, jitter};
use crate::relay::SECOND;
use crate::relay::fetch::shard_queues::{ShardQueues, Wanted};
use crate::relay::settings::Settings;
use crate::relay::store_tasks::{StoreTasks, within};
use crate::store::{Heads, HeadsCursor, Pending, Store};
use crate::telemetry::{Component, Observers, RelayEvent};

#[derive(Debug)]
pub(crate) struct ShardReader {
    poll: Duration,
    sweep: Duration,
    observers: Observers,
    /// The read under way.
    reading: Option<Wanted>,
    next_poll: Instant,
    next_sweep: Instant,
    /// After a read that failed: not before.
    pause: Option<Instant>,
}

impl ShardReader {
    /// The first poll and the first sweep are due at once.
    pub(crate) fn new(settings: &Settings, observers: Observers) -> Self {
        let (poll, sweep, now) = (settings.poll, settings.sweep, instant());
        let (next_poll, next_sweep) = (now, now);
        Self { poll, sweep, observers, reading: None, next_poll, next_sweep, pause: None }
    }

    /// Starts the next read, if one is worth doing.
    pub(crate) fn start<A: Send + 'static>(
        &mut self,
        queues: &mut ShardQueues,
        tasks: &mut StoreTasks<A>,
        answer: fn(Result<TimedPage>) -> A,
    ) {
        if self.pause.is_some() {
            return;
        }
        let Some(wanted) = queues.next_read(instant()) else { return };
        let (store, timeout, read) = (tasks.store(), tasks.timeout(), wanted.clone());
        self.reading = Some(wanted);
        let reading = async move {
            let begun = instant();
            let page = within(timeout, Page::read(&*store, read)).await?;
            Ok((page, begun.elapsed()))
        };
        tasks.run(reading, answer);
    }

    /// A read has ended: what it brought goes to the queues.
    pub(crate) fn answered(&mut self, page: Result<TimedPage>, queues: &mut ShardQueues) {
        let Some(wanted) = self.reading.take() else { return };
        match page {
            Ok((page, took)) => {
                self.observers.on_event(&RelayEvent::Read { rows: page.rows.len() });
                page.give_to(queues, wanted, took);
            }
            Err(error) => {
                self.observers.on_event(&RelayEvent::failed(Component::Read, &error));
                self.pause();
                queues.read_failed(wanted);
            }
        }
    }

    /// The database does not answer as it should: reads nothing for a while.
    pub(crate) fn pause(&mut self) {
        self.pause = Some(instant() + self.poll.min(SECOND));
    }

    /// Has the queues read what is due.
    pub(crate) fn tick(&mut self, queues: &mut ShardQueues, now: Instant) {
        queues.tick(now);
        if self.next_poll <= now {
            self.next_poll = now + self.poll.mul_f64(jitter());
            queues.wake();
        }
        if self.next_sweep <= now {
            self.next_sweep = now + self.sweep;
            queues.withdraw_overdue(now);
            queues.sweep();
        }
        self.pause = self.pause.filter(|until| *until > now);
    }

    pub(crate) fn next_timer(&self) -> Instant {
        let polls = self.next_poll.min(self.next_sweep);
        self.pause.map_or(polls, |pause| pause.min(polls))
    }
}

/// A page, and how long its read took.
pub(crate) type TimedPage = (Page, Duration);

/// What a read has brought.
#[derive(Debug)]
pub(crate) struct Page {
    pub(crate) rows: Vec<Pending>,
    /// Of heads: where to go on, and the newest row of the shard.
    next: Option<HeadsCursor>,
    newest: Seq,
}

impl Page {
    pub(crate) async fn read(store: &dyn Store, wanted: Wanted) -> Result<Self> {
        crash_point!("read.before"?);
        let page = Self::of(store, wanted).await;
        crash_point!("read.after"?);
        page
    }

    async fn of(store: &dyn Store, wanted: Wanted) -> Result<Self> {
        let rows = match wanted {
            Wanted::Shards(read) => store.read(&read).await?,
            Wanted::Keys(read) => store.read_keys(&read).await?,
            Wanted::Heads(read) => {
                let Heads { rows, next, newest } = store.read_heads(&read).await?;
                return Ok(Self { rows, next, newest });
            }
        };
        Ok(Self { rows, next: None, newest: Seq::START })
    }

    pub(crate) fn give_to(self, queues: &mut ShardQueues, wanted: Wanted, took: Duration) {
        let Self { rows, next, newest } = self;
        let now = instant();
        match wanted {
            Wanted::Shards(read) => queues.take_shards(&read, rows, took, now),
            Wanted::Keys(read) => queues.take_keys(&read, rows, now),
            Wanted::Heads(read) => {
                queues.take_heads(&read, Heads { rows, next, newest }, took, now);
            }
        }
    }
}
