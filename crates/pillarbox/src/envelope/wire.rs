//! The JSON form of an envelope, for other programs and for files.

use std::borrow::Cow;

use base64::{Engine as _, engine::general_purpose::STANDARD};
use serde::{Deserialize, Deserializer, Serialize};
use serde_json::value::RawValue;

use super::{Delivery, Envelope, Headers, Payload};
use crate::clock::Timestamp;
use crate::error::{Error, Result};
use crate::event::{AggregateType, EventType, Key};
use crate::id::EventId;

/// The field names are the column names.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Wire<'a> {
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    event_id: Option<Cow<'a, str>>,
    #[serde(borrow)]
    event_type: Cow<'a, str>,
    #[serde(default = "one")]
    event_version: u32,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    aggregate_type: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    aggregate_id: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    partition_key: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    tenant_id: Option<Cow<'a, str>>,
    #[serde(
        borrow,
        default,
        deserialize_with = "present",
        skip_serializing_if = "Option::is_none"
    )]
    payload: Option<Cow<'a, RawValue>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    payload_bytes: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    content_type: Option<Cow<'a, str>>,
    #[serde(default, skip_serializing_if = "Headers::is_empty")]
    headers: Headers,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    occurred_at: Option<Cow<'a, str>>,
    #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
    available_at: Option<Cow<'a, str>>,
}

fn one() -> u32 {
    1
}

/// Keeps a payload of `null`, which `Option` would read as absent.
fn present<'de, D: Deserializer<'de>>(from: D) -> Result<Option<Cow<'de, RawValue>>, D::Error> {
    <&RawValue>::deserialize(from).map(|raw| Some(Cow::Borrowed(raw)))
}

impl Envelope {
    /// Parses the JSON form and checks every part.
    ///
    /// `payload` is any JSON value and is kept byte for byte; `payload_bytes` is base64. Exactly
    /// one of them must be present. If `event_id` is missing, a new id is generated. An empty
    /// `partition_key` means unordered.
    ///
    /// # Examples
    /// ```
    /// use pillarbox::Envelope;
    ///
    /// let envelope = Envelope::from_json(
    ///     r#"{"event_type": "order.placed", "aggregate_type": "order", "aggregate_id": "7",
    ///         "payload": {"total": 19.990}}"#,
    /// )?;
    ///
    /// assert_eq!(envelope.payload().as_json(), Some(r#"{"total": 19.990}"#));
    /// # Ok::<(), pillarbox::Error>(())
    /// ```
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid); the message names the invalid part.
    pub fn from_json(text: &str) -> Result<Self> {
        let wire: Wire<'_> = serde_json::from_str(text).map_err(|source| {
            Error::invalid(format!("not an envelope: {source}")).caused_by(source)
        })?;
        let mut envelope = Self::new(
            EventType::new(wire.event_type.into_owned())?,
            payload(wire.payload.as_deref(), wire.payload_bytes.as_deref())?,
        )
        .version(wire.event_version)?
        .headers(wire.headers)
        .key(key(wire.partition_key))?;
        if let Some(id) = wire.event_id {
            envelope.parts().id = EventId::new(id)?;
        }
        if let Some(aggregate_type) = wire.aggregate_type {
            envelope.parts().aggregate_type = AggregateType::new(aggregate_type.into_owned())?;
        }
        if let Some(aggregate_id) = wire.aggregate_id {
            let aggregate_type = envelope.aggregate_type().clone();
            envelope = envelope.aggregate(aggregate_type, aggregate_id)?;
        }
        if let Some(tenant) = wire.tenant_id {
            envelope = envelope.tenant(tenant)?;
        }
        if let Some(content_type) = wire.content_type {
            envelope = envelope.content_type(content_type)?;
        }
        if let Some(moment) = wire.occurred_at {
            envelope = envelope.occurred_at(Timestamp::parse(&moment)?);
        }
        if let Some(moment) = wire.available_at {
            envelope = envelope.deliver_at(Timestamp::parse(&moment)?);
        }
        Ok(envelope)
    }

    /// Returns the JSON form that [`from_json`](Self::from_json) parses.
    ///
    /// A delay relative to the insert is left out: only the database's clock can resolve it.
    pub fn to_json(&self) -> String {
        let text = |text: &'static str| Cow::Borrowed(text);
        let wire = Wire {
            event_id: Some(self.0.id.as_str().into()),
            event_type: self.0.event_type.as_str().into(),
            event_version: self.0.version,
            aggregate_type: Some(self.0.aggregate_type.as_str().into()),
            aggregate_id: self.0.aggregate_id.as_deref().map(Into::into),
            partition_key: match &self.0.key {
                Key::Aggregate => None,
                Key::Given(key) => Some(key.into()),
                Key::Free => Some(text("")),
            },
            tenant_id: self.0.tenant.as_deref().map(Into::into),
            payload: self.0.payload.as_json().map(|json| Cow::Owned(raw(json))),
            payload_bytes: match &self.0.payload {
                Payload::Bytes(bytes) => Some(STANDARD.encode(bytes).into()),
                Payload::Json(_) => None,
            },
            content_type: self.0.content_type.as_deref().map(Into::into),
            headers: self.0.headers.clone(),
            occurred_at: self.0.occurred_at.map(|moment| moment.to_string().into()),
            available_at: match self.0.delivery {
                Delivery::At(moment) => Some(moment.to_string().into()),
                Delivery::AtOnce | Delivery::After(_) => None,
            },
        };
        serde_json::to_string(&wire).expect("texts and checked JSON only")
    }
}

