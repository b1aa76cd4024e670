//! An event as a row holds it: texts that anyone may have written, not yet believed.

use std::mem;

use super::{Envelope, Headers, Payload};
use crate::clock::Timestamp;
use crate::error::Error;
use crate::event::{AggregateType, EventType, Key};
use crate::id::EventId;

/// The columns of a row that make up its envelope.
///
/// Any language may have inserted it; [`open`](Self::open) checks it.
#[derive(Clone, Debug)]
pub struct Row {
    /// `event_id`.
    pub event_id: String,
    /// `event_type`.
    pub event_type: String,
    /// `event_version`.
    pub event_version: i32,
    /// `aggregate_type`.
    pub aggregate_type: String,
    /// `aggregate_id`.
    pub aggregate_id: Option<String>,
    /// `partition_key`: absent = by aggregate, empty = by nothing.
    pub partition_key: Option<String>,
    /// `tenant_id`.
    pub tenant_id: Option<String>,
    /// `payload`: JSON text.
    pub payload: Option<String>,
    /// `payload_bytes`.
    pub payload_bytes: Option<Vec<u8>>,
    /// `content_type`.
    pub content_type: Option<String>,
    /// `headers`: a JSON object of texts.
    pub headers: Option<String>,
    /// `occurred_at`.
    pub occurred_at: Timestamp,
}

/// A row that is no sound event, and why.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BadRow {
    /// The row's `event_id`, whatever it is.
    pub event_id: String,
    /// What is wrong with it.
    pub cause: String,
}

impl Row {
    /// The envelope, or what keeps the row from being one.
    ///
    /// # Errors
    /// A [`BadRow`] when a part breaks its rule; such an event is dead, never a loop.
    pub fn open(mut self) -> Result<Envelope, BadRow> {
        let event_id = mem::take(&mut self.event_id);
        self.check(&event_id).map_err(|error| BadRow { event_id, cause: explain(&error) })
    }

    fn check(self, event_id: &str) -> Result<Envelope, Error> {
        let payload = match (self.payload, self.payload_bytes) {
            (Some(json), None) => Payload::json_text(json)?,
            (None, Some(bytes)) => Payload::bytes(bytes)?,
            (Some(_), Some(_)) => return Err(Error::invalid("payload and payload_bytes are set")),
            (None, None) => return Err(Error::invalid("neither payload nor payload_bytes is set")),
        };
        let (event_id, event_type) = (EventId::new(event_id)?, EventType::new(self.event_type)?);
        let version = u32::try_from(self.event_version).unwrap_or(0);
        let mut envelope = Envelope::with_id(event_id, event_type, payload).version(version)?;
        let key = match self.partition_key {
            None => Key::Aggregate,
            Some(key) if key.is_empty() => Key::Free,
            Some(key) => Key::Given(key),
        };
        envelope = envelope.key(key)?.occurred_at(self.occurred_at);
        let parts = envelope.parts();
        parts.aggregate_type = AggregateType::new(self.aggregate_type)?;
        // An empty text is how some languages write "none".
        parts.aggregate_id = self.aggregate_id.filter(|id| !id.is_empty());
        parts.tenant = self.tenant_id.filter(|tenant| !tenant.is_empty());
        parts.content_type = self.content_type.filter(|kind| !kind.is_empty());
        if let Some(headers) = self.headers {
            parts.headers = Headers::from_json(&headers)?;
        }
        Ok(envelope)
    }
}

fn explain(error: &Error) -> String {
    match std::error::Error::source(error) {
        Some(source) => format!("{error}: {source}"),
        None => error.to_string(),
    }
}
