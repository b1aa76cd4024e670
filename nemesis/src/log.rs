//! The log: what relay processes saw, a line each, in one file that all of them append to.
//!
//! The kernel puts appended lines one after the other, so their order is that of the deliveries;
//! and what the kernel has, a kill cannot take back.

use std::{
    collections::BTreeMap,
    fs::{File, OpenOptions},
    io::{Read as _, Write as _},
    path::Path,
};

use pillarbox::{Clock as _, SystemClock};
use serde::{Deserialize, Serialize};

use crate::Result;

/// One relay's end of the log.
#[derive(Debug)]
pub struct Log {
    file: File,
    life: String,
    /// How many microseconds the clock of this process is ahead of everybody else's.
    ahead: i64,
}

impl Log {
    /// Appends to this file in the name of one life of a relay.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, life: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, life: life.to_owned(), ahead: 0 })
    }

    /// Where the clock is so many hours ahead, and is known to be.
    #[must_use]
    pub fn ahead(self, hours: i64) -> Self {
        Self { ahead: hours * 3_600_000_000, ..self }
    }

    /// Writes one line with one call.
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn note(&self, entry: &Entry<'_>) -> std::io::Result<()> {
        self.note_of(&self.life, entry)
    }

    /// The same about another life.
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn note_of(&self, life: &str, entry: &Entry<'_>) -> std::io::Result<()> {
        let at = SystemClock.now().unix_micros() - self.ahead;
        let mut line = serde_json::to_vec(&Line { life, at, entry: *entry })?;
        line.push(b'\n');
        (&self.file).write_all(&line)
    }
}

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "what", rename_all = "snake_case")]
pub enum Entry<'a> {
    /// A listener heard an event: its id, account, and the account's count.
    Step {
        /// Which event.
        id: &'a str,
        /// Whose.
        account: i64,
        /// Its count.
        n: i64,
    },
    /// The same without order.
    Glimpse {
        /// Which event.
        id: &'a str,
        /// Whose.
        account: i64,
        /// Its count.
        n: i64,
    },
    /// A listener was called, and refused by order.
    Refused {
        /// Which event.
        id: &'a str,
    },
    /// What came is not what was emitted.
    Damaged {
        /// Which event.
        id: &'a str,
    },
    /// It came before it was due, by the database's clock.
    Early {
        /// Which event.
        id: &'a str,
    },
    /// An operator is about to replay a dead letter.
    Replay {
        /// Which event.
        id: &'a str,
    },
    /// The database says that the event is done.
    Done {
        /// Which event.
        id: &'a str,
    },
    /// Something was done to the life that the line is of.
    Fault {
        /// What.
        kind: &'a str,
    },
    /// How many transactions ended as they should since the last such line, and how many did not.
    Tried {
        /// So many ended well.
        well: u64,
        /// So many did not, or nobody knows.
        ill: u64,
    },
    /// A verdict came too late and changed nothing.
    Fenced {
        /// On which event.
        id: &'a str,
    },
    /// The relay lost its lease.
    LeaseLost,
    /// A stop could not wait for these.
    Abandoned {
        /// So many.
        events: u64,
    },
    /// These went from memory to delivery.
    Hot {
        /// So many.
        events: u64,
    },
    /// The relay took shards.
    Took {
        /// So many.
        shards: u64,
    },
    /// The process's own writers have written all they were told to.
    Wrote,
    /// The relay has ended by itself.
    Stopped,
}

/// A line: one JSON object.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Line<'a> {
    /// Which life of which relay.
    pub life: &'a str,
    /// When, in microseconds since 1970.
    pub at: i64,
    /// What.
    #[serde(flatten, borrow)]
    pub entry: Entry<'a>,
}

/// Reads a line; `None` for one that is none, such as the last one of a killed process.
pub fn parse(line: &str) -> Option<Line<'_>> {
    serde_json::from_str(line).ok()
}

/// Follows a log as it grows, and counts.
#[derive(Debug)]
pub struct Tail {
    file: File,
    rest: Vec<u8>,
    /// Deliveries so far.
    pub deliveries: u64,
    /// Late verdicts so far.
    pub fenced: u64,
    /// Transactions that ended as they should so far.
    pub well: u64,
    /// Transactions that did not end as they should so far.
    pub ill: u64,
    /// Processes whose writers have written all.
    pub wrote: u64,
    /// When each life delivered first and last, by its own clock, and how often.
    pub lives: BTreeMap<String, Span>,
    /// When each life took shards first.
    pub took: BTreeMap<String, i64>,
}

/// From when to when a life delivered.
#[derive(Clone, Copy, Debug)]
pub struct Span {
    /// Its first delivery, in microseconds since 1970.
    pub first: i64,
    /// Its last one.
    pub last: i64,
    /// How many there were.
    pub deliveries: u64,
}

impl Tail {
    /// Follows this file, which may not be there yet.
    ///
    /// # Errors
    /// When it cannot be opened.
    pub fn open(path: &Path) -> Result<Self> {
        OpenOptions::new().create(true).append(true).open(path)?;
        let file = File::open(path)?;
        let (rest, lives, took) = (Vec::new(), BTreeMap::new(), BTreeMap::new());
        Ok(Self { file, rest, deliveries: 0, fenced: 0, well: 0, ill: 0, wrote: 0, lives, took })
    }

    /// Takes in what was written since.
    ///
    /// # Errors
    /// When the file cannot be read.
    pub fn look(&mut self) -> Result {
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
            Entry::Tried { well, ill } => {
                self.well += well;
                self.ill += ill;
            }
            Entry::Wrote => self.wrote += 1,
            Entry::Took { .. } => {
                self.took.entry(line.life.to_owned()).or_insert(line.at);
            }
            Entry::Step { .. } | Entry::Glimpse { .. } => {
                self.deliveries += 1;
                if let Some(span) = self.lives.get_mut(line.life) {
                    (span.last, span.deliveries) = (line.at, span.deliveries + 1);
                } else {
                    let span = Span { first: line.at, last: line.at, deliveries: 1 };
                    self.lives.insert(line.life.to_owned(), span);
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
            Entry::Step { id, account: 3, n: 7 },
            Entry::Glimpse { id, account: 3, n: -7 },
            Entry::Replay { id },
            Entry::Fault { kind: "kill" },
            Entry::Tried { well: 3, ill: 1 },
            Entry::Fenced { id },
            Entry::Took { shards: 64 },
        ];

        for entry in entries {
            let line = Line { life: "r1.2", at: 1000, entry };
            let text = serde_json::to_string(&line).unwrap();
            assert_eq!(parse(&text), Some(line), "{text}");
        }
        let step = r#"{"life":"r1.2","at":1000,"what":"step","id":"01J","account":3,"n":7}"#;
        assert_eq!(parse(step).map(|line| line.entry), Some(entries[0]));
        assert_eq!(parse(&step[..step.len() - 3]), None);
        assert_eq!(parse(""), None);
    }
}
