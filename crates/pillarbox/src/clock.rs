//! Time. Only this module reads the clocks of the machine.

use std::{fmt, time::Duration};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::Instant;

use crate::error::{Error, Result};

// Year 1 and the end of year 9999, the range of RFC 3339 and of every database.
const FIRST_MICROS: i64 = -62_135_596_800_000_000;
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// A point in time in UTC with microsecond precision, which every store keeps exactly.
///
/// # Examples
/// ```
/// use pillarbox::Timestamp;
///
/// let moment = Timestamp::parse("2026-11-15T20:00:00.000001Z")?;
///
/// assert_eq!(moment.to_string(), "2026-11-15T20:00:00.000001Z");
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp(i64);

impl Timestamp {
    /// Creates a timestamp from microseconds since 1970, clamped to the years 1 to 9999.
    pub fn from_unix_micros(micros: i64) -> Self {
        Self(micros.clamp(FIRST_MICROS, LAST_MICROS))
    }

    /// Returns the microseconds since 1970.
    pub fn unix_micros(self) -> i64 {
        self.0
    }

    /// Parses an RFC 3339 text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) for any other text.
    pub fn parse(text: &str) -> Result<Self> {
        OffsetDateTime::parse(text, &Rfc3339).map(Self::from).map_err(|source| {
            Error::invalid(format!("not an RFC 3339 time: {text:?}")).caused_by(source)
        })
    }

    /// Adds a duration, or returns the latest timestamp on overflow.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self::from_unix_micros(self.unix_micros().saturating_add(micros))
    }

    /// Returns the time since `earlier`, or zero if `earlier` is later.
    pub fn since(self, earlier: Self) -> Duration {
        Duration::from_micros(u64::try_from(self.0 - earlier.0).unwrap_or(0))
    }
}

impl From<OffsetDateTime> for Timestamp {
    fn from(moment: OffsetDateTime) -> Self {
        let micros = moment.unix_timestamp_nanos() / 1000;
        Self::from_unix_micros(i64::try_from(micros).unwrap_or(i64::MAX))
    }
}

impl From<Timestamp> for OffsetDateTime {
    fn from(moment: Timestamp) -> Self {
        let nanos = i128::from(moment.0) * 1000;
        Self::from_unix_timestamp_nanos(nanos).expect("a timestamp has a year from 1 to 9999")
    }
}

impl fmt::Debug for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Timestamp({self})")
    }
}

impl fmt::Display for Timestamp {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let text = OffsetDateTime::from(*self).format(&Rfc3339).map_err(|_| fmt::Error)?;
        f.write_str(&text)
    }
}

/// A source of wall-clock time. Tests use one that they advance themselves.
///
/// # Examples
/// ```
/// use pillarbox::{Clock, SystemClock};
///
/// assert!(SystemClock.now() <= SystemClock.now());
/// ```
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// Returns the current time.
    fn now(&self) -> Timestamp;
}

/// The clock of the machine.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
    fn now(&self) -> Timestamp {
        OffsetDateTime::now_utc().into()
    }
}

/// A deadline that has passed as soon as the monotonic clock or the wall clock has passed it.
///
/// The monotonic clock may stand still while a machine is suspended, and the wall clock may be set
/// back. A lease must end in both cases.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    monotonic: Instant,
    wall: Timestamp,
}

impl Deadline {
    pub(crate) fn after(clock: &dyn Clock, duration: Duration) -> Self {
        Self { monotonic: instant() + duration, wall: clock.now().saturating_add(duration) }
    }

    /// Returns whether less than `needed` is left.
    pub(crate) fn has_passed(&self, clock: &dyn Clock, needed: Duration) -> bool {
        instant() + needed >= self.monotonic || clock.now().saturating_add(needed) >= self.wall
    }
}

/// Converts a duration to microseconds for SQL, at most a century, so that no sum overflows.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) fn micros(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(duration.as_micros()).map_or(CENTURY, |micros| micros.min(CENTURY))
}

/// Converts microseconds from SQL to a duration. A negative value is zero.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// Returns the monotonic time, which tests can pause through tokio.
#[expect(clippy::disallowed_methods, reason = "only this module reads the clock")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
