//! Identity and chance: event ids, owners, shards, and the only dice in the house.

use std::{
    cmp::Ordering,
    fmt,
    hash::{Hash, Hasher},
    str::FromStr,
    sync::{Arc, Mutex},
};

use ulid::{Generator, Ulid};

use crate::error::{Error, Result};

/// Longest event id, in characters.
pub const MAX_EVENT_ID: usize = 128;

/// An id that is no longer is held in place: ULIDs and UUIDs are.
const SHORT: usize = 36;

/// Names one event, everywhere and for ever.
///
/// [`EventId::generate`] gives monotonic ULIDs: within one process a later call gives a greater
/// id, also from many threads at once. An id of your own may be any printable ASCII text of up
/// to 128 characters.
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
    Short { text: [u8; SHORT], length: u8 },
    Long(Arc<str>),
}

static ULIDS: Mutex<Generator> = Mutex::new(Generator::new());

impl EventId {
    /// A new id, greater than every one this process generated before.
    pub fn generate() -> Self {
        let mut ulids = ULIDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // The carry into the time bits keeps the order when one millisecond has used up its dice.
        let ulid = ulids.generate().unwrap_or_else(|full| full.commit_overflow_increment());
        let mut text = [0; ulid::ULID_LEN];
        Self::hold(ulid.array_to_str(&mut text))
    }

    /// Checks a text and makes it an id.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, longer than 128
    /// characters, or has anything but printable ASCII without spaces.
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
            return Err(Error::invalid("event id may hold printable ASCII only, without spaces"));
        }
        Ok(Self::hold(text))
    }

    fn hold(id: &str) -> Self {
        let Some(length) = u8::try_from(id.len()).ok().filter(|it| usize::from(*it) <= SHORT)
        else {
            return Self(Text::Long(id.into()));
        };
        let mut text = [0; SHORT];
        for (to, from) in text.iter_mut().zip(id.as_bytes()) {
            *to = *from;
        }
        Self(Text::Short { text, length })
    }

    fn as_bytes(&self) -> &[u8] {
        match &self.0 {
            Text::Short { text, length } => text.get(..usize::from(*length)).unwrap_or_default(),
            Text::Long(text) => text.as_bytes(),
        }
    }

    /// The id as text.
    pub fn as_str(&self) -> &str {
        match &self.0 {
            Text::Short { .. } => std::str::from_utf8(self.as_bytes()).unwrap_or_default(),
            Text::Long(text) => text,
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

/// One relay's life, new at every start of a process.
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
    /// A new owner that nobody was before.
    pub fn generate() -> Self {
        let mut ulids = ULIDS.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
        // Two processes started in one millisecond must differ: fresh dice, not an increment.
        let ulid = Ulid::from_parts(
            ulids.generate().map_or(0, |ulid| ulid.timestamp_ms()),
            u128::from(dice::<u64>()) << 16 | u128::from(dice::<u16>()),
        );
        Self(ulid.to_string())
    }

    /// The owner that a row names.
    #[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
    pub(crate) fn stored(text: String) -> Self {
        Self(text)
    }

    /// The owner as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for OwnerId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// One of the parts that keys are hashed into; each has at most one owner at a time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct ShardId(pub i16);

/// How often a shard has changed hands; a verdict from an older epoch counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Epoch(pub i64);

/// Where an event stands in its table, in order of insertion; never used twice.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Seq(pub i64);

impl Seq {
    /// Predecessor every event.
    pub const START: Self = Self(0);
}

/// How often a row's state was decided; a verdict on an older token counts for nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Token(pub i32);

/// A random factor in `0.5..1.5`, to keep retries from marching in step.
#[cfg(not(shuttle))]
pub(crate) fn jitter() -> f64 {
    f64::from(dice::<u32>()) / f64::from(u32::MAX) + 0.5
}

/// The same, as the schedule says: with the same seed it is the same.
#[cfg(shuttle)]
pub(crate) fn jitter() -> f64 {
    shuttle::rand::Rng::gen_range(&mut shuttle::rand::thread_rng(), 0.5..=1.5)
}

#[expect(clippy::disallowed_methods, reason = "this is the room that may throw dice")]
fn dice<T>() -> T
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
    fn an_id_of_ones_own_is_checked() {
        for length in [1, 36, 37, 128] {
            let id = "x".repeat(length);
            assert_eq!(EventId::new(&id).unwrap().as_str(), id);
        }
        for wrong in [String::new(), "x".repeat(129), "a b".into(), "a\n".into(), "ä".into()] {
            assert!(EventId::new(wrong.clone()).is_err(), "{wrong:?}");
        }
    }

    #[test]
    fn ids_of_any_length_compare_as_their_texts() {
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
