//! What every envelope keeps, wherever it came from.
//!
//! The limits are written out: one that slips in the product is to be noticed here.

use pillarbox::{Delivery, Envelope, Headers, Key, Payload};
use serde_json::Value;

pub(crate) fn assert_sound(envelope: &Envelope) {
    let id = envelope.event_id().as_str();
    assert!((1..=128).contains(&id.len()), "event id of {} bytes", id.len());
    assert!(id.bytes().all(|byte| byte.is_ascii_graphic()), "event id {id:?}");
    assert!((1..=2_147_483_647).contains(&envelope.event_version()));
    assert_text("event type", Some(envelope.event_type().as_str()), 128);
    assert_text("aggregate type", Some(envelope.aggregate_type().as_str()), 64);
    assert_text("aggregate id", envelope.aggregate_id(), 128);
    assert_text("tenant", envelope.tenant_id(), 64);
    assert_text("content type", envelope.given_content_type(), 128);
    if let Key::Given(key) = envelope.partition_key() {
        assert_text("key", Some(key), 256);
    }
    assert_headers(envelope.header_map());
    assert_payload(envelope.payload());
    assert_wire_keeps(envelope);
}

fn assert_text(what: &str, text: Option<&str>, limit: usize) {
    let Some(text) = text else { return };
    let length = text.chars().count();
    assert!((1..=limit).contains(&length), "{what} of {length} characters");
    assert!(!text.chars().any(char::is_control), "{what} {text:?} has a control character");
}

pub(crate) fn assert_headers(headers: &Headers) {
    assert!(headers.len() <= 100, "{} headers", headers.len());
    let size = headers.to_json().map_or(0, |json| json.len());
    assert!(size <= 65_536, "headers of {size} bytes");
    for (at, (name, value)) in headers.iter().enumerate() {
        assert!(!name.is_empty(), "a header without a name");
        assert!(name.len() + value.len() <= 8192, "a header of {}", name.len() + value.len());
        assert!(!format!("{name}{value}").chars().any(char::is_control), "{name:?}: {value:?}");
        assert!(headers.iter().take(at).all(|(other, _)| other != name), "{name:?} twice");
    }
}

fn assert_payload(payload: &Payload) {
    assert!(payload.as_bytes().len() <= 1_048_576, "{} bytes", payload.as_bytes().len());
    let Some(json) = payload.as_json() else { return };
    // What is JSON and no value of this parser has a number or an escape that it cannot hold.
    if let Ok(value) = serde_json::from_str::<Value>(json) {
        assert!(depth(&value) <= 100, "{} levels", depth(&value));
    }
}

fn depth(value: &Value) -> usize {
    match value {
        Value::Array(values) => 1 + values.iter().map(depth).max().unwrap_or(0),
        Value::Object(values) => 1 + values.values().map(depth).max().unwrap_or(0),
        _ => 0,
    }
}

/// The JSON form comes back as it went, but for what it cannot carry: a delay, and space around
/// the payload.
fn assert_wire_keeps(envelope: &Envelope) {
    let text = envelope.to_json();
    let back = Envelope::from_json(&text).unwrap_or_else(|error| panic!("{error}: {text}"));
    let bare =
        |envelope: &Envelope| envelope.payload().as_json().map(|json| json.trim().to_owned());
    assert_eq!(bare(&back), bare(envelope));
    assert_eq!(back.payload().as_json().is_some(), envelope.payload().as_json().is_some());
    if envelope.payload().as_json().is_none() {
        assert_eq!(back.payload(), envelope.payload());
    }
    assert_eq!(back.to_json(), text);
    assert_eq!(back.event_id(), envelope.event_id());
    assert_eq!(back.ordering_key(), envelope.ordering_key());
    assert_eq!(back.moment(), envelope.moment());
    assert_eq!(back.header_map(), envelope.header_map());
    if !matches!(envelope.delivery(), Delivery::After(_)) {
        assert_eq!(back.delivery(), envelope.delivery());
    }
}
