//! A verdict as the columns of a row hold it, the same in every dialect.

use crate::clock::micros;
use crate::store::Status;
use crate::verdict::Verdict;

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Mark<'a> {
    pub(super) status: Status,
    /// 1 where the attempt counts.
    pub(super) tried: i32,
    /// Microseconds until the row is due again.
    pub(super) delay: i64,
    pub(super) error: Option<&'a str>,
}

impl<'a> Mark<'a> {
    pub(super) fn of(verdict: &'a Verdict) -> Self {
        let (status, tried, delay, error) = match verdict {
            Verdict::Done | Verdict::Delete => (Status::Done, 0, 0, None),
            Verdict::Retry { delay, error } => (Status::Waiting, 1, micros(*delay), Some(error)),
            Verdict::Defer { delay, error } => (Status::Waiting, 0, micros(*delay), Some(error)),
            Verdict::Dead { error } => (Status::Dead, 1, 0, Some(error)),
            Verdict::Held { error } => (Status::Held, 1, 0, Some(error)),
        };
        Self { status, tried, delay, error: error.map(|error| error.as_str()) }
    }
}
