//! Events as the caller writes them: typed structs, and the names they go by.

use std::{borrow::Cow, fmt};

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// Longest event type, in characters.
pub const MAX_EVENT_TYPE: usize = 128;
/// Longest aggregate type, in characters.
pub const MAX_AGGREGATE_TYPE: usize = 64;
/// Longest aggregate id, in characters.
pub const MAX_AGGREGATE_ID: usize = 128;
/// Longest tenant id, in characters.
pub const MAX_TENANT: usize = 64;
/// Longest key, in characters.
pub const MAX_KEY: usize = 256;

/// Something that happened, as a struct that can be emitted and listened to.
///
/// Derive it; the string is the contract with the world, the struct may be renamed.
///
/// # Examples
/// ```
/// use pillarbox::{Event, Key};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed", version = 2, aggregate = "order")]
/// struct OrderPlaced {
///     #[event(id)]
///     order_id: i64,
///     #[event(tenant)]
///     shop: String,
/// }
///
/// let event = OrderPlaced { order_id: 7, shop: "acme".into() };
///
/// assert_eq!(OrderPlaced::TYPE.as_str(), "order.placed");
/// assert_eq!(OrderPlaced::VERSION, 2);
/// assert_eq!(event.aggregate_id().as_deref(), Some("7"));
/// assert_eq!(event.key(), Key::Aggregate);
/// assert_eq!(event.tenant().as_deref(), Some("acme"));
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not an event",
    note = "derive it: `#[derive(Serialize, Deserialize, Event)] #[event(\"order.placed\")]`"
)]
pub trait Event: Serialize + DeserializeOwned + Send + Sync + 'static {
    /// Stable name on the wire, such as `order.placed`.
    const TYPE: EventType;
    /// Version of the payload's shape.
    const VERSION: u32 = 1;
    /// The kind of thing the event is about.
    const AGGREGATE: AggregateType = AggregateType::GLOBAL;

    /// Which aggregate the event is about.
    fn aggregate_id(&self) -> Option<String> {
        None
    }

    /// What the event is ordered by.
    fn key(&self) -> Key {
        Key::Aggregate
    }

    /// Whose event it is.
    fn tenant(&self) -> Option<String> {
        None
    }
}

/// What an event is ordered by: later events with the same key wait for it.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Key {
    /// By its aggregate; an event without an aggregate id is free.
    #[default]
    Aggregate,
    /// By this text.
    Given(String),
    /// By nothing: it may be delivered before, after or beside any other.
    Free,
}

/// The name of an event on the wire, such as `order.placed`.
///
/// A constant, an enum of your own (`impl From<YourEnum> for EventType`) or a text read at run
/// time all do.
///
/// # Examples
/// ```
/// use pillarbox::EventType;
///
/// const PLACED: EventType = EventType::from_static("order.placed");   // checked by the compiler
/// assert_eq!(PLACED, EventType::new(String::from("order.placed"))?);
///
/// enum OrderEvent { Placed, Shipped }
/// impl From<OrderEvent> for EventType {
///     fn from(event: OrderEvent) -> Self {
///         match event {
///             OrderEvent::Placed => PLACED,
///             OrderEvent::Shipped => Self::from_static("order.shipped"),
///         }
///     }
/// }
/// # let _ = OrderEvent::Shipped;
/// assert_eq!(EventType::from(OrderEvent::Placed), PLACED);
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct EventType(Cow<'static, str>);

/// The kind of thing that events are about, such as `order`.
///
/// # Examples
/// ```
/// use pillarbox::AggregateType;
///
/// const ORDER: AggregateType = AggregateType::from_static("order");
/// assert_eq!(ORDER.as_str(), "order");
/// assert_eq!(AggregateType::GLOBAL.as_str(), "__GLOBAL__");
/// ```
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct AggregateType(Cow<'static, str>);

impl AggregateType {
    /// About nothing in particular.
    pub const GLOBAL: Self = Self::from_static("__GLOBAL__");
}

/// The same constructor, accessors and conversions for both names.
macro_rules! name {
    ($name:ident, $what:literal, $limit:ident) => {
        impl $name {
            /// Checks a text and makes it a name.
            ///
            /// # Errors
            /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, too long, or
            /// has control characters.
            pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Self> {
                let text = text.into();
                check_text($what, &text, $limit)?;
                Ok(Self(text))
            }

            /// Makes a constant a name.
            ///
            /// # Panics
            /// When it is empty, too long, or has control characters; in a `const`, the compiler
            /// says so.
            #[track_caller]
            pub const fn from_static(text: &'static str) -> Self {
                check_static(text.as_bytes(), $limit);
                Self(Cow::Borrowed(text))
            }

            /// The name as text.
            pub fn as_str(&self) -> &str {
                &self.0
            }
        }

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(&self.0)
            }
        }

        impl TryFrom<&str> for $name {
            type Error = Error;

            fn try_from(text: &str) -> Result<Self> {
                Self::new(text.to_owned())
            }
        }

        impl TryFrom<String> for $name {
            type Error = Error;

            fn try_from(text: String) -> Result<Self> {
                Self::new(text)
            }
        }
    };
}

name!(EventType, "event type", MAX_EVENT_TYPE);
name!(AggregateType, "aggregate type", MAX_AGGREGATE_TYPE);

/// The rule of every short text that goes into a row.
pub(crate) fn check_text(what: &str, text: &str, limit: usize) -> Result<()> {
    if text.is_empty() {
        return Err(Error::invalid(format!("{what} is empty")));
    }
    let length = text.chars().count();
    if length > limit {
        return Err(Error::invalid(format!(
            "{what} has {length} characters, the limit is {limit}"
        )));
    }
    if text.chars().any(char::is_control) {
        return Err(Error::invalid(format!("{what} has a control character")));
    }
    Ok(())
}

/// The same rule for constants, on the bytes of UTF-8: the compiler cannot iterate characters.
const fn check_static(bytes: &[u8], limit: usize) {
    assert!(!bytes.is_empty(), "the name is empty");
    let (mut at, mut length) = (0, 0);
    while at < bytes.len() {
        let byte = bytes[at];
        // 0xC2 leads the characters U+0080 to U+009F, which are control characters too.
        let high_control = at > 0 && bytes[at - 1] == 0xc2 && byte >= 0x80 && byte < 0xa0;
        assert!(byte >= b' ' && byte != 0x7f && !high_control, "the name has a control character");
        if byte & 0xc0 != 0x80 {
            length += 1;
        }
        at += 1;
    }
    assert!(length <= limit, "the name is too long");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn constants_follow_the_same_rule() {
        const LONG: &str = "ßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßßß";
        assert_eq!(AggregateType::from_static(LONG).as_str().chars().count(), 64);
        for wrong in ["", "a\r", "a\u{7f}", "a\u{85}"] {
            assert!(std::panic::catch_unwind(|| EventType::from_static(wrong)).is_err());
        }
    }

    #[test]
    fn names_are_measured_in_characters() {
        assert!(EventType::new("ß".repeat(128)).is_ok());
        assert!(EventType::new("x".repeat(129)).is_err());
        assert!(AggregateType::new("x".repeat(64)).is_ok());
        assert!(AggregateType::new("x".repeat(65)).is_err());
        for wrong in ["", "a\r", "a\0b", "a\u{85}"] {
            assert!(EventType::new(wrong).is_err(), "{wrong:?}");
        }
    }
}
