//! The JSON form of an envelope, from a file or another program.

use pillarbox::{Envelope, ErrorKind};

use crate::sound::assert_sound;

/// An envelope within its limits that comes back as it went, or an error that says what is wrong.
pub fn run(data: &[u8]) {
    let Ok(text) = str::from_utf8(data) else { return };
    match Envelope::from_json(text) {
        Ok(envelope) => {
            assert_sound(&envelope);
            let back = Envelope::from_json(&envelope.to_json());
            assert_eq!(back.expect("what was written can be read"), envelope);
        }
        Err(error) => {
            assert_eq!(error.kind(), ErrorKind::Invalid, "{error}");
            assert!(!error.to_string().is_empty());
        }
    }
}

/// Every field once, and the odd ones of each kind.
pub fn seeds() -> Vec<Vec<u8>> {
    let whole = r#"{"event_id":"e-1","event_type":"order.placed","event_version":2,
        "aggregate_type":"order","aggregate_id":"7","partition_key":"k","tenant_id":"acme",
        "payload":{"total":19.990,"s":"\ud800\u0000"},"content_type":"application/json",
        "headers":{"z":"1","a":"\""},"occurred_at":"2026-11-15T20:00:00.000001Z",
        "available_at":"9999-12-31T23:59:59.999999-23:59"}"#;
    let nested = |depth: usize| {
        let (open, close) = ("[".repeat(depth), "]".repeat(depth));
        format!(r#"{{"event_type":"a","payload":{open}{close}}}"#)
    };
    [
        whole.to_owned(),
        r#"{"event_type":"a","payload_bytes":"AAH/","partition_key":""}"#.to_owned(),
        r#"{"event_type":"a","payload":null}"#.to_owned(),
        r#"{"event_type":"a","payload": [ 1e999 , {"a":1,"a":2} ] }"#.to_owned(),
        r#"{"event_type":"a","payload":1,"occurred_at":"0001-01-01T00:00:00+23:59"}"#.to_owned(),
        nested(100),
        nested(101),
        format!(r#"{{"event_type":"{}","payload":1}}"#, "ß".repeat(128)),
    ]
    .map(String::into_bytes)
    .to_vec()
}
