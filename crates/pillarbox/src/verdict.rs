//! What a delivery came to: the failure that a listener reports, the verdict that is settled.

use std::{error::Error as StdError, fmt, time::Duration};

/// Why a delivery did not succeed, and what is to happen next.
///
/// Any error becomes a `Failure` through `?` and means *retry with backoff*. The constructors
/// say otherwise. It is not an [`Error`](std::error::Error) itself: that is what lets `?` take
/// all of them.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::Failure;
///
/// fn charge(cents: i64) -> Result<(), Failure> {
///     if cents < 0 {
///         return Err(Failure::dead("negative amount"));          // no retry will mend this
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

/// What a failure asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Next {
    /// Try again when the retry policy says.
    Retry,
    /// Try again after this long; counts as an attempt.
    RetryAfter(Duration),
    /// Not now, come again after this long; does not count as an attempt.
    Defer(Duration),
    /// Never again by itself.
    Dead,
}

impl Failure {
    /// Try again with backoff; what `?` does.
    pub fn retry(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::Retry, cause: cause.into() }
    }

    /// Try again after `delay`, whatever the retry policy says. Counts as an attempt.
    pub fn retry_after(delay: Duration, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::RetryAfter(delay), cause: cause.into() }
    }

    /// Not now: come again after `delay`. Does not count as an attempt.
    pub fn defer(delay: Duration, cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::Defer(delay), cause: cause.into() }
    }

    /// Give up at once: no retry will mend it.
    pub fn dead(cause: impl Into<Box<dyn StdError + Send + Sync>>) -> Self {
        Self { next: Next::Dead, cause: cause.into() }
    }

    /// What is asked for.
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

/// A failure as the judge takes it: what it asks for, and its text.
#[derive(Clone, Debug)]
pub(crate) struct Failed {
    pub(crate) next: Next,
    pub(crate) error: ErrorText,
}

impl From<Failure> for Failed {
    /// Calls the error's own `Display`, which is a stranger's code and may panic.
    fn from(failure: Failure) -> Self {
        Self { next: failure.next, error: ErrorText::new(&failure.to_string()) }
    }
}

/// What is written about an event once its delivery is over.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Verdict {
    /// Delivered: mark the row done and keep it for the retention.
    Done,
    /// Delivered: delete the row.
    Delete,
    /// Try again after `delay`; one more attempt is on the row.
    Retry {
        /// Counted from the settle, by the database's clock.
        delay: Duration,
        /// Why.
        error: ErrorText,
    },
    /// Come again after `delay`; the attempts stay as they are.
    Defer {
        /// Counted from the settle, by the database's clock.
        delay: Duration,
        /// Why.
        error: ErrorText,
    },
    /// Given up: a dead letter that blocks nobody.
    Dead {
        /// Why.
        error: ErrorText,
    },
    /// Given up, and the later events of its key wait for a replay.
    Held {
        /// Why.
        error: ErrorText,
    },
}

/// Longest error text kept with an event, in characters.
pub const MAX_ERROR_TEXT: usize = 4000;

/// An error's text as a row keeps it: at most 4000 characters, nothing a database refuses.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ErrorText(String);

impl ErrorText {
    /// Cuts the text at a character boundary and drops NUL, which PostgreSQL cannot store.
    pub fn new(text: &str) -> Self {
        Self(text.chars().filter(|c| *c != '\0').take(MAX_ERROR_TEXT).collect())
    }

    /// The text.
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
