//! Reading: one read at a time, of shards or of a key, and what it brought goes to the queues.

use std::{sync::Arc, time::Duration};

use crate::clock::instant;
use crate::crash_point::crash_point;
use crate::error::{Error, ErrorKind, Result};
use crate::id::Seq;
use crate::relay::SECOND;
use crate::relay::engine::Engine;
use crate::relay::fetch::shard_queues::{ShardQueues, Wanted};
use crate::relay::work::Progress;
use crate::store::{Heads, HeadsCursor, Pending, Store};
use crate::telemetry::{Component, RelayEvent};

impl Engine {
    /// Begins the next read, if one is worth doing.
    pub(crate) fn start_read(&mut self) {
        if self.work.read_pause.is_some() {
            return;
        }
        let Some(wanted) = self.queues.next_read(instant()) else { return };
        let (store, read) = (Arc::clone(&self.store), wanted.clone());
        let patience = self.settings.lease;
        let task = self.work.tasks.spawn(async move {
            let reading = async {
                crash_point!("read.before"?);
                let page = Page::read(&*store, read).await;
                crash_point!("read.after"?);
                page
            };
            let begun = instant();
            let page = tokio::time::timeout(patience, reading).await;
            Progress::Read(page.unwrap_or_else(|_| Err(no_answer())), begun.elapsed())
        });
        self.work.reading = Some((task.id(), wanted));
    }

    /// A read has ended, after so long.
    pub(crate) fn read(&mut self, page: Result<Page>, took: Duration) {
        let Some((_, wanted)) = self.work.reading.take() else { return };
        // What is registered was so before its commit: mail first, then what was read.
        self.take_in_all_mail();
        let page = page.map(|mut page| {
            self.note_lapsed(&mut page.rows);
            self.due.note_early(&page.rows);
            page
        });
        self.observers.on_event(&match &page {
            Ok(page) => RelayEvent::Read { rows: page.rows.len() },
            Err(error) => RelayEvent::failed(Component::Read, error),
        });
        match (page, wanted) {
            (Ok(page), wanted) => page.give_to(&mut self.queues, wanted, took),
            (Err(_), wanted) => {
                self.work.read_pause = Some(instant() + self.settings.poll.min(SECOND));
                self.queues.read_failed(wanted);
            }
        }
    }
}

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

pub(crate) fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "the database does not answer")
}
