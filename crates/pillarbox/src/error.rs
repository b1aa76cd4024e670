//! The error type of this crate.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) mod sqlx;

use std::{convert::Infallible, error::Error as StdError, fmt};

/// The kind of an [`Error`], which tells the caller what to do.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input violates a limit or rule named in the message. Nothing was written.
    Invalid,
    /// There is no open transaction to write into, or the database has already ended it.
    NoTransaction,
    /// An event with this id exists already. See [`Error::transaction`] for the transaction's
    /// state.
    Duplicate,
    /// The database cannot be reached or is out of resources. Retry later.
    Unavailable,
    /// Another transaction holds a lock, or the statement timed out. Retry, possibly with fewer
    /// rows.
    Busy,
    /// `COMMIT` was sent and no answer came. It may have succeeded: check before you retry.
    CommitUnknown,
    /// The tables are missing, or newer than this library. Run `migrate`, or update the library.
    Schema,
    /// A URL, setting or cargo feature is wrong. The message names it.
    Configuration,
    /// A stored value cannot be decoded.
    Corrupt,
    /// The database rejected the statement. A retry would fail as well.
    Database,
}

/// The state of the caller's transaction after a failed call.
///
/// If the database could not be asked, for example because the connection broke, an ended
/// transaction may be reported as open.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxFate {
    /// Still open, without any effect of the failed call. It can be used further.
    Open,
    /// Aborted by the database. Every further statement fails: roll it back.
    Aborted,
    /// Rolled back.
    RolledBack,
    /// Ended before the call, by a statement sent over its connection or by the database, which
    /// committed or rolled back its work. Nothing of the failed call was written.
    Ended,
}

/// The error of every fallible call in this crate.
///
/// Match on [`kind`](Self::kind); the message is for people and may change.
///
/// # Examples
/// ```
/// use pillarbox::{ErrorKind, EventType};
///
/// let error = EventType::new("").unwrap_err();
///
/// assert_eq!(error.kind(), ErrorKind::Invalid);
/// assert_eq!(error.to_string(), "event type is empty");
/// ```
#[derive(Debug)]
pub struct Error {
    kind: ErrorKind,
    message: String,
    fate: Option<TxFate>,
    source: Option<Box<dyn StdError + Send + Sync>>,
}

/// `Result` with this crate's [`Error`].
pub type Result<T, E = Error> = std::result::Result<T, E>;

impl Error {
    /// Creates an error. Stores and transactions outside this crate use it too.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), fate: None, source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Sets the source of the error.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Sets the state of the caller's transaction.
    #[must_use]
    pub fn leaving(mut self, fate: TxFate) -> Self {
        self.fate = Some(fate);
        self
    }

    /// Returns the kind.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// Returns the state of the caller's transaction, if the failed call was part of one.
    pub fn transaction(&self) -> Option<TxFate> {
        self.fate
    }

    /// Returns the text of the source for logs, or an empty text.
    pub(crate) fn source_text(&self) -> String {
        self.source.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// Returns whether the same call may succeed later.
    pub fn is_transient(&self) -> bool {
        matches!(self.kind, ErrorKind::Unavailable | ErrorKind::Busy)
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.fate {
            None => Ok(()),
            Some(TxFate::Open) => f.write_str("; the transaction is still open"),
            Some(TxFate::Aborted) => f.write_str("; the transaction is aborted: roll it back"),
            Some(TxFate::RolledBack) => f.write_str("; the transaction was rolled back"),
            Some(TxFate::Ended) => {
                f.write_str("; the transaction's earlier work was committed or rolled back then")
            }
        }
    }
}

impl StdError for Error {
    fn source(&self) -> Option<&(dyn StdError + 'static)> {
        self.source.as_deref().map(|source| source as &(dyn StdError + 'static))
    }
}

impl From<Infallible> for Error {
    fn from(never: Infallible) -> Self {
        match never {}
    }
}
