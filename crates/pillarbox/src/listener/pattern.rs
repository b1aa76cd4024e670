//! Patterns: many events under one name.

use std::{fmt, sync::Arc};

use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::event::{MAX_AGGREGATE_TYPE, MAX_EVENT_TYPE, check_text};

/// Longest pattern, in characters: both names and the slash between them.
const MAX_PATTERN: usize = MAX_AGGREGATE_TYPE + 1 + MAX_EVENT_TYPE;

/// Which events are meant: one pair of names, one event type, or all that begin alike.
///
/// | pattern | matches |
/// | --- | --- |
/// | `order.*` | `order.placed` and `order.placed.late` of any aggregate type; not `order`, not `orders.placed` |
/// | `order.placed` | this event type, of any aggregate type |
/// | `order/order.*` | the first line, of the aggregate type `order` only |
/// | `order/*` | every event of the aggregate type `order` |
/// | `order/order.placed` | this pair |
/// | `*` | every event |
///
/// `*` stands for one or more segments at the end, so it is the last character, alone or after
/// a dot or the slash. A pattern with a slash always names an aggregate type.
///
/// # Examples
/// ```
/// use pillarbox::{Envelope, Pattern};
///
/// let pattern = Pattern::new("order/order.*")?;
///
/// let placed = Envelope::json("order.placed", &7)?;
/// assert!(pattern.matches(&placed.clone().aggregate("order", "7")?));
/// assert!(!pattern.matches(&placed), "of no aggregate");
/// assert!(Pattern::new("order.*.late").is_err());
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Arc<str>,
}

impl Pattern {
    /// Checks a text and makes it a pattern.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty or too long, has
    /// control characters, misses a name beside its slash, or has a `*` anywhere but at the end.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self> {
        let text = text.into();
        check_text("pattern", &text, MAX_PATTERN)?;
        if text.starts_with('/') || text.ends_with('/') {
            return Err(Error::invalid(format!(
                "pattern {text:?} misses a name: write `aggregate/event`, `aggregate/*` or `event`"
            )));
        }
        let literal = text.strip_suffix('*').unwrap_or(&text);
        let star_follows_a_mark = literal.is_empty() || literal.ends_with(['.', '/']);
        if literal.contains('*') || (literal.len() < text.len() && !star_follows_a_mark) {
            return Err(Error::invalid(format!(
                "pattern {text:?} has a `*` where none can be: it is the last character, alone \
                 or after a dot or the slash"
            )));
        }
        Ok(Self { text })
    }

    /// Whether this event is meant.
    pub fn matches(&self, envelope: &Envelope) -> bool {
        let (aggregate, event) = (envelope.aggregate_type(), envelope.event_type());
        self.matches_names(aggregate.as_str(), event.as_str())
    }

    /// The pattern as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// The two names, if it means one pair only.
    pub(super) fn pair(&self) -> Option<(&str, &str)> {
        if self.is_open() { None } else { self.text.split_once('/') }
    }

    /// More is better: an aggregate type beats none, then the longer literal text wins. Two that
    /// match the same event and rank the same are the same pattern.
    pub(super) fn rank(&self) -> (bool, usize) {
        (self.names_aggregate(), self.literal().len())
    }

    fn matches_names(&self, aggregate: &str, event: &str) -> bool {
        let literal = self.literal();
        let start = if self.names_aggregate() {
            literal.strip_prefix(aggregate).and_then(|rest| rest.strip_prefix('/'))
        } else {
            Some(literal)
        };
        match start {
            None => false,
            Some(start) if self.is_open() => event.len() > start.len() && event.starts_with(start),
            Some(whole) => event == whole,
        }
    }

    fn literal(&self) -> &str {
        self.text.strip_suffix('*').unwrap_or(&self.text)
    }

    fn is_open(&self) -> bool {
        self.text.ends_with('*')
    }

    fn names_aggregate(&self) -> bool {
        self.text.contains('/')
    }
}

impl fmt::Display for Pattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

impl TryFrom<&str> for Pattern {
    type Error = Error;

    fn try_from(text: &str) -> Result<Self> {
        Self::new(text)
    }
}

impl TryFrom<String> for Pattern {
    type Error = Error;

    fn try_from(text: String) -> Result<Self> {
        Self::new(text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn matches(pattern: &str, aggregate: &str, event: &str) -> bool {
        Pattern::new(pattern).unwrap().matches_names(aggregate, event)
    }

    #[test]
    fn a_star_stands_for_one_or_more_segments() {
        assert!(matches("order.*", "order", "order.placed"));
        assert!(matches("order.*", "__GLOBAL__", "order.placed.late"));
        for other in ["order", "order.", "orders.placed", "reorder.placed"] {
            assert!(!matches("order.*", "order", other), "{other}");
        }
    }

    #[test]
    fn a_slash_names_the_aggregate_type() {
        assert!(matches("order/order.*", "order", "order.placed"));
        assert!(!matches("order/order.*", "shop", "order.placed"));
        assert!(matches("order/*", "order", "anything"));
        assert!(!matches("order/*", "orders", "anything"));
        assert!(matches("order/order.placed", "order", "order.placed"));
        assert!(!matches("order/order.placed", "order", "order.placed.late"));
    }

    #[test]
    fn without_a_slash_any_aggregate_type_will_do() {
        assert!(matches("order.placed", "shop", "order.placed"));
        assert!(matches("*", "shop", "order.placed"));
    }

    #[test]
    fn a_name_that_holds_a_slash_is_compared_as_it_is_written() {
        assert!(matches("shop/de/order.placed", "shop/de", "order.placed"));
        assert!(matches("shop/de/order.*", "shop/de", "order.placed"));
    }

    proptest::proptest! {
        /// Which is why the table refuses a second one by its text alone.
        #[test]
        fn no_two_patterns_of_one_rank_meet(
            (one, other) in ("[ab./]{0,4}[*]?", "[ab./]{0,4}[*]?"),
            (aggregate, event) in ("[ab./]{1,2}", "[ab./]{1,4}"),
        ) {
            let (Ok(one), Ok(other)) = (Pattern::new(one), Pattern::new(other)) else {
                return Ok(());
            };
            let meet = [&one, &other].iter().all(|it| it.matches_names(&aggregate, &event));
            proptest::prop_assert!(one == other || !meet || one.rank() != other.rank());
        }
    }

    #[test]
    fn what_is_wrong_is_said() {
        for (wrong, said) in [
            ("", "pattern is empty"),
            ("a\n", "control character"),
            ("/order.*", "misses a name"),
            ("order/", "misses a name"),
            ("order.*.late", "the last character"),
            ("order*", "after a dot or the slash"),
            ("*.*", "the last character"),
            ("**", "the last character"),
        ] {
            let message = Pattern::new(wrong).unwrap_err().to_string();
            assert!(message.contains(said), "{wrong:?}: {message}");
        }
        assert!(Pattern::new("x".repeat(193)).is_ok());
        assert!(Pattern::new("x".repeat(194)).is_err());
    }
}
