//! The envelope: an event with its payload, headers and metadata.

mod headers;
mod payload;
mod row;
mod wire;

use std::{sync::Arc, time::Duration};

use serde::Serialize;

pub use self::headers::{Headers, MAX_HEADER, MAX_HEADERS, MAX_HEADERS_SIZE};
pub use self::payload::{JsonText, MAX_JSON_DEPTH, MAX_PAYLOAD, Payload};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
pub(crate) use self::row::Sizes;
pub use self::row::{InvalidRow, Row};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::event::{
    AggregateType, Event, EventType, Key, MAX_AGGREGATE_ID, MAX_KEY, MAX_TENANT, check_text,
};
use crate::id::EventId;

/// When an event may first be delivered.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Delivery {
    /// Directly after the commit.
    #[default]
    AtOnce,
    /// Not before this time, by the database's clock.
    At(Timestamp),
    /// Not before this delay after the insert, by the database's clock.
    After(Duration),
}

/// An event with its payload, headers and metadata.
///
/// An envelope is immutable and cheap to clone. Constructors take the required parts; each optional
/// part is set by a chained call that checks its limit and returns a new envelope.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::Envelope;
///
/// let envelope = Envelope::json("order.placed", &[("total", 1999)])?
///     .aggregate("order", "7")?
///     .tenant("acme")?
///     .header("source", "checkout")?
///     .deliver_after(Duration::from_secs(60));
///
/// assert_eq!(envelope.event_type().as_str(), "order.placed");
/// assert_eq!(envelope.aggregate_id(), Some("7"));
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Envelope(Arc<Parts>);

#[derive(Clone, Debug, PartialEq, Eq)]
struct Parts {
    id: EventId,
    event_type: EventType,
    version: u32,
    aggregate_type: AggregateType,
    aggregate_id: Option<String>,
    key: Key,
    tenant: Option<String>,
    payload: Payload,
    content_type: Option<String>,
    headers: Headers,
    delivery: Delivery,
    occurred_at: Option<Timestamp>,
}

/// The maximum length of a content type in characters.
pub const MAX_CONTENT_TYPE: usize = 128;

impl Envelope {
    /// Creates an event whose payload is a value serialized as JSON.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the event type or the payload exceeds
    /// a limit.
    pub fn json<T>(
        event_type: impl TryInto<EventType, Error: Into<Error>>,
        value: &T,
    ) -> Result<Self>
    where
        T: Serialize + ?Sized,
    {
        Ok(Self::new(event_type.try_into().map_err(Into::into)?, Payload::json(value)?))
    }

    /// Creates an event whose payload is binary.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the event type or the payload exceeds
    /// a limit.
    pub fn bytes(
        event_type: impl TryInto<EventType, Error: Into<Error>>,
        bytes: impl Into<Vec<u8>> + AsRef<[u8]>,
    ) -> Result<Self> {
        Ok(Self::new(event_type.try_into().map_err(Into::into)?, Payload::bytes(bytes)?))
    }

    /// Creates an event with a payload.
    pub fn new(event_type: EventType, payload: Payload) -> Self {
        Self(Arc::new(Parts::new(EventId::generate(), event_type, payload)))
    }

    /// Returns the parts for a change, which does not affect other clones.
    fn parts(&mut self) -> &mut Parts {
        Arc::make_mut(&mut self.0)
    }

    /// Creates the envelope of a typed event.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a part exceeds its limit.
    pub fn of<E: Event>(event: &E) -> Result<Self> {
        let mut envelope = Self::new(E::TYPE, Payload::json(event)?).version(E::VERSION)?;
        envelope.parts().aggregate_type = E::AGGREGATE;
        if let Some(id) = event.aggregate_id() {
            check_text("aggregate id", &id, MAX_AGGREGATE_ID)?;
            envelope.parts().aggregate_id = Some(id);
        }
        envelope = envelope.key(event.key())?;
        match event.tenant() {
            Some(tenant) => envelope.tenant(tenant),
            None => Ok(envelope),
        }
    }

    /// Sets an id of your own. The database rejects a second event with the same id.
    #[must_use]
    pub fn id(mut self, id: EventId) -> Self {
        self.parts().id = id;
        self
    }

    /// Sets the version of the payload's schema. Defaults to 1.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is 0 or above 2147483647.
    pub fn version(mut self, version: u32) -> Result<Self> {
        self.parts().version = checked_version(version)?;
        Ok(self)
    }

