//! Rows as any language may have inserted them.

use pillarbox::{Row, Timestamp};

use crate::field::{Fields, joined, repeated};
use crate::sound::assert_sound;

/// An envelope within its limits that says what the row says, or a cause to write beside it.
pub fn run(data: &[u8]) {
    let row = read(&mut Fields::of(data));
    match row.clone().open() {
        Ok(envelope) => {
            assert_sound(&envelope);
            assert_eq!(envelope.event_id().as_str(), row.event_id);
            assert_eq!(envelope.event_type().as_str(), row.event_type);
            assert_eq!(envelope.payload().as_json(), row.payload.as_deref());
            assert_eq!(envelope.moment(), Some(row.occurred_at));
            let written = |text: Option<String>| text.filter(|text| !text.is_empty());
            assert_eq!(envelope.tenant_id(), written(row.tenant_id).as_deref());
            assert_eq!(envelope.aggregate_id(), written(row.aggregate_id).as_deref());
        }
        Err(bad) => {
            assert_eq!(bad.event_id, row.event_id);
            assert!(!bad.cause.is_empty(), "a bad row without a cause");
        }
    }
}

fn read(fields: &mut Fields<'_>) -> Row {
    Row {
        event_id: fields.text().unwrap_or_default(),
        event_type: fields.text().unwrap_or_default(),
        event_version: fields.number().and_then(|n| i32::try_from(n).ok()).unwrap_or_default(),
        aggregate_type: fields.text().unwrap_or_default(),
        aggregate_id: fields.text(),
        partition_key: fields.text(),
        tenant_id: fields.text(),
        payload: fields.text(),
        payload_bytes: fields.bytes(),
        content_type: fields.text(),
        headers: fields.text(),
        occurred_at: Timestamp::from_unix_micros(fields.number().unwrap_or_default()),
    }
}

/// A sound row of each kind, and rows that are wrong in one way.
pub fn seeds() -> Vec<Vec<u8>> {
    let sound = [
        Some("e-1"),
        Some("order.placed"),
        Some("1"),
        Some("order"),
        Some("7"),
        Some("k"),
        Some("acme"),
        Some(r#"{"a": 1.50}"#),
        None,
        Some("application/json"),
        Some(r#"{"z":"1"}"#),
        Some("1700000000000001"),
    ];
    let with = |at: usize, value: Option<&'static str>| {
        let mut fields = sound;
        fields[at] = value;
        joined(fields)
    };
    let bytes = {
        let mut fields = sound;
        (fields[7], fields[8]) = (None, Some("\0\u{7f}"));
        joined(fields)
    };
    let large = [joined(sound[..7].iter().copied()), vec![0xff], repeated("[1,", 255)].concat();
    vec![
        joined(sound),
        bytes,
        large,
        with(2, Some("-1")),
        with(4, Some("a\r\nb")),
        with(5, Some("")),
        with(6, Some("")),
        with(7, Some(" null ")),
        with(8, Some("both")),
        with(9, None),
        with(10, Some("[]")),
        with(11, Some("9223372036854775807")),
    ]
}
