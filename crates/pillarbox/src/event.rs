//! Typed events, and the names of event types and aggregate types.

use std::{borrow::Cow, fmt};

use serde::{Serialize, de::DeserializeOwned};

use crate::error::{Error, Result};

/// The maximum length of an event type in characters.
pub const MAX_EVENT_TYPE: usize = 128;
/// The maximum length of an aggregate type in characters.
pub const MAX_AGGREGATE_TYPE: usize = 64;
/// The maximum length of an aggregate id in characters.
pub const MAX_AGGREGATE_ID: usize = 128;
/// The maximum length of a tenant in characters.
pub const MAX_TENANT: usize = 64;
/// The maximum length of a key in characters.
pub const MAX_KEY: usize = 256;

/// A typed event, a struct that can be emitted and listened to.
///
/// Derive it. The event type (`order.placed`) is the contract with other programs; the struct may
/// be renamed.
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
    /// The event type, a stable name such as `order.placed`.
    const TYPE: EventType;
    /// The version of the payload's schema.
    const VERSION: u32 = 1;
    /// The aggregate type.
    const AGGREGATE: AggregateType = AggregateType::GLOBAL;

    /// Returns the id of the aggregate that the event is about.
    fn aggregate_id(&self) -> Option<String> {
        None
    }

    /// Returns the key that the event is ordered by.
    fn key(&self) -> Key {
        Key::Aggregate
    }

    /// Returns the tenant.
    fn tenant(&self) -> Option<String> {
        None
    }
}

/// The key that an event is ordered by. Events with the same key are delivered one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub enum Key {
    /// The aggregate. An event without an aggregate id is unordered.
    #[default]
    Aggregate,
    /// This text.
    Given(String),
    /// None: the event is unordered.
    Free,
}

/// The name of an event type, such as `order.placed`.
///
/// It can be a constant, convert from an enum of your own, or be parsed at run time.
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

/// The type of the entity that events are about, such as `order`.
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
    /// The aggregate type of events without an aggregate.
    pub const GLOBAL: Self = Self::from_static("__GLOBAL__");
}

/// The same constructor, accessors and conversions for both names.
macro_rules! name {
    ($name:ident, $what:literal, $limit:ident) => {
        impl $name {
            /// Creates a name from a text.
            ///
            /// # Errors
            /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, too long, or
            /// has control characters.
            pub fn new(text: impl Into<Cow<'static, str>>) -> Result<Self> {
                let text = text.into();
                check_text($what, &text, $limit)?;
                Ok(Self(text))
            }

            /// Creates a name from a constant.
            ///
            /// # Panics
            /// If it is empty, too long, or has control characters. In a `const`, this is a compile
            /// error.
            #[track_caller]
            pub const fn from_static(text: &'static str) -> Self {
                check_static(text.as_bytes(), $limit);
                Self(Cow::Borrowed(text))
            }

            /// Returns the name as text.
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

/// Checks a text that is stored in a column: not empty, not too long, no control characters.
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

/// The same check for constants, on UTF-8 bytes: `const` code cannot iterate over characters.
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
    fn constants_are_checked_like_texts() {
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
