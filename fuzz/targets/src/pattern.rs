//! Patterns of events, from a configuration.

use pillarbox::{AggregateType, Envelope, ErrorKind, EventType, Pattern, Payload};

use crate::field::{Fields, joined, repeated};

/// A pattern that matches what its documentation says, or an error.
pub fn run(data: &[u8]) {
    let mut fields = Fields::of(data);
    let text = fields.text().unwrap_or_default();
    let pattern = match Pattern::new(text.as_str()) {
        Ok(pattern) => pattern,
        Err(error) => return assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    };
    assert_eq!(pattern.as_str(), text);
    assert!(text.chars().count() <= 64 + 1 + 128 && !text.chars().any(char::is_control));
    let Some(envelope) = envelope(&mut fields) else { return };
    let (aggregate, event) = (envelope.aggregate_type().as_str(), envelope.event_type().as_str());
    let meant = if text.contains('/') {
        // An aggregate type may hold a slash itself: any of them may be the one between the names.
        text.match_indices('/')
            .any(|(at, _)| &text[..at] == aggregate && names(&text[at + 1..], event))
    } else {
        names(&text, event)
    };
    assert_eq!(pattern.matches(&envelope), meant, "{text:?} and {aggregate:?} {event:?}");
}

fn envelope(fields: &mut Fields<'_>) -> Option<Envelope> {
    let aggregate = AggregateType::new(fields.text()?).ok()?;
    let event = EventType::new(fields.text()?).ok()?;
    Envelope::new(event, Payload::json(&1).ok()?).aggregate(aggregate, "7").ok()
}

/// Whether the pattern's part for the event type means this one.
fn names(part: &str, event: &str) -> bool {
    match part.strip_suffix('*') {
        None => part == event,
        Some(start) => event.strip_prefix(start).is_some_and(|rest| !rest.is_empty()),
    }
}

/// Each line of the documentation's table, and what is refused.
pub fn seeds() -> Vec<Vec<u8>> {
    let of = |pattern| joined([Some(pattern), Some("order"), Some("order.placed")]);
    let mut seeds: Vec<Vec<u8>> = [
        "order.*",
        "order.placed",
        "order/order.*",
        "order/*",
        "order/order.placed",
        "*",
        "a*",
        "/",
    ]
    .map(of)
    .to_vec();
    seeds.push(joined([Some("shop/de/order.*"), Some("shop/de"), Some("order.placed.late")]));
    seeds.push(repeated("x", 14));
    seeds
}
