//! What operators see and change, and what maintenance deletes.

mod dead_letter;
mod purge;

use async_trait::async_trait;

pub use self::dead_letter::{Cursor, DeadLetter, Direction, Filter, List};
pub(super) use self::purge::refuse_unless_nobody_delivers;
pub use self::purge::{Purge, PurgeKind};
use super::Status;
use super::arc::for_arc;
use crate::clock::Timestamp;
use crate::envelope::{Envelope, InvalidRow};
use crate::error::{Error, Result};
use crate::id::{EventId, Seq, ShardId, Token};

/// Shows operators dead letters, changes them, and deletes what is done with.
///
/// # Contract
/// - Every operation MUST leave an audit row for each event that it changes, in the same transaction.
/// - Every operation MUST add 1 to the token of a row, so that a verdict under way cannot undo it.
/// - A purge MUST NOT delete a pending or held event, except with [`PurgeKind::Any`].
///
/// # Examples
/// ```
/// use pillarbox::store::{List, Operation, Operations};
/// use pillarbox::{EventId, MemoryStore};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let store = MemoryStore::new();
/// assert!(store.dead_letters(&List::default()).await?.is_empty());
///
/// let operated = store.operate(&Operation::replay([EventId::new("invoice-7")?])).await?;
/// assert_eq!(operated.matched, 0);
/// # Ok::<(), pillarbox::Error>(())
/// # })?;
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
#[async_trait]
pub trait Operations: Send + Sync {
    /// Lists dead letters and held events, without their payloads.
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>>;

    /// Counts dead letters and held events.
    async fn count_dead(&self, filter: &Filter) -> Result<u64>;

    /// Replays, skips or discards events. Events that are not in a suitable state do not change.
    ///
    /// A target that is a `seq` MUST be found whatever the id of its row looks like. A relay finds
    /// replayed events at its next sweep, or at once after a wake.
    async fn operate(&self, operation: &Operation) -> Result<Operated>;

    /// Lists the failures of an event and the operations on it: the newest [`MAX_BATCH`] entries,
    /// oldest first.
    ///
    /// The id is a text, since a row may have one that is not a valid [`EventId`].
    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>>;

    /// Deletes rows that are done with, up to [`Purge::limit`]. Returns how many these were.
    ///
    /// [`PurgeKind::Any`] is refused unless nobody delivers from the tables.
    async fn purge(&self, purge: &Purge) -> Result<u64>;

    /// Returns an event and its state.
    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>>;
}

for_arc!(Operations {
    async fn dead_letters(&self, list: &List) -> Result<Vec<DeadLetter>>;
    async fn count_dead(&self, filter: &Filter) -> Result<u64>;
    async fn operate(&self, operation: &Operation) -> Result<Operated>;
    async fn audit_trail(&self, id: &str) -> Result<Vec<AuditEntry>>;
    async fn purge(&self, purge: &Purge) -> Result<u64>;
    async fn event(&self, id: &EventId) -> Result<Option<StoredEvent>>;
});

/// Most rows that one list or operation takes.
pub const MAX_BATCH: usize = 1000;

/// Longest name of who operates, in characters.
const MAX_BY: usize = 256;

/// Longest reason, in characters.
const MAX_REASON: usize = 1000;

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
    /// The action.
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

/// An event as it stands in the table.
#[derive(Clone, Debug)]
pub struct StoredEvent {
    /// Its place.
    pub seq: Seq,
    /// Its shard.
    pub shard: ShardId,
    /// What it is ordered by.
    pub key: Option<String>,
    /// How often its state was decided.
    pub token: Token,
    /// Where it is in its life.
    pub status: Status,
    /// How many attempts have failed.
    pub attempts: u32,
    /// When it may be delivered.
    pub available_at: Timestamp,
    /// When it was inserted, by the database's clock.
    pub created_at: Timestamp,
    /// When its last verdict was written, if it was a final one.
    pub done_at: Option<Timestamp>,
    /// The route that settled it.
    pub settled_by: Option<String>,
    /// Why its last attempt failed.
    pub last_error: Option<String>,
    /// The event, or why the row is none.
    pub event: Result<Envelope, InvalidRow>,
}

#[cfg(test)]
mod tests {
    use super::*;

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
