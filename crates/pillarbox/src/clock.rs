//! Time: the only room that asks what time it is.

use std::{fmt, time::Duration};

use time::{OffsetDateTime, format_description::well_known::Rfc3339};
use tokio::time::Instant;

use crate::error::{Error, Result};

/// Year 1 and the end of year 9999: what RFC 3339 and every database can write down.
const FIRST_MICROS: i64 = -62_135_596_800_000_000;
const LAST_MICROS: i64 = 253_402_300_799_999_999;

/// A moment in UTC with microseconds, which every store keeps exactly.
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
    /// The moment this many microseconds after 1970, cut to the years 1 to 9999.
    pub fn from_unix_micros(micros: i64) -> Self {
        Self(micros.clamp(FIRST_MICROS, LAST_MICROS))
    }

    /// Microseconds since 1970.
    pub fn unix_micros(self) -> i64 {
        self.0
    }

    /// Reads an RFC 3339 text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is not one.
    pub fn parse(text: &str) -> Result<Self> {
        OffsetDateTime::parse(text, &Rfc3339).map(Self::from).map_err(|source| {
            Error::invalid(format!("not an RFC 3339 time: {text:?}")).caused_by(source)
        })
    }

    /// This moment moved forward, or the last representable one.
    #[must_use]
    pub fn saturating_add(self, duration: Duration) -> Self {
        let micros = i64::try_from(duration.as_micros()).unwrap_or(i64::MAX);
        Self::from_unix_micros(self.unix_micros().saturating_add(micros))
    }

    /// How long after `earlier` this moment is; zero when it is not after.
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

/// Tells the wall-clock time. Tests bring one that they turn by hand.
///
/// # Examples
/// ```
/// use pillarbox::{Clock, SystemClock};
///
/// assert!(SystemClock.now() <= SystemClock.now());
/// ```
pub trait Clock: Send + Sync + fmt::Debug + 'static {
    /// The time now.
    fn now(&self) -> Timestamp;
}

/// The machine's own clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    #[expect(clippy::disallowed_methods, reason = "this is the room that may ask")]
    fn now(&self) -> Timestamp {
        OffsetDateTime::now_utc().into()
    }
}

/// A deadline that has passed as soon as either the monotonic or the wall clock says so.
///
/// A machine that was suspended comes back with a monotonic clock that stood still; one whose
/// wall clock was set back has only the monotonic one. A lease must end by both.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Deadline {
    monotonic: Instant,
    wall: Timestamp,
}

impl Deadline {
    pub(crate) fn after(clock: &dyn Clock, duration: Duration) -> Self {
        Self { monotonic: instant() + duration, wall: clock.now().saturating_add(duration) }
    }

    /// Whether less than `needed` is left.
    pub(crate) fn has_passed(&self, clock: &dyn Clock, needed: Duration) -> bool {
        instant() + needed >= self.monotonic || clock.now().saturating_add(needed) >= self.wall
    }
}

/// Whole microseconds, as databases count; a century is as good as for ever and never overflows.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) fn micros(duration: Duration) -> i64 {
    const CENTURY: i64 = 100 * 366 * 86_400 * 1_000_000;
    i64::try_from(duration.as_micros()).map_or(CENTURY, |micros| micros.min(CENTURY))
}

/// The other way round; what lies in the past is zero.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) fn from_micros(micros: i64) -> Duration {
    Duration::from_micros(u64::try_from(micros).unwrap_or(0))
}

/// The monotonic now; stands still in tests that pause tokio's time.
#[expect(clippy::disallowed_methods, reason = "this is the room that may ask")]
pub(crate) fn instant() -> Instant {
    Instant::now()
}
