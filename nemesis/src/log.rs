//! The log of all processes of a run: one file of JSON lines.
//!
//! Each line is appended by one write, so that lines are in the order of the deliveries, and a killed
//! process loses none that it has written.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
};

use pillarbox::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

use crate::Result;

/// One process's handle to the log.
#[derive(Debug)]
pub struct Log {
    file: File,
    incarnation: String,
    /// How many microseconds the clock of this process is ahead of the others.
    ahead: i64,
}

impl Log {
    /// Opens the file to append lines of one incarnation of a process.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, incarnation: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, incarnation: incarnation.to_owned(), ahead: 0 })
    }

    /// Corrects the times of a process whose clock is this many hours ahead.
    #[must_use]
    pub fn ahead(self, hours: i64) -> Self {
        Self { ahead: hours * 3_600_000_000, ..self }
    }

    /// Appends one line with one write.
    ///
    /// # Errors
    /// When the file cannot be written, for example because the disk is full.
    pub fn append(&self, entry: &Entry<'_>) -> std::io::Result<()> {
        self.append_for(&self.incarnation, entry)
    }

    /// Appends a line about another incarnation.
    ///
    /// # Errors
    /// When the file cannot be written, for example because the disk is full.
    pub fn append_for(&self, incarnation: &str, entry: &Entry<'_>) -> std::io::Result<()> {
        let at = SystemClock.now().unix_micros() - self.ahead;
        let mut line = serde_json::to_vec(&Line { incarnation, at, entry: *entry })?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}

/// The content of a line.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Entry<'a> {
    /// A listener received an ordered event.
    Ordered {
        /// The event.
        id: &'a str,
        /// Its account.
        account: i64,
        /// The account's count.
        n: i64,
    },
    /// A listener received an event without a key.
    Unordered {
        /// The event.
        id: &'a str,
        /// Its account.
        account: i64,
        /// The account's count.
        n: i64,
    },
    /// A listener was called and failed, as configured.
    Refused {
        /// The event.
        id: &'a str,
    },
    /// A delivered event differs from the emitted one.
    Damaged {
        /// The event.
        id: &'a str,
    },
    /// An event was delivered before it was due, by the database's clock.
    Early {
        /// The event.
        id: &'a str,
    },
    /// An operator is about to replay a dead letter.
    Replay {
        /// The event.
        id: &'a str,
    },
    /// The database has the event as done.
    Done {
        /// The event.
        id: &'a str,
    },
    /// A fault was injected into the incarnation of the line.
    Fault {
        /// The kind of fault.
        kind: &'a str,
    },
    /// How the transactions since the last such line ended.
    Transactions {
        /// Committed or rolled back as planned.
        succeeded: u64,
        /// Failed, or their outcome is unknown.
        failed: u64,
    },
    /// A verdict came too late and was fenced.
    Fenced {
        /// The event.
        id: &'a str,
    },
    /// The relay lost its lease.
    LeaseLost,
    /// The relay stopped before these events were settled.
    Abandoned {
        /// The number of events.
        events: u64,
    },
    /// Events were delivered from the local queue.
    FromLocalQueue {
        /// The number of events.
        events: u64,
    },
    /// The relay acquired shards.
    ShardsAcquired {
        /// The number of shards.
        shards: u64,
    },
    /// The writers of the process have finished.
    WritesFinished,
    /// The relay has stopped gracefully.
    Stopped,
}

/// One line: a JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line<'a> {
    /// The incarnation of the process, such as `r1.2`.
    pub incarnation: &'a str,
    /// Microseconds since 1970.
    pub at: i64,
    /// The content.
    #[serde(flatten, borrow)]
    pub entry: Entry<'a>,
}

/// Parses a line; `None` for a torn one, such as the last one of a killed process.
pub fn parse(line: &str) -> Option<Line<'_>> {
    serde_json::from_str(line).ok()
}

/// Follows a log as it grows, and counts its entries.
#[derive(Debug)]
pub struct Tail {
    file: File,
    rest: Vec<u8>,
    /// Deliveries so far.
    pub deliveries: u64,
    /// Fenced verdicts so far.
    pub fenced: u64,
    /// Transactions that succeeded so far.
    pub succeeded: u64,
    /// Transactions that failed so far.
    pub failed: u64,
    /// Processes whose writers have finished.
    pub writers_finished: u64,
    /// The deliveries of each incarnation.
    pub incarnations: BTreeMap<String, Span>,
    /// When each incarnation first acquired shards.
    pub acquired: BTreeMap<String, i64>,
}

/// The deliveries of one incarnation, by its own clock.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// The first, in microseconds since 1970.
    pub first: i64,
    /// The last.
    pub last: i64,
    /// Their number.
    pub deliveries: u64,
}

impl Tail {
    /// Follows this file, which is created if it does not exist.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self {
            file: File::open(path)?,
            rest: Vec::new(),
            deliveries: 0,
            fenced: 0,
            succeeded: 0,
            failed: 0,
            writers_finished: 0,
            incarnations: BTreeMap::new(),
            acquired: BTreeMap::new(),
        })
    }

    /// Reads what was appended since the last call.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn poll(&mut self) -> Result {
        let mut bytes = std::mem::take(&mut self.rest);
        self.file.read_to_end(&mut bytes)?;
        let whole = bytes.iter().rposition(|byte| *byte == b'\n').map_or(0, |end| end + 1);
        self.rest = bytes.split_off(whole);
        for line in String::from_utf8_lossy(&bytes).lines().filter_map(parse) {
            self.count(&line);
        }
        Ok(())
    }

    fn count(&mut self, line: &Line<'_>) {
        match line.entry {
            Entry::Fenced { .. } => self.fenced += 1,
            Entry::Transactions { succeeded, failed } => {
                self.succeeded += succeeded;
                self.failed += failed;
            }
            Entry::WritesFinished => self.writers_finished += 1,
            Entry::ShardsAcquired { .. } => {
                self.acquired.entry(line.incarnation.to_owned()).or_insert(line.at);
            }
            Entry::Ordered { .. } | Entry::Unordered { .. } => {
                self.deliveries += 1;
                if let Some(span) = self.incarnations.get_mut(line.incarnation) {
                    (span.last, span.deliveries) = (line.at, span.deliveries + 1);
                } else {
                    let span = Span { first: line.at, last: line.at, deliveries: 1 };
                    self.incarnations.insert(line.incarnation.to_owned(), span);
                }
            }
            _ => {}
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_was_written_is_read() {
        let id = "01J";
        let entries = [
            Entry::Ordered { id, account: 3, n: 7 },
            Entry::Unordered { id, account: 3, n: -7 },
            Entry::Replay { id },
            Entry::Fault { kind: "kill" },
            Entry::Transactions { succeeded: 3, failed: 1 },
            Entry::Fenced { id },
            Entry::ShardsAcquired { shards: 64 },
        ];

        for entry in entries {
            let line = Line { incarnation: "r1.2", at: 1000, entry };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(parse(&text), Some(line), "{text}");
        }
        let step =
            r#"{"incarnation":"r1.2","at":1000,"what":"ordered","id":"01J","account":3,"n":7}"#;
        assert_eq!(parse(step).map(|line| line.entry), Some(entries[0]));
        assert_eq!(parse(&step[..step.len() - 3]), None);
        assert_eq!(parse(""), None);
    }
}
