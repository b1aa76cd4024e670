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

use crate::Result;

/// One relay's end of the log.
#[derive(Debug)]
pub struct Log {
    file: File,
    life: String,
}

impl Log {
    /// Appends to this file in the name of one life of a relay.
    ///
    /// # Errors
    /// When the file cannot be opened.
    pub fn open(path: &Path, life: &str) -> Result<Self> {
        let file = OpenOptions::new().create(true).append(true).open(path)?;
        Ok(Self { file, life: life.to_owned() })
    }

    /// Writes one line with one call.
    ///
    /// # Errors
    /// When the disk is full, say.
    pub fn note(&self, entry: &Entry<'_>) -> std::io::Result<()> {
        let line = format!("{} {} {entry}\n", self.life, SystemClock.now().unix_micros());
        (&self.file).write_all(line.as_bytes())
    }
}

/// What a line tells.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Entry<'a> {
    /// A listener was called: event id, account, the account's count.
    Step(&'a str, i64, i64),
    /// The same without order.
    Glimpse(&'a str, i64, i64),
    /// A verdict came too late and changed nothing.
    Fenced,
    /// The relay lost its lease.
    LeaseLost,
    /// A stop could not wait for this many events.
    Abandoned(u64),
    /// So many events went from memory to delivery.
    Hot(u64),
    /// The relay took so many shards.
    Took(u64),
    /// The process's own writers have written all they were told to.
    Wrote,
    /// The relay has ended by itself.
    Stopped,
}

impl std::fmt::Display for Entry<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Step(id, account, n) => write!(f, "step {id} {account} {n}"),
            Self::Glimpse(id, account, n) => write!(f, "glimpse {id} {account} {n}"),
            Self::Fenced => f.write_str("fenced"),
            Self::LeaseLost => f.write_str("lost"),
            Self::Abandoned(count) => write!(f, "abandoned {count}"),
            Self::Hot(count) => write!(f, "hot {count}"),
            Self::Took(count) => write!(f, "took {count}"),
            Self::Wrote => f.write_str("wrote"),
            Self::Stopped => f.write_str("stopped"),
        }
    }
}

/// A line that was read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Line<'a> {
    /// Which life of which relay.
    pub life: &'a str,
    /// When, in microseconds since 1970 by its own clock.
    pub at: i64,
    /// What.
    pub entry: Entry<'a>,
}

/// Reads a line; `None` for one that is none, such as the last one of a killed process.
pub fn parse(line: &str) -> Option<Line<'_>> {
    let mut words = line.split(' ');
    let (life, at) = (words.next()?, words.next()?.parse().ok()?);
    let kind = words.next()?;
    let mut number = || words.next().and_then(|word| word.parse::<u64>().ok());
    let entry = match kind {
        "fenced" => Entry::Fenced,
        "lost" => Entry::LeaseLost,
        "wrote" => Entry::Wrote,
        "stopped" => Entry::Stopped,
        "abandoned" => Entry::Abandoned(number()?),
        "hot" => Entry::Hot(number()?),
        "took" => Entry::Took(number()?),
        "step" | "glimpse" => {
            let id = words.next()?;
            let (account, n) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            if kind == "step" {
                Entry::Step(id, account, n)
            } else {
                Entry::Glimpse(id, account, n)
            }
        }
        _ => return None,
    };
    Some(Line { life, at, entry })
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
        Ok(Self { file, rest, deliveries: 0, fenced: 0, wrote: 0, lives, took })
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
            Entry::Fenced => self.fenced += 1,
            Entry::Wrote => self.wrote += 1,
            Entry::Took(_) => {
                self.took.entry(line.life.to_owned()).or_insert(line.at);
            }
            Entry::Step(..) | Entry::Glimpse(..) => {
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
        let entries = [
            Entry::Step("01J", 3, 7),
            Entry::Glimpse("01K", 3, 7),
            Entry::Fenced,
            Entry::LeaseLost,
            Entry::Abandoned(4),
            Entry::Hot(2),
            Entry::Took(64),
            Entry::Wrote,
            Entry::Stopped,
        ];

        for entry in entries {
            let line = format!("r1.2 1000 {entry}");
            assert_eq!(parse(&line), Some(Line { life: "r1.2", at: 1000, entry }));
        }
        assert_eq!(parse("r1.2 1000 step 01J 3"), None);
        assert_eq!(parse(""), None);
    }
}
