//! The one public error, and the coarse kinds that a caller branches on.

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) mod sqlx;

use std::{convert::Infallible, error::Error as StdError, fmt};

/// What a caller does about an [`Error`].
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum ErrorKind {
    /// The input breaks a rule that the message names. Mend the input; nothing was written.
    Invalid,
    /// There is no open transaction to write into, or the database has already ended it.
    NoTransaction,
    /// An event with this id exists already. [`Error::transaction`] says what became of yours.
    Duplicate,
    /// The database is out of reach, busy, or chose this transaction as a victim. Try again.
    Unavailable,
    /// `COMMIT` was sent and no answer came. Look before you try again: it may have happened.
    CommitUnknown,
    /// The tables are missing, or newer than this library. Run `migrate`, or update.
    Schema,
    /// A URL, setting or cargo feature is wrong. The message says which.
    Configuration,
    /// A stored row cannot be read back as an event.
    Corrupt,
    /// The database refused the statement for a reason that trying again will not mend.
    Database,
}

/// What became of the caller's transaction when an emit failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum TxFate {
    /// Still open: nothing of the failed call is in it, and it can go on.
    Open,
    /// Aborted by the database: every further statement fails, only a rollback is left.
    Aborted,
    /// Rolled back: nothing that it did remains.
    RolledBack,
}

/// The error of every fallible call in this crate.
///
/// Branch on [`kind`](Self::kind); the message is for people and may change.
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
    /// An error of this kind; stores and transactions outside this crate make theirs with it.
    pub fn new(kind: ErrorKind, message: impl Into<String>) -> Self {
        Self { kind, message: message.into(), fate: None, source: None }
    }

    pub(crate) fn invalid(message: impl Into<String>) -> Self {
        Self::new(ErrorKind::Invalid, message)
    }

    /// Keeps the error that caused this one.
    #[must_use]
    pub fn caused_by(mut self, source: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        self.source = Some(source.into());
        self
    }

    /// Says what became of the caller's transaction.
    #[must_use]
    pub fn leaving(mut self, fate: TxFate) -> Self {
        self.fate = Some(fate);
        self
    }

    /// What to do about it.
    pub fn kind(&self) -> ErrorKind {
        self.kind
    }

    /// What became of the caller's transaction, where the failed call was part of one.
    pub fn transaction(&self) -> Option<TxFate> {
        self.fate
    }

    /// The text of what caused it, for logs; empty when there is no more to say.
    pub(crate) fn source_text(&self) -> String {
        self.source.as_ref().map(ToString::to_string).unwrap_or_default()
    }

    /// Whether the same call may succeed later, unchanged.
    pub fn is_transient(&self) -> bool {
        self.kind == ErrorKind::Unavailable
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)?;
        match self.fate {
            None => Ok(()),
            Some(TxFate::Open) => f.write_str("; the transaction is still open, without it"),
            Some(TxFate::Aborted) => f.write_str("; the transaction is aborted: roll it back"),
            Some(TxFate::RolledBack) => f.write_str("; the transaction was rolled back"),
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
