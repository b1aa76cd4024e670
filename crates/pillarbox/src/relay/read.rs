//! Reading: one read at a time, of shards or of a key, and what it brought goes to the board.

use std::{sync::Arc, time::Duration};

use super::SECOND;
use super::board::Wanted;
use super::engine::Engine;
use super::work::Progress;
use crate::clock::instant;
use crate::error::{Error, ErrorKind, Result};
use crate::observe::{Happening, Part};
use crate::point::point;
use crate::store::Pending;

impl Engine {
    /// Begins the next read, if one is worth doing.
    pub(super) fn start_read(&mut self) {
        if self.work.read_pause.is_some() {
            return;
        }
        let Some(wanted) = self.board.next_read() else { return };
        let (store, read) = (Arc::clone(&self.store), wanted.clone());
        let patience = self.settings.lease;
        let task = self.work.tasks.spawn(async move {
            let reading = async {
                point!("read.before"?);
                let rows = match read {
                    Wanted::Keys(read) => store.read_keys(&read).await,
                    Wanted::Shards(read) => store.read(&read).await,
                };
                point!("read.after"?);
                rows
            };
            let begun = instant();
            let rows = tokio::time::timeout(patience, reading).await;
            Progress::Read(rows.unwrap_or_else(|_| Err(no_answer())), begun.elapsed())
        });
        self.work.reading = Some((task.id(), wanted));
    }

    /// A read has ended, after so long.
    pub(super) fn read(&mut self, rows: Result<Vec<Pending>>, took: Duration) {
        let Some((_, wanted)) = self.work.reading.take() else { return };
        // What is registered was so before its commit: mail first, then what was read.
        self.take_in_all_mail();
        let rows = rows.map(|mut rows| {
            self.note_lapsed(&mut rows);
            rows
        });
        self.observers.see(&match &rows {
            Ok(rows) => Happening::Read { rows: rows.len() },
            Err(error) => Happening::trouble(Part::Read, error),
        });
        match (rows, wanted) {
            (Ok(rows), Wanted::Shards(read)) => {
                self.board.take_shards(&read, rows, took, instant());
            }
            (Ok(rows), Wanted::Keys(read)) => self.board.take_keys(&read, rows, instant()),
            (Err(_), wanted) => {
                self.work.read_pause = Some(instant() + self.settings.poll.min(SECOND));
                self.board.read_failed(wanted);
            }
        }
    }
}

pub(super) fn no_answer() -> Error {
    Error::new(ErrorKind::Unavailable, "the database does not answer")
}