    /// Sets the aggregate. Events are ordered by aggregate unless [`key`](Self::key) sets another
    /// key.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a name is empty, too long, or has
    /// control characters.
    pub fn aggregate(
        mut self,
        aggregate_type: impl TryInto<AggregateType, Error: Into<Error>>,
        aggregate_id: impl Into<String>,
    ) -> Result<Self> {
        let aggregate_id = aggregate_id.into();
        check_text("aggregate id", &aggregate_id, MAX_AGGREGATE_ID)?;
        self.parts().aggregate_type = aggregate_type.try_into().map_err(Into::into)?;
        self.parts().aggregate_id = Some(aggregate_id);
        Ok(self)
    }

    /// Sets the aggregate type without an aggregate id. Such events are unordered unless
    /// [`key`](Self::key) sets a key.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the name is empty, too long, or has
    /// control characters.
    pub fn aggregate_without_id(
        mut self,
        aggregate_type: impl TryInto<AggregateType, Error: Into<Error>>,
    ) -> Result<Self> {
        self.parts().aggregate_type = aggregate_type.try_into().map_err(Into::into)?;
        self.parts().aggregate_id = None;
        Ok(self)
    }

    /// Sets the key that the event is ordered by.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a given key is empty, too long, or
    /// has control characters.
    pub fn key(mut self, key: Key) -> Result<Self> {
        self.parts().key = checked_key(key)?;
        Ok(self)
    }

    /// Sets the tenant.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, too long, or has
    /// control characters.
    pub fn tenant(mut self, tenant: impl Into<String>) -> Result<Self> {
        let tenant = tenant.into();
        check_text("tenant", &tenant, MAX_TENANT)?;
        self.parts().tenant = Some(tenant);
        Ok(self)
    }

    /// Sets the media type of the payload.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when it is empty, too long, or has
    /// control characters.
    pub fn content_type(mut self, content_type: impl Into<String>) -> Result<Self> {
        let content_type = content_type.into();
        check_text("content type", &content_type, MAX_CONTENT_TYPE)?;
        self.parts().content_type = Some(content_type);
        Ok(self)
    }

    /// Adds a header.
    ///
    /// # Errors
    /// As [`Headers::insert`].
    pub fn header(mut self, name: impl Into<String>, value: impl Into<String>) -> Result<Self> {
        self.parts().headers.insert(name, value)?;
        Ok(self)
    }

    /// Replaces all headers.
    #[must_use]
    pub fn headers(mut self, headers: Headers) -> Self {
        self.parts().headers = headers;
        self
    }

    /// Delivers the event no earlier than this time, by the database's clock.
    #[must_use]
    pub fn deliver_at(mut self, moment: Timestamp) -> Self {
        self.parts().delivery = Delivery::At(moment);
        self
    }

    /// Delivers the event no earlier than this delay after the insert, by the database's clock.
    #[must_use]
    pub fn deliver_after(mut self, delay: Duration) -> Self {
        self.parts().delivery = Delivery::After(delay);
        self
    }

    /// Sets the time when the event happened. Defaults to the time of the insert.
    #[must_use]
    pub fn occurred_at(mut self, moment: Timestamp) -> Self {
        self.parts().occurred_at = Some(moment);
        self
    }
}

/// Accessors.
impl Envelope {
    /// Returns the event's id, which is the same on every attempt.
    pub fn event_id(&self) -> &EventId {
        &self.0.id
    }

    /// Returns the event type.
    pub fn event_type(&self) -> &EventType {
        &self.0.event_type
    }

    /// Returns the version of the payload's schema.
    pub fn event_version(&self) -> u32 {
        self.0.version
    }

    /// Returns the aggregate type.
    pub fn aggregate_type(&self) -> &AggregateType {
        &self.0.aggregate_type
    }

    /// Returns the aggregate id.
    pub fn aggregate_id(&self) -> Option<&str> {
        self.0.aggregate_id.as_deref()
    }

    /// Returns the key as set by the writer.
    pub fn partition_key(&self) -> &Key {
        &self.0.key
    }

    /// Returns the key that the event is ordered by: the given key, otherwise the aggregate,
    /// otherwise none.
    ///
    /// The database computes the same text for rows that other programs insert.
    pub fn ordering_key(&self) -> Option<String> {
        match (&self.0.key, &self.0.aggregate_id) {
            (Key::Given(key), _) => Some(key.clone()),
            (Key::Aggregate, Some(id)) => Some(format!("{}/{id}", self.0.aggregate_type)),
            (Key::Aggregate, None) | (Key::Free, _) => None,
        }
    }