fn payload(json: Option<&RawValue>, bytes: Option<&str>) -> Result<Payload> {
    match (json, bytes) {
        // Some programs write `null` for an absent payload.
        (Some(json), Some(_)) if json.get() == "null" => payload(None, bytes),
        (Some(json), None) => Payload::json_text(json.get()),
        (None, Some(base64)) => {
            let bytes = STANDARD.decode(base64).map_err(|source| {
                Error::invalid("payload_bytes is not base64").caused_by(source)
            })?;
            Payload::bytes(bytes)
        }
        (Some(_), Some(_)) => Err(Error::invalid("both payload and payload_bytes are given")),
        (None, None) => Err(Error::invalid("neither payload nor payload_bytes is given")),
    }
}

fn key(partition_key: Option<Cow<'_, str>>) -> Key {
    match partition_key {
        None => Key::Aggregate,
        Some(free) if free.is_empty() => Key::Free,
        Some(key) => Key::Given(key.into_owned()),
    }
}

fn raw(json: &str) -> Box<RawValue> {
    RawValue::from_string(json.to_owned()).expect("checked when the payload was made")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_json_form_round_trips() {
        let envelope = Envelope::new(
            EventType::from_static("order.placed"),
            Payload::json_text("{\"a\":1,\"a\":1.50,\"s\":\"\\ud800\"}").unwrap(),
        )
        .aggregate("order", "7")
        .unwrap()
        .key(Key::Free)
        .unwrap()
        .header("z", "1")
        .unwrap()
        .occurred_at(Timestamp::from_unix_micros(1_700_000_000_000_001))
        .deliver_at(Timestamp::from_unix_micros(1_800_000_000_000_000));

        assert_eq!(Envelope::from_json(&envelope.to_json()).unwrap(), envelope);
    }

    #[test]
    fn a_payload_may_be_null() {
        let envelope = Envelope::json("a", &()).unwrap();

        assert_eq!(envelope.payload().as_json(), Some("null"));
        assert_eq!(Envelope::from_json(&envelope.to_json()).unwrap(), envelope);
        let beside = r#"{"event_type":"a","payload":null,"payload_bytes":"AA=="}"#;
        assert_eq!(Envelope::from_json(beside).unwrap().payload().as_bytes(), [0]);
    }

    #[test]
    fn bytes_are_written_as_base64() {
        let envelope = Envelope::bytes("blob", vec![0, 255, 7]).unwrap();

        assert_eq!(Envelope::from_json(&envelope.to_json()).unwrap(), envelope);
    }

    #[test]
    fn the_json_form_checks_the_limits_of_headers() {
        let headers: Vec<_> = (0..9).map(|n| format!(r#""{n}":"{}""#, "x".repeat(8000))).collect();
        let text =
            format!(r#"{{"event_type":"a","payload":1,"headers":{{{}}}}}"#, headers.join(","));

        let error = Envelope::from_json(&text).unwrap_err().to_string();

        assert!(error.contains("the limit is 65536"), "{error}");
    }

    #[test]
    fn the_error_names_the_invalid_part() {
        for (text, message) in [
            (r#"{"event_type":"a"}"#, "neither payload nor payload_bytes is given"),
            (r#"{"event_type":"","payload":1}"#, "event type is empty"),
            (r#"{"event_type":"a","payload":1,"payload_bytes":""}"#, "both payload"),
            (r#"{"event_type":"a","payload_bytes":"*"}"#, "payload_bytes is not base64"),
            (r#"{"event_type":"a","payload":1,"tennant":"x"}"#, "unknown field `tennant`"),
            (r#"{"event_type":"a","payload":1,"occurred_at":"noon"}"#, "RFC 3339"),
        ] {
            let error = Envelope::from_json(text).unwrap_err().to_string();
            assert!(error.contains(message), "{error}");
        }
    }
}
