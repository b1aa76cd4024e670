//! Rows that maintenance deletes.

use std::time::Duration;

use crate::error::{Error, ErrorKind, Result};
use crate::store::{ClaimMode, DeliveryMode};

/// What to delete.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::store::Purge;
///
/// let weekly = Purge::done(Duration::from_secs(7 * 86_400)).limit(500);
/// assert_eq!(weekly.limit, 500);
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Purge {
    /// The kind of rows.
    pub kind: PurgeKind,
    /// Only rows that came to be what they are longer ago than this.
    pub older_than: Duration,
    /// The most rows to delete.
    pub limit: u32,
}

/// Which rows a purge deletes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PurgeKind {
    /// Delivered events, by the time of their verdict.
    Done,
    /// Dead letters that hold no key, by the time they were given up.
    Dead,
    /// Audit rows.
    Audit,
    /// What inboxes have noted; an event that comes again later has its effect again.
    Inbox,
    /// Events in any state, by the time they were emitted, or of their verdict if they have one.
    /// Refused unless the tables are set to [`ClaimMode::None`](ClaimMode::None).
    Any,
}

impl PurgeKind {
    /// The word in logs and labels.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Done => "done",
            Self::Dead => "dead",
            Self::Audit => "audit",
            Self::Inbox => "inbox",
            Self::Any => "any",
        }
    }
}

impl Purge {
    /// Delivered rows settled longer ago than this.
    pub fn done(older_than: Duration) -> Self {
        Self::of(PurgeKind::Done, older_than)
    }

    /// Dead letters given up longer ago than this.
    pub fn dead(older_than: Duration) -> Self {
        Self::of(PurgeKind::Dead, older_than)
    }

    /// Audit rows older than this.
    pub fn audit(older_than: Duration) -> Self {
        Self::of(PurgeKind::Audit, older_than)
    }

    /// Inbox notes older than this.
    pub fn inbox(older_than: Duration) -> Self {
        Self::of(PurgeKind::Inbox, older_than)
    }

    /// Events emitted or settled longer ago than this, delivered or not.
    pub fn any(older_than: Duration) -> Self {
        Self::of(PurgeKind::Any, older_than)
    }

    fn of(kind: PurgeKind, older_than: Duration) -> Self {
        Self { kind, older_than, limit: 500 }
    }

    /// At most this many in one call; 500 unless said.
    #[must_use]
    pub fn limit(mut self, limit: u32) -> Self {
        self.limit = limit;
        self
    }
}

/// What nobody has delivered goes only where nobody is meant to deliver.
pub(in crate::store) fn refuse_unless_nobody_delivers(mode: DeliveryMode) -> Result<()> {
    if mode.claim == ClaimMode::None {
        return Ok(());
    }
    let message = format!(
        "events in any state are purged only where the tables are set to claim = none, they are \
         set to `{mode}`: purge done and dead events instead, or `configure` the tables"
    );
    Err(Error::new(ErrorKind::Configuration, message))
}
