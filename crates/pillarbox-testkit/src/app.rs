//! Tests of an application: an outbox in memory, and a relay that the test steps.

mod assert;
mod listener;
mod outbox;
mod queue;
mod relay;
#[cfg(test)]
mod tests;

use pillarbox::{Envelope, Event};

pub use self::listener::{RecordedCall, RecordingListener, Refusal};
pub use self::outbox::TestOutbox;
pub use self::relay::TestRelay;

/// The event, if it is one of this type and version.
#[track_caller]
fn decode<E: Event>(envelope: &Envelope) -> Option<E> {
    let is_one = *envelope.event_type() == E::TYPE
        && *envelope.aggregate_type() == E::AGGREGATE
        && envelope.event_version() == E::VERSION;
    is_one.then(|| {
        serde_json::from_slice(envelope.payload().as_bytes())
            .unwrap_or_else(|error| panic!("{} does not decode: {error}", line(envelope)))
    })
}

/// An event in one line, for people.
fn line(envelope: &Envelope) -> String {
    let (event_type, version) = (envelope.event_type(), envelope.event_version());
    let payload = envelope.payload();
    match payload.as_json() {
        Some(json) => format!("{event_type} v{version} {json}"),
        None => format!("{event_type} v{version} ({} bytes)", payload.as_bytes().len()),
    }
}
