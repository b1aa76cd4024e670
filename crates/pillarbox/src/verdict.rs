//! The failure that a listener returns, and the verdict that is settled.

use std::{error::Error as StdError, fmt, time::Duration};

/// Why a delivery failed, and what to do next.
///
/// Any error converts into a `Failure` through `?` and means *retry with backoff*. Use the
/// constructors for other outcomes. `Failure` does not implement [`Error`](std::error::Error),
/// because `?` could then not convert every error into it.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::Failure;
///
/// fn charge(cents: i64) -> Result<(), Failure> {
///     if cents < 0 {
///         return Err(Failure::dead("negative amount"));          // a retry would fail as well
///     }
///     if cents > 1_000_000 {
///         return Err(Failure::retry_after(Duration::from_secs(30), "bank is closed"));
///     }
///     "12".parse::<i64>()?;                                      // any error: retried
///     Ok(())
/// }
/// # assert!(charge(-1).is_err() && charge(5).is_ok());
/// ```
#[derive(Debug)]
pub struct Failure {
    next: Next,
    cause: Box<dyn StdError + Send + Sync>,
}

/// What to do after a failure.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Retry with the backoff of the retry policy.
    Retry,
    /// Retry after this delay.
    RetryAfter(Duration),
    /// Deliver again after this delay, without counting an attempt.
    Defer(Duration),
    /// Make the event a dead letter.
    Dead,
}

impl Failure {
    /// Retries with the backoff of the retry policy, as `?` does.
    pub fn retry(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::Retry, cause: cause.into() }
    }

    /// Retries after `delay` instead of the policy's backoff. The attempt is counted.
    pub fn retry_after(delay: Duration, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::RetryAfter(delay), cause: cause.into() }
    }

    /// Delivers the event again after `delay`, without counting an attempt.
    pub fn defer(delay: Duration, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::Defer(delay), cause: cause.into() }
    }

    /// Makes the event a dead letter without further attempts.
    pub fn dead(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::Dead, cause: cause.into() }
    }

    /// Returns what to do next.
    pub fn next(&self) -> Next {
        self.next
    }
}

impl fmt::Display for Failure {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", self.cause)?;
        let mut source = self.cause.source();
        while let Some(cause) = source {
            write!(f, ": {cause}")?;
            source = cause.source();
        }
        Ok(())
    }
}

impl<E: Into<Box<dyn StdError + Send + Sync>>> From<E> for Failure {
    fn from(cause: E) -> Self {
        Self::retry(cause)
    }
}

/// A failure with its text already formatted.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) next: Next,
    pub(crate) error: ErrorText,
}

impl From<Failure> for Failed {
    /// Calls the error's own `Display`, which is user code and may panic.
    fn from(failure: Failure) -> Self {
        Self { next: failure.next, error: ErrorText::new(&failure.to_string()) }
    }
}

/// The decision about an event after its delivery, which a settle writes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered. The row is marked as done and kept for the retention.
    Done,
    /// Delivered. The row is deleted.
    Delete,
    /// Failed. The attempt is counted, and the event is delivered again after a delay.
    Retry {
        /// The delay from the settle on, by the database's clock.
        delay: Duration,
        /// The text of the failure.
        error: ErrorText,
    },
    /// Deferred. The event is delivered again after a delay, without counting an attempt.
    Defer {
        /// The delay from the settle on, by the database's clock.
        delay: Duration,
        /// The reason.
        error: ErrorText,
    },
    /// Dead letter. The later events of its key continue.
    Dead {
        /// The text of the failure.
        error: ErrorText,
    },
    /// Dead letter. The later events of its key wait for a replay or a skip.
    Held {
        /// The text of the failure.
        error: ErrorText,
    },
}

/// The maximum length of an error text in characters.
pub const MAX_ERROR_TEXT: usize = 4000;

/// The text of an error as stored in a row: at most 4000 characters, without NUL.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText(String);

impl ErrorText {
    /// Truncates a text and removes NUL characters, which PostgreSQL cannot store.
    pub fn new(text: &str) -> Self {
        Self(text.chars().filter(|c| *c != '\0').take(MAX_ERROR_TEXT).collect())
    }

    /// Returns the text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_error_means_retry_and_keeps_its_causes() {
        let failure = Failure::from(std::io::Error::other("socket closed"));

        assert_eq!(failure.next(), Next::Retry);
        assert_eq!(failure.to_string(), "socket closed");
    }

    #[test]
    fn error_text_is_cut_between_characters() {
        let text = ErrorText::new(&format!("\0{}", "ß".repeat(5000)));

        assert_eq!(text.as_str(), "ß".repeat(4000));
    }
}
