//! Arbitrary events.

use pillarbox::{Envelope, EventType, Headers, Key, Payload, Timestamp};
use proptest::collection::vec;
use proptest::option::of;
use proptest::prelude::{Just, Strategy, any, prop_oneof};

/// Any event that the library lets pass.
pub(super) fn envelope() -> impl Strategy<Value = Envelope> {
    let parts = (text(40), payload(), 1..=2_147_483_647_u32, aggregate(), key());
    let others = (of(text(60)), of(text(60)), headers(), moment());
    (parts, others).prop_map(|((event_type, payload, version, aggregate, key), others)| {
        let (tenant, content_type, headers, moment) = others;
        let mut envelope = Envelope::new(EventType::new(event_type).unwrap(), payload)
            .version(version)
            .unwrap()
            .key(key)
            .unwrap()
            .headers(headers)
            .occurred_at(moment);
        if let Some((kind, id)) = aggregate {
            envelope = envelope.aggregate(kind, id).unwrap();
        }
        if let Some(tenant) = tenant {
            envelope = envelope.tenant(tenant).unwrap();
        }
        if let Some(content_type) = content_type {
            envelope = envelope.content_type(content_type).unwrap();
        }
        envelope
    })
}

fn payload() -> impl Strategy<Value = Payload> {
    prop_oneof![
        vec(any::<u8>(), 0..2000).prop_map(|bytes| Payload::bytes(bytes).unwrap()),
        json().prop_map(|text| Payload::json_text(text).unwrap()),
    ]
}

/// JSON text with the freedom that JSON gives: escapes, spaces, numbers of any length.
fn json() -> impl Strategy<Value = String> {
    let leaf = prop_oneof![
        Just("null".to_owned()),
        "-?(0|[1-9][0-9]{0,30})(\\.[0-9]{1,20})?([eE][+-]?[0-9]{1,3})?",
        string(),
    ];
    leaf.prop_recursive(6, 60, 6, |inner| {
        let pair = (string(), space(), inner.clone()).prop_map(|(k, s, v)| format!("{k}{s}:{v}"));
        prop_oneof![
            (vec(inner, 0..6), space()).prop_map(|(items, s)| format!("[{s}{}]", items.join(","))),
            (vec(pair, 0..6), space()).prop_map(|(items, s)| format!("{{{}{s}}}", items.join(","))),
        ]
    })
}

/// A JSON string: plain characters, and escapes of any code unit, lone surrogates too.
fn string() -> impl Strategy<Value = String> {
    let part = prop_oneof![
        "[^\"\\\\\\p{Cc}]{1,10}",
        any::<u16>().prop_map(|unit| format!("\\u{unit:04x}")),
        "\\\\[nrtbf/\"\\\\]",
    ];
    vec(part, 0..6).prop_map(|parts| format!("\"{}\"", parts.concat()))
}

fn space() -> impl Strategy<Value = String> {
    "[ \\t\\r\\n]{0,3}"
}

fn text(longest: usize) -> impl Strategy<Value = String> {
    vec(any::<char>().prop_filter("no control", |c| !c.is_control()), 1..longest)
        .prop_map(String::from_iter)
}

fn aggregate() -> impl Strategy<Value = Option<(String, String)>> {
    of((text(60), text(120)))
}

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![Just(Key::Aggregate), Just(Key::Free), text(250).prop_map(Key::Given)]
}

fn headers() -> impl Strategy<Value = Headers> {
    vec((text(20), text(60)), 0..8).prop_map(|pairs| {
        let mut headers = Headers::new();
        for (name, value) in pairs {
            headers.insert(name, value).unwrap();
        }
        headers
    })
}

/// The years 1970 to 2100, to the microsecond.
fn moment() -> impl Strategy<Value = Timestamp> {
    (0..4_102_444_800_000_000_i64).prop_map(Timestamp::from_unix_micros)
}