    /// Returns whether the event has an ordering key.
    pub(crate) fn is_ordered(&self) -> bool {
        match &self.0.key {
            Key::Given(_) => true,
            Key::Aggregate => self.0.aggregate_id.is_some(),
            Key::Free => false,
        }
    }

    /// Returns the tenant.
    pub fn tenant_id(&self) -> Option<&str> {
        self.0.tenant.as_deref()
    }

    /// Returns the payload.
    pub fn payload(&self) -> &Payload {
        &self.0.payload
    }

    /// Returns the media type of the payload: the given one, otherwise the default for its kind.
    pub fn media_type(&self) -> &str {
        match (&self.0.content_type, &self.0.payload) {
            (Some(content_type), _) => content_type,
            (None, Payload::Json(_)) => "application/json",
            (None, Payload::Bytes(_)) => "application/octet-stream",
        }
    }

    /// Returns the media type, if one was set.
    pub fn given_content_type(&self) -> Option<&str> {
        self.0.content_type.as_deref()
    }

    /// Returns the headers.
    pub fn header_map(&self) -> &Headers {
        &self.0.headers
    }

    /// Returns the size of the payload and of the headers as JSON, in bytes.
    pub(crate) fn size(&self) -> usize {
        self.0.payload.as_bytes().len() + self.0.headers.size()
    }

    /// Returns when the event may first be delivered.
    pub fn delivery(&self) -> Delivery {
        self.0.delivery
    }

    /// Returns when the event happened; `None` if the insert sets it.
    pub fn moment(&self) -> Option<Timestamp> {
        self.0.occurred_at
    }
}

impl Parts {
    fn new(id: EventId, event_type: EventType, payload: Payload) -> Self {
        Self {
            id,
            event_type,
            version: 1,
            aggregate_type: AggregateType::GLOBAL,
            aggregate_id: None,
            key: Key::Aggregate,
            tenant: None,
            payload,
            content_type: None,
            headers: Headers::new(),
            delivery: Delivery::AtOnce,
            occurred_at: None,
        }
    }
}

fn checked_version(version: u32) -> Result<u32> {
    if version == 0 || i32::try_from(version).is_err() {
        return Err(Error::invalid(format!("event version {version} is not in 1..=2147483647")));
    }
    Ok(version)
}

fn checked_key(key: Key) -> Result<Key> {
    if let Key::Given(text) = &key {
        check_text("key", text, MAX_KEY)?;
    }
    Ok(key)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clone_is_independent() {
        let envelope = Envelope::json("a", &1).unwrap();
        let other = envelope.clone().tenant("acme").unwrap().header("a", "b").unwrap();

        assert_eq!((envelope.tenant_id(), envelope.header_map().get("a")), (None, None));
        assert_eq!((other.tenant_id(), other.header_map().get("a")), (Some("acme"), Some("b")));
    }

    #[test]
    fn the_key_given_wins_over_the_aggregate() {
        let envelope = Envelope::json("a", &1).unwrap();
        let of_aggregate = envelope.clone().aggregate("order", "7").unwrap();

        assert_eq!(envelope.ordering_key(), None);
        assert_eq!(of_aggregate.ordering_key().as_deref(), Some("order/7"));
        let given = of_aggregate.clone().key(Key::Given("k".into())).unwrap();
        assert_eq!(given.ordering_key().as_deref(), Some("k"));
        assert_eq!(of_aggregate.key(Key::Free).unwrap().ordering_key(), None);
    }

    #[test]
    fn every_error_names_the_limit() {
        let envelope = || Envelope::json("a", &1).unwrap();

        let errors = [
            envelope().aggregate("x".repeat(65), "7").unwrap_err(),
            envelope().aggregate("order", "x".repeat(129)).unwrap_err(),
            envelope().tenant("x".repeat(65)).unwrap_err(),
            envelope().key(Key::Given("x".repeat(257))).unwrap_err(),
            envelope().key(Key::Given(String::new())).unwrap_err(),
            envelope().version(0).unwrap_err(),
            envelope().content_type("a\r\nb").unwrap_err(),
        ];

        let messages: Vec<_> = errors.iter().map(Error::to_string).collect();
        assert_eq!(messages[0], "aggregate type has 65 characters, the limit is 64");
        assert_eq!(messages[1], "aggregate id has 129 characters, the limit is 128");
        assert_eq!(messages[2], "tenant has 65 characters, the limit is 64");
        assert_eq!(messages[3], "key has 257 characters, the limit is 256");
        assert_eq!(messages[4], "key is empty");
        assert_eq!(messages[5], "event version 0 is not in 1..=2147483647");
        assert_eq!(messages[6], "content type has a control character");
    }
}
