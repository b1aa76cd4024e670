//! What an operator sees of dead letters, and does about them.

use std::{fmt, str::FromStr};

use super::Status;
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::id::{EventId, Seq, ShardId};

/// Most rows that one list or operation takes.
pub const MAX_BATCH: usize = 1000;

/// Longest name of who operates, in characters.
const MAX_BY: usize = 256;

/// Longest reason, in characters.
const MAX_REASON: usize = 1000;

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
    /// Whose it is, exactly.
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
    /// Which.
    pub filter: Filter,
    /// Which first.
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
    /// Whose it is.
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

/// Something an operator does to dead letters.
///
/// # Examples
/// ```
/// use pillarbox::store::Operation;
/// use pillarbox::{EventId, Seq};
///
/// let replay = Operation::replay([EventId::new("invoice-7")?])
///     .by("ana")?
///     .reason("the mail server is back")?;
/// assert_eq!(replay.targets.len(), 1);
///
/// let skip = Operation::skip([Seq(42)]); // whatever its id looks like
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Operation {
    /// What.
    pub action: Action,
    /// To which events; more than [`MAX_BATCH`] are refused.
    pub targets: Vec<Target>,
    pub(super) by: Option<String>,
    pub(super) reason: Option<String>,
}

/// An event that an operation is for.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub enum Target {
    /// The event at this place in the table, as [`DeadLetter::seq`] has it. Another program may
    /// have written an id that no [`EventId`] can be.
    Seq(Seq),
    /// The event with this id.
    Id(EventId),
}

impl From<Seq> for Target {
    fn from(seq: Seq) -> Self {
        Self::Seq(seq)
    }
}

impl From<EventId> for Target {
    fn from(id: EventId) -> Self {
        Self::Id(id)
    }
}

/// What an operation came to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Operated {
    /// How many of its targets are dead letters or held events. The others wait, are done, or do
    /// not exist.
    pub matched: u64,
    /// The events that were changed. Those that matched and were not changed are not in the state
    /// for it: a dead letter cannot be skipped.
    pub changed: Vec<Changed>,
}

/// An event that an operation has changed.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Changed {
    /// Its place.
    pub seq: Seq,
    /// Its id, whatever stands in the row.
    pub event_id: String,
}

/// What an operator can do to dead letters.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A dead or held event becomes new, with no attempt counted.
    Replay,
    /// A held event becomes a dead letter, and its key goes on.
    Skip,
    /// A dead or held event is deleted; its audit rows stay.
    Discard,
}

impl Action {
    /// The word in the `action` column of `outbox_audit`.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Replay => "outbox-replayed",
            Self::Skip => "outbox-skipped",
            Self::Discard => "outbox-discarded",
        }
    }

    /// Whether it can be done to an event in this state.
    pub const fn fits(self, status: Status) -> bool {
        match self {
            Self::Replay | Self::Discard => matches!(status, Status::Dead | Status::Held),
            Self::Skip => matches!(status, Status::Held),
        }
    }
}

/// What the audit calls an attempt that will be followed by another.
pub const SEND_FAILED: &str = "outbox-send-failed";

/// What the audit calls the attempt after which an event was given up.
pub const FAILED_PERMANENT: &str = "outbox-failed-permanent";

impl Operation {
    /// Makes dead and held events new again.
    pub fn replay(targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        Self::of(Action::Replay, targets)
    }

    /// Gives held events up, so that their keys go on.
    pub fn skip(targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        Self::of(Action::Skip, targets)
    }

    /// Deletes dead and held events.
    pub fn discard(targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        Self::of(Action::Discard, targets)
    }

    /// The action on these events.
    pub fn of(action: Action, targets: impl IntoIterator<Item = impl Into<Target>>) -> Self {
        let targets = targets.into_iter().map(Into::into).collect();
        Self { action, targets, by: None, reason: None }
    }

    /// The places that it names.
    pub fn seqs(&self) -> impl Iterator<Item = Seq> {
        self.targets.iter().filter_map(|target| match target {
            Target::Seq(seq) => Some(*seq),
            Target::Id(_) => None,
        })
    }

    /// The ids that it names.
    pub fn ids(&self) -> impl Iterator<Item = &EventId> {
        self.targets.iter().filter_map(|target| match target {
            Target::Seq(_) => None,
            Target::Id(id) => Some(id),
        })
    }

    /// Says in the audit who did it.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than 256 characters or a NUL.
    pub fn by(mut self, who: impl Into<String>) -> Result<Self> {
        self.by = Some(bounded("name of the operator", who.into(), MAX_BY)?);
        Ok(self)
    }

    /// Says in the audit why.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than 1000 characters or a NUL.
    pub fn reason(mut self, why: impl Into<String>) -> Result<Self> {
        self.reason = Some(bounded("reason", why.into(), MAX_REASON)?);
        Ok(self)
    }

    /// Refuses more than a statement should carry, before anything is written.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for more than [`MAX_BATCH`] events.
    pub fn check(&self) -> Result<()> {
        if self.targets.len() <= MAX_BATCH {
            return Ok(());
        }
        Err(Error::invalid(format!(
            "{} events in one operation, the limit is {MAX_BATCH}: split them",
            self.targets.len()
        )))
    }

    /// The `extra` column: who and why, as a JSON object.
    pub fn extra(&self) -> Option<String> {
        let said = [("by", &self.by), ("reason", &self.reason)];
        let said: serde_json::Map<_, _> = said
            .into_iter()
            .filter_map(|(name, text)| Some((name.to_owned(), text.clone()?.into())))
            .collect();
        (!said.is_empty()).then(|| serde_json::Value::from(said).to_string())
    }
}

fn bounded(what: &str, text: String, most: usize) -> Result<String> {
    let length = text.chars().count();
    if length > most {
        return Err(Error::invalid(format!("{what} has {length} characters, the limit is {most}")));
    }
    if text.contains('\0') {
        return Err(Error::invalid(format!("{what} contains a NUL character")));
    }
    Ok(text)
}

/// One line of an event's trail.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AuditEntry {
    /// What happened: `outbox-send-failed`, `outbox-failed-permanent`, `outbox-replayed`,
    /// `outbox-skipped`, `outbox-discarded`, or what another program wrote.
    pub action: String,
    /// How many attempts had failed by then.
    pub attempts: u32,
    /// Why the attempt failed.
    pub error: Option<String>,
    /// Who did it, if an operator was named.
    pub by: Option<String>,
    /// The reason given, if any.
    pub reason: Option<String>,
    /// When, by the database's clock.
    pub at: Timestamp,
}

impl AuditEntry {
    /// Reads who and why from the `extra` column, as far as it has them.
    pub fn said(extra: Option<&str>, name: &str) -> Option<String> {
        let extra: serde_json::Value = serde_json::from_str(extra?).ok()?;
        Some(extra.get(name)?.as_str()?.to_owned())
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

    #[test]
    fn who_and_why_are_bounded_and_come_back() {
        let id = EventId::generate();
        let operation = Operation::skip([id.clone()]).by("ana \"x\"").unwrap();

        assert_eq!(AuditEntry::said(operation.extra().as_deref(), "by").unwrap(), "ana \"x\"");
        assert_eq!(AuditEntry::said(operation.extra().as_deref(), "reason"), None);
        assert_eq!(Operation::skip([id.clone()]).extra(), None);
        assert!(Operation::skip([id.clone()]).by("x".repeat(257)).is_err());
        assert!(Operation::skip([id.clone()]).reason("a\0b").is_err());
        assert!(Operation::skip(vec![id; MAX_BATCH + 1]).check().is_err());
    }
}
