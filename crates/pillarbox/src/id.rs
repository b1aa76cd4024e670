//! Ids and random numbers. Only this module uses the random number generator.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::{Arc, Mutex},
};

use ulid::{Generator, Ulid};

use crate::error::{Error, Result};

/// The maximum length of an event id in characters.
pub const MAX_EVENT_ID: usize = 128;

/// The maximum length of an id that is stored inline, enough for a ULID or a UUID.
const INLINE: usize = 36;

/// The unique id of an event.
///
/// [`EventId::generate`] returns monotonic ULIDs: within one process every call returns a greater
/// id than the calls before, from any thread. An id of your own may be any printable ASCII text of
/// up to 128 characters.
///
/// # Examples
/// ```
/// use pillarbox::EventId;
///
/// let first = EventId::generate();
/// let second = EventId::generate();
/// assert!(first < second);
///
/// let own: EventId = "invoice-2026-0001".parse()?;
/// assert_eq!(own.as_str(), "invoice-2026-0001");
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone)]
pub struct EventId(Text);

#[derive(Clone)]
enum Text {
    Inline { text: [u8; INLINE], length: u8 },
    Shared(Arc<str>),
}

static ULIDS: Mutex<Generator> = Mutex::new(Generator::new());

impl EventId {
    /// Generates an id that is greater than every id this process generated before.
    pub fn generate() -> Self {
        let mut ulids = ULIDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // When the random bits of one millisecond overflow, the carry into the time bits keeps the
        // order.
        let ulid = ulids.generate().unwrap_or_else(|full| full.commit_overflow_increment());
        let mut text = [0; ulid::ULID_LEN];
        Self::from_checked(ulid.array_to_str(&mut text))
    }

    /// Creates an id from a text.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, longer than 128
    /// characters, or has a character that is not printable ASCII or is a space.
    pub fn new(text: impl AsRef<str>) -> Result<Self> {
        let text = text.as_ref();
        if text.is_empty() {
            return Err(Error::invalid("event id is empty"));
        }
        if text.len() > MAX_EVENT_ID {
            return Err(Error::invalid(format!(
                "event id has {} characters, the limit is {MAX_EVENT_ID}",
                text.chars().count()
            )));
        }
        if !text.bytes().all(|byte| byte.is_ascii_graphic()) {
            return Err(Error::invalid("event id must be printable ASCII without spaces"));
        }
        Ok(Self::from_checked(text))
    }

    fn from_checked(id: &str) -> Self {
        let Some(length) = u8::try_from(id.len()).ok().filter(|it| usize::from(*it) <= INLINE)
        else {
            return Self(Text::Shared(id.into()));
        };
        let mut text = [0; INLINE];
        for (to, from) in text.iter_mut().zip(id.as_bytes()) {
            *to = *from;
        }
        Self(Text::Inline { text, length })
    }

    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Inline { text, length } => text.get(..usize::from(*length)).unwrap_or_default(),
            Text::Shared(text) => text.as_bytes(),
        }
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Inline { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Shared(text) => text,
        }
    }
}

impl PartialEq for EventId {
    fn eq(&self, other: &Self) -> bool {
        self.as_bytes() == other.as_bytes()
    }
}

impl Eq for EventId {}

impl PartialOrd for EventId {
    fn partial_cmp(&self, other: &Self) -> Option<Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for EventId {
    fn cmp(&self, other: &Self) -> Ordering {
        self.as_bytes().cmp(other.as_bytes())
    }
}

impl Hash for EventId {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.as_bytes().hash(state);
    }
}

impl fmt::Debug for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("EventId").field(&self.as_str()).finish()
    }
}

impl fmt::Display for EventId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl AsRef<str> for EventId {
    fn as_ref(&self) -> &str {
        self.as_str()
    }
}

impl FromStr for EventId {
    type Err = Error;

    fn from_str(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

/// The id of a running relay, new at every start.
///
/// # Examples
/// ```
/// use pillarbox::OwnerId;
///
/// assert_ne!(OwnerId::generate(), OwnerId::generate());
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct OwnerId(String);

impl OwnerId {
    /// Generates a unique id.
    pub fn generate() -> Self {
        let mut ulids = ULIDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Random bits instead of an increment, because two processes may start in the same
        // millisecond.
        let ulid = Ulid::from_parts(
            ulids.generate().map_or(0, |ulid| ulid.timestamp_ms()),
            u128::from(random::<u64>()) << 16 | u128::from(random::<u16>()),
        );
        Self(ulid.to_string())
    }

    /// Creates an id from a stored text.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }

    /// Returns the id as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// The number of a shard, a partition of the keys. Each shard has at most one owner at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i16);

/// The ownership counter of a shard. A verdict with an older epoch is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// The sequence number of an event in its table, in order of insertion. It is never reused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub i64);

impl Seq {
    /// The position before every event.
    pub const START: Self = Self(0);
}

/// The state counter of a row. A verdict with an older token is fenced.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i32);

/// Returns a random factor in `0.5..=1.5`, which spreads retries and timers.
#[cfg(not(shuttle))]
pub(crate) fn jitter() -> f64 {
    f64::from(random::<u32>()) / f64::from(u32::MAX) + 0.5
}

/// The same for Shuttle, reproducible with the same seed.
#[cfg(shuttle)]
pub(crate) fn jitter() -> f64 {
    shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 0.5..=1.5)
}

#[expect(clippy::disallowed_methods, reason = "only this module uses randomness")]
fn random<T>() -> T
where
    rand::distr::StandardUniform: rand::distr::Distribution<T>,
{
    rand::random()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_grow_on_every_thread_and_never_repeat() {
        let runs: Vec<Vec<EventId>> = std::thread::scope(|scope| {
            let start = || scope.spawn(|| (0..5_000).map(|_| EventId::generate()).collect());
            let threads: Vec<_> = (0..8).map(|_| start()).collect();
            threads.into_iter().map(|thread| thread.join().unwrap()).collect()
        });

        assert!(runs.iter().all(|run: &Vec<EventId>| run.is_sorted_by(|a, b| a < b)));
        let all: std::collections::HashSet<_> = runs.iter().flatten().collect();
        assert_eq!(all.len(), 40_000);
    }

    #[test]
    fn a_custom_id_is_checked() {
        for length in [1, 36, 37, 128] {
            let id = "x".repeat(length);
            assert_eq!(EventId::new(&id).unwrap().as_str(), id);
        }
        for wrong in [String::new(), "x".repeat(129), "a b".into(), "a\n".into(), "ä".into()] {
            assert!(EventId::new(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ids_compare_like_their_texts() {
        let ids = ["a", "aa", &"a".repeat(36), &"a".repeat(37), "ab", &"b".repeat(128), "c"];
        let ids = ids.map(|id| EventId::new(id).unwrap());

        assert!(ids.is_sorted_by(|a, b| a < b));
        let again = ids.clone().map(|id| EventId::new(id.as_str()).unwrap());
        assert_eq!(ids, again);
        let all: std::collections::HashSet<_> = ids.iter().chain(&again).collect();
        assert_eq!(all.len(), 7);
    }

    #[test]
    fn jitter_stays_within_its_bounds() {
        assert!((0..10_000).map(|_| jitter()).all(|factor| (0.5..=1.5).contains(&factor)));
    }
}
