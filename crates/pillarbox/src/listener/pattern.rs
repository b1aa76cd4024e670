//! Patterns that match event types and aggregate types.

use std::{fmt, sync::Arc};

use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::event::{MAX_AGGREGATE_TYPE, MAX_EVENT_TYPE, check_text};

/// The maximum length of a pattern in characters: both names and the slash between them.
const MAX_PATTERN: usize = MAX_AGGREGATE_TYPE + 1 + MAX_EVENT_TYPE;

/// Matches events by event type, with an optional aggregate type and an optional `*` at the end.
///
/// | pattern | matches |
/// | --- | --- |
/// | `order.*` | `order.placed` and `order.placed.late` of any aggregate type, but not `order` or `orders.placed` |
/// | `order.placed` | this event type, of any aggregate type |
/// | `order/order.*` | the same event types, of the aggregate type `order` only |
/// | `order/*` | every event of the aggregate type `order` |
/// | `order/order.placed` | this pair |
/// | `*` | every event |
///
/// `*` matches one or more segments. It must be the last character, alone or after a dot or the
/// slash. The text before a slash is the aggregate type.
///
/// # Examples
/// ```
/// use pillarbox::{Envelope, Pattern};
///
/// let pattern = Pattern::new("order/order.*")?;
///
/// let placed = Envelope::json("order.placed", &7)?;
/// assert!(pattern.matches(&placed.clone().aggregate("order", "7")?));
/// assert!(!pattern.matches(&placed), "it has no aggregate");
/// assert!(Pattern::new("order.*.late").is_err());
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pattern {
    text: Arc<str>,
}

impl Pattern {
    /// Parses a pattern.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty or too long, has
    /// control characters, lacks a name before or after its slash, or has a `*` that is not at the
    /// end.
    pub fn new(text: impl Into<Arc<str>>) -> Result<Self> {
        let text = text.into();
        check_text("pattern", &text, MAX_PATTERN)?;
        if text.starts_with('/') || text.ends_with('/') {
            return Err(Error::invalid(format!(
                "pattern {text:?} lacks a name: write `aggregate/event`, `aggregate/*` or `event`"
            )));
        }
        let literal = text.strip_suffix('*').unwrap_or(&text);
        let star_follows_separator = literal.is_empty() || literal.ends_with(['.', '/']);
        if literal.contains('*') || (literal.len() < text.len() && !star_follows_separator) {
            return Err(Error::invalid(format!(
                "pattern {text:?} has a misplaced `*`: it must be the last character, alone or \
                 after a dot or the slash"
            )));
        }
        Ok(Self { text })
    }

    /// Returns whether the pattern matches an event.
    pub fn matches(&self, envelope: &Envelope) -> bool {
        let (aggregate, event) = (envelope.aggregate_type(), envelope.event_type());
        self.matches_names(aggregate.as_str(), event.as_str())
    }

    /// Returns the pattern as text.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    pub(super) fn name(&self) -> Arc<str> {
        Arc::clone(&self.text)
    }

    /// Returns the aggregate type and the event type, if the pattern matches exactly one pair.
    pub(super) fn pair(&self) -> Option<(&str, &str)> {
        if self.has_star() { None } else { self.text.split_once('/') }
    }

    /// Orders patterns by how specific they are: first those with an aggregate type, then by the
    /// length of the literal text. Two patterns of equal specificity that match the same event are
    /// equal.
    pub(super) fn specificity(&self) -> (bool, usize) {
        (self.has_aggregate(), self.literal().len())
    }

    fn matches_names(&self, aggregate: &str, event: &str) -> bool {
        let literal = self.literal();
        let start = if self.has_aggregate() {
            literal.strip_prefix(aggregate).and_then(|rest| rest.strip_prefix('/'))
        } else {
            Some(literal)
        };
        match start {
            None => false,
            Some(start) if self.has_star() => event.len() > start.len() && event.starts_with(start),
            Some(whole) => event == whole,
        }
    }

    fn literal(&self) -> &str {
        self.text.strip_suffix('*').unwrap_or(&self.text)
    }

    fn has_star(&self) -> bool {
        self.text.ends_with('*')
    }

    fn has_aggregate(&self) -> bool {
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
    fn a_pattern_without_a_slash_matches_any_aggregate_type() {
        assert!(matches("order.placed", "shop", "order.placed"));
        assert!(matches("*", "shop", "order.placed"));
    }

    #[test]
    fn a_slash_inside_a_name_is_compared_literally() {
        assert!(matches("shop/de/order.placed", "shop/de", "order.placed"));
        assert!(matches("shop/de/order.*", "shop/de", "order.placed"));
    }

    proptest::proptest! {
        /// Therefore the routing table only compares the text of patterns to find duplicates.
        #[test]
        fn two_patterns_of_equal_specificity_never_match_the_same_event(
            (one, other) in ("[ab./]{0,4}[*]?", "[ab./]{0,4}[*]?"),
            (aggregate, event) in ("[ab./]{1,2}", "[ab./]{1,4}"),
        ) {
            let (Ok(one), Ok(other)) = (Pattern::new(one), Pattern::new(other)) else {
                return Ok(());
            };
            let both_match = [&one, &other].iter().all(|it| it.matches_names(&aggregate, &event));
            let differ = one.specificity() != other.specificity();
            proptest::prop_assert!(one == other || !both_match || differ);
        }
    }

    #[test]
    fn the_error_says_what_is_wrong() {
        for (wrong, expected) in [
            ("", "pattern is empty"),
            ("a\n", "control character"),
            ("/order.*", "lacks a name"),
            ("order/", "lacks a name"),
            ("order.*.late", "the last character"),
            ("order*", "after a dot or the slash"),
            ("*.*", "the last character"),
            ("**", "the last character"),
        ] {
            let message = Pattern::new(wrong).unwrap_err().to_string();
            assert!(message.contains(expected), "{wrong:?}: {message}");
        }
        assert!(Pattern::new("x".repeat(193)).is_ok());
        assert!(Pattern::new("x".repeat(194)).is_err());
    }
}
