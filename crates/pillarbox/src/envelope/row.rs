//! A row of the event table, and its validation.

use std::{mem, sync::Arc};

use super::{Envelope, Headers, MAX_CONTENT_TYPE, Parts, Payload, checked_key, checked_version};
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
use super::{MAX_HEADERS_SIZE, MAX_PAYLOAD};
use crate::clock::Timestamp;
use crate::error::Error;
use crate::event::{AggregateType, EventType, Key, MAX_AGGREGATE_ID, MAX_TENANT, check_text};
use crate::id::EventId;

/// The columns of a row that make up its envelope.
///
/// Any program may have inserted it; [`open`](Self::open) validates it.
#[derive(Clone, Debug)]
pub struct Row {
    /// The column `event_id`.
    pub event_id: String,
    /// The column `event_type`.
    pub event_type: String,
    /// The column `event_version`.
    pub event_version: i32,
    /// The column `aggregate_type`.
    pub aggregate_type: String,
    /// The column `aggregate_id`.
    pub aggregate_id: Option<String>,
    /// The column `partition_key`: null orders by aggregate, an empty text means unordered.
    pub partition_key: Option<String>,
    /// The column `tenant_id`.
    pub tenant_id: Option<String>,
    /// The column `payload`: JSON text.
    pub payload: Option<String>,
    /// The column `payload_bytes`.
    pub payload_bytes: Option<Vec<u8>>,
    /// The column `content_type`.
    pub content_type: Option<String>,
    /// The column `headers`: a JSON object of strings.
    pub headers: Option<String>,
    /// The column `occurred_at`.
    pub occurred_at: Timestamp,
}

/// A row that is not a valid event, and the reason.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct InvalidRow {
    /// The row's `event_id`, which may be invalid.
    pub event_id: String,
    /// The reason.
    pub cause: String,
}

/// The sizes of a row's payload and headers in bytes, as measured by the database; `None` if null.
///
/// A negative number is a lower bound.
#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
#[derive(Clone, Copy, Debug)]
pub(crate) struct Sizes {
    pub(crate) payload: Option<i64>,
    pub(crate) headers: Option<i64>,
}

#[cfg(any(feature = "mysql", feature = "postgres", feature = "sqlite"))]
impl Sizes {
    /// Rejects a row that exceeds a limit. The content of such a row is not read.
    pub(crate) fn check(self, event_id: &str) -> Result<(), InvalidRow> {
        let parts = [
            ("payload has", self.payload, MAX_PAYLOAD),
            ("headers have", self.headers, MAX_HEADERS_SIZE),
        ];
        for (part, size, most) in parts {
            let bytes = size.unwrap_or(0).unsigned_abs();
            if bytes > most as u64 {
                let least = if size < Some(0) { "at least " } else { "" };
                let cause = format!("{part} {least}{bytes} bytes, the limit is {most}");
                return Err(InvalidRow { event_id: event_id.to_owned(), cause });
            }
        }
        Ok(())
    }

    /// Returns an upper bound of the sizes together.
    pub(crate) fn at_most(self) -> usize {
        let part = |size: Option<i64>, most: usize| match size {
            None => 0,
            Some(exact) => usize::try_from(exact).unwrap_or(most),
        };
        part(self.payload, MAX_PAYLOAD) + part(self.headers, MAX_HEADERS_SIZE)
    }
}

impl Row {
    /// Validates the row and returns its envelope.
    ///
    /// # Errors
    /// An [`InvalidRow`] when a part is invalid. The relay makes such an event a dead letter.
    pub fn open(mut self) -> Result<Envelope, InvalidRow> {
        let event_id = mem::take(&mut self.event_id);
        self.check(&event_id).map_err(|error| InvalidRow { event_id, cause: explain(&error) })
    }

    fn check(self, event_id: &str) -> Result<Envelope, Error> {
        let payload = match (self.payload, self.payload_bytes) {
            (Some(json), None) => Payload::json_text(json)?,
            (None, Some(bytes)) => Payload::bytes(bytes)?,
            (Some(_), Some(_)) => return Err(Error::invalid("payload and payload_bytes are set")),
            (None, None) => return Err(Error::invalid("neither payload nor payload_bytes is set")),
        };
        let (id, event_type) = (EventId::new(event_id)?, EventType::new(self.event_type)?);
        let mut parts = Parts::new(id, event_type, payload);
        parts.version = checked_version(u32::try_from(self.event_version).unwrap_or(0))?;
        parts.occurred_at = Some(self.occurred_at);
        parts.key = checked_key(match self.partition_key {
            None => Key::Aggregate,
            Some(key) if key.is_empty() => Key::Free,
            Some(key) => Key::Given(key),
        })?;
        parts.aggregate_type = AggregateType::new(self.aggregate_type)?;
        parts.aggregate_id = optional("aggregate id", self.aggregate_id, MAX_AGGREGATE_ID)?;
        parts.tenant = optional("tenant", self.tenant_id, MAX_TENANT)?;
        parts.content_type = optional("content type", self.content_type, MAX_CONTENT_TYPE)?;
        if let Some(headers) = self.headers {
            parts.headers = Headers::from_json(&headers)?;
        }
        Ok(Envelope(Arc::new(parts)))
    }
}

/// Some programs write an empty text for null.
fn optional(what: &str, text: Option<String>, most: usize) -> Result<Option<String>, Error> {
    let text = text.filter(|text| !text.is_empty());
    text.iter().try_for_each(|text| check_text(what, text, most))?;
    Ok(text)
}

fn explain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row() -> Row {
        Row {
            event_id: "e-1".to_owned(),
            event_type: "order.placed".to_owned(),
            event_version: 1,
            aggregate_type: "order".to_owned(),
            aggregate_id: Some("7".to_owned()),
            partition_key: None,
            tenant_id: None,
            payload: Some("1".to_owned()),
            payload_bytes: None,
            content_type: None,
            headers: None,
            occurred_at: Timestamp::from_unix_micros(0),
        }
    }

    #[test]
    fn every_text_of_a_row_is_checked() {
        let text = |text: &str| Some(text.to_owned());
        let cause = |row: Row| row.open().unwrap_err().cause;

        let split = "has a control character";
        assert!(cause(Row { aggregate_id: text("a\r\nb"), ..row() }).ends_with(split));
        assert!(cause(Row { tenant_id: text("a\0"), ..row() }).ends_with(split));
        assert!(cause(Row { content_type: text("a\nb"), ..row() }).ends_with(split));
        assert!(cause(Row { tenant_id: text(&"x".repeat(65)), ..row() }).ends_with("limit is 64"));
    }

    #[test]
    fn an_empty_text_is_null() {
        let empty = || Some(String::new());

        let row = Row { aggregate_id: empty(), tenant_id: empty(), content_type: empty(), ..row() };

        let envelope = row.open().unwrap();
        assert_eq!((envelope.aggregate_id(), envelope.tenant_id()), (None, None));
        assert_eq!(envelope.given_content_type(), None);
    }
}
