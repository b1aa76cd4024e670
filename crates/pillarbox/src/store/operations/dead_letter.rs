//! Dead letters and held events: which, and what an operator sees of them.

use std::{fmt, str::FromStr};

use super::MAX_BATCH;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{Seq, ShardId};
use crate::store::Status;

/// Which dead letters and held events. What is not said does not matter.
///
/// # Examples
/// ```
/// use pillarbox::store::Filter;
///
/// let refused = Filter {
///     event_type: Some("mail.sent".into()),
///     error: Some("connection refused".into()),
///     ..Filter::default()
/// };
/// assert_eq!(refused.tenant_id, None);
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Filter {
    /// `Dead`, `Held`, or both. Any other status finds nothing.
    pub status: Option<Status>,
    /// Its type, exactly.
    pub event_type: Option<String>,
    /// The type of its aggregate, exactly.
    pub aggregate_type: Option<String>,
    /// The id of its aggregate, exactly.
    pub aggregate_id: Option<String>,
    /// What it is ordered by, exactly.
    pub key: Option<String>,
    /// Its tenant, exactly.
    pub tenant_id: Option<String>,
    /// What its error text contains, upper and lower case told apart.
    pub error: Option<String>,
    /// Given up at this moment or later.
    pub since: Option<Timestamp>,
    /// Given up before this moment.
    pub until: Option<Timestamp>,
}

/// A page of dead letters.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct List {
    /// Which events to list.
    pub filter: Filter,
    /// The order of the list.
    pub direction: Direction,
    /// Only those after this one, in the page's direction: the last one of the page before.
    pub after: Option<Cursor>,
    /// How many at most; more than [`MAX_BATCH`] are never given.
    pub limit: u32,
}

impl Default for List {
    fn default() -> Self {
        Self {
            filter: Filter::default(),
            direction: Direction::NewestFirst,
            after: None,
            limit: 100,
        }
    }
}

impl List {
    /// The limit that is used: at most [`MAX_BATCH`].
    pub fn rows(&self) -> usize {
        usize::try_from(self.limit).unwrap_or(MAX_BATCH).min(MAX_BATCH)
    }
}

/// Which dead letters come first.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Direction {
    /// Those given up last.
    #[default]
    NewestFirst,
    /// Those given up first.
    OldestFirst,
}

/// A place in the list of dead letters, which stays where it is while the list changes.
///
/// # Examples
/// ```
/// use pillarbox::store::Cursor;
///
/// let place: Cursor = "1700000000000000-42".parse()?;
/// assert_eq!(place.to_string(), "1700000000000000-42");
/// assert!("somewhere".parse::<Cursor>().is_err());
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cursor {
    /// When the event was given up.
    pub at: Timestamp,
    /// Its place in the table.
    pub seq: Seq,
}

impl fmt::Display for Cursor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}-{}", self.at.unix_micros(), self.seq.0)
    }
}

impl FromStr for Cursor {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        let parts = text.rsplit_once('-').and_then(|(at, seq)| {
            Some((at.parse::<i64>().ok()?, seq.parse::<i64>().ok().filter(|seq| *seq >= 0)?))
        });
        let Some((at, seq)) = parts else {
            return Err(Error::invalid(format!(
                "not a cursor: {text:?}; use the one that came with the page before"
            )));
        };
        Ok(Self { at: Timestamp::from_unix_micros(at), seq: Seq(seq) })
    }
}

/// A dead letter or a held event, without its payload.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct DeadLetter {
    /// Its place.
    pub seq: Seq,
    /// Its shard.
    pub shard: ShardId,
    /// Its id, whatever stands in the row.
    pub event_id: String,
    /// Its type.
    pub event_type: String,
    /// Its version.
    pub event_version: i32,
    /// The type of its aggregate.
    pub aggregate_type: String,
    /// The id of its aggregate.
    pub aggregate_id: Option<String>,
    /// What it is ordered by.
    pub key: Option<String>,
    /// Its tenant.
    pub tenant_id: Option<String>,
    /// `Dead`, or `Held` where its key waits.
    pub status: Status,
    /// How many attempts have failed.
    pub attempts: u32,
    /// Why it was given up.
    pub last_error: Option<String>,
    /// The route that gave it up.
    pub settled_by: Option<String>,
    /// When it happened, by the writer's word.
    pub occurred_at: Timestamp,
    /// When it was inserted.
    pub created_at: Timestamp,
    /// When it was given up.
    pub given_up_at: Timestamp,
    /// How large its payload is, in bytes.
    pub payload_size: u64,
}

impl DeadLetter {
    /// Where the next page begins when this is the last one of a page.
    pub fn cursor(&self) -> Cursor {
        Cursor { at: self.given_up_at, seq: self.seq }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cursor_before_1970_comes_back() {
        let place = Cursor { at: Timestamp::from_unix_micros(-5), seq: Seq(3) };

        assert_eq!(place.to_string().parse::<Cursor>().unwrap(), place);
        for wrong in ["", "-", "1", "1-", "-1", "1--2", "x-1", "1-99999999999999999999"] {
            assert!(wrong.parse::<Cursor>().is_err(), "{wrong}");
        }
    }
}
