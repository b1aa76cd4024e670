//! Payload: what goes in comes out, byte for byte.

use pillarbox::{
    Clock, Envelope, EventId, EventType, Headers, Key, MAX_AGGREGATE_ID, MAX_AGGREGATE_TYPE,
    MAX_HEADER, MAX_HEADERS, MAX_HEADERS_SIZE, MAX_JSON_DEPTH, MAX_KEY, MAX_PAYLOAD, MAX_TENANT,
    Payload, SystemClock, Timestamp,
};
use proptest::strategy::{Strategy, ValueTree};
use proptest::test_runner::TestRunner;

use crate::backend::Backend;
use crate::conformance::owner::{emit, read_all, row};

#[path = "payload/any.rs"]
mod any;

/// How many events are thrown; the dice are the same in every run.
const THROWS: usize = 32;

/// Events made of arbitrary parts are the same in the table and in a read.
pub async fn every_event_is_read_as_it_was_written<B: Backend>(backend: &B) {
    let mut runner = TestRunner::deterministic();
    let event = any::envelope();
    let thrown = (0..THROWS).map(|_| event.new_tree(&mut runner).unwrap().current());

    come_back(backend, thrown.collect()).await;
}

/// JSON that a parser would change is not changed.
pub async fn unusual_json_is_preserved_byte_for_byte<B: Backend>(backend: &B) {
    let texts = [
        r#""\u0000""#,
        r#"{"\u0000":"\u0000"}"#,
        r#""\ud800""#,
        r#"["\udfff\ud800", "\ud83e\udd80", "🦀"]"#,
        r#"{"a":1,"a":2,"A":3}"#,
        "9007199254740993",
        "-123456789012345678901234567890.10",
        "1e999",
        "1.0E+2",
        "-0.0",
        " \t\r\n{ \"b\" : 1 , \"a\" : [ ] } \n",
        r#""\/\u002f/""#,
        "null",
        r#""""#,
        "{}",
    ];

    come_back(backend, texts.map(json).into()).await;
}

/// A payload of the greatest depth and one of the greatest size pass, as JSON and as bytes.
pub async fn the_deepest_and_the_largest_payload_pass<B: Backend>(backend: &B) {
    let deep = format!("{}{}", "[".repeat(MAX_JSON_DEPTH), "]".repeat(MAX_JSON_DEPTH));
    let large = format!("\"{}\"", "x".repeat(MAX_PAYLOAD - 2));
    let bytes: Vec<u8> = (0..=255).cycle().take(MAX_PAYLOAD).collect();

    let envelopes = vec![json(&deep), json(&large), blob(bytes), blob(vec![])];
    come_back(backend, envelopes).await;
}

/// As many headers as an event may have, one as large as it may be, and as much as all of them
/// may have together, keep their order.
pub async fn a_full_set_of_headers_keeps_its_order<B: Backend>(backend: &B) {
    let mut many = Headers::new();
    for n in (0..MAX_HEADERS).rev() {
        many.insert(format!("name-{n}"), format!("\"{n}\" \\ ü 🦀")).unwrap();
    }
    let mut large = Headers::new();
    large.insert("n", "x".repeat(MAX_HEADER - 1)).unwrap();
    large.insert("Empty", "").unwrap();

    let mut full = large.clone();
    let room = |headers: &Headers| MAX_HEADERS_SIZE - headers.to_json().unwrap().len();
    while room(&full) > 8000 {
        full.insert(format!("name-{}", full.len()), "x".repeat(7900)).unwrap();
    }
    let rest = room(&full) - r#","last":"""#.len();
    full.insert("last", "x".repeat(rest)).unwrap();
    assert_eq!(full.to_json().unwrap().len(), MAX_HEADERS_SIZE);

    let headers = [many, large, full].map(|headers| json("1").headers(headers));
    come_back(backend, headers.to_vec()).await;
}

/// Every optional part at its limit, in characters that take four bytes.
pub async fn every_part_of_an_envelope_comes_back<B: Backend>(backend: &B) {
    let crabs = |count| "🦀".repeat(count);
    let full = json("{}")
        .id(EventId::new("~!own-id.with/36:characters_in_it==?").unwrap())
        .version(2_147_483_647)
        .unwrap()
        .aggregate(crabs(MAX_AGGREGATE_TYPE), crabs(MAX_AGGREGATE_ID))
        .unwrap()
        .key(Key::Given(crabs(MAX_KEY)))
        .unwrap()
        .tenant(crabs(MAX_TENANT))
        .unwrap()
        .content_type("application/cloudevents+json; charset=utf-8")
        .unwrap()
        .occurred_at(Timestamp::from_unix_micros(-1));
    let by_aggregate = json("1").aggregate("order", "a/b").unwrap();
    let by_nothing = by_aggregate.clone().id(EventId::generate()).key(Key::Free).unwrap();

    come_back(backend, vec![full, by_aggregate, by_nothing]).await;
}

/// An id that nobody emitted has no event.
pub async fn an_unknown_event_is_none<B: Backend>(backend: &B) {
    assert!(backend.store().event(&EventId::generate()).await.unwrap().is_none());
}

/// Emits the events and compares them with what `event` and `read` give back.
async fn come_back<B: Backend>(backend: &B, envelopes: Vec<Envelope>) {
    let ids = emit(backend, envelopes.iter().cloned()).await;
    let rows = read_all(backend).await;
    for (envelope, id) in envelopes.iter().zip(&ids) {
        let stored = backend.store().event(id).await.unwrap().unwrap();
        same(envelope, &stored.event.unwrap());
        same(envelope, row(&rows, id).event().unwrap());
        assert_eq!(stored.key, envelope.ordering_key());
        assert_eq!(row(&rows, id).key.as_deref(), envelope.ordering_key().as_deref());
    }
}

/// Compares the bytes first: the envelope's `Debug` does not show them.
fn same(sent: &Envelope, got: &Envelope) {
    let text = |envelope: &Envelope| {
        String::from_utf8_lossy(envelope.payload().as_bytes()).chars().take(500).collect::<String>()
    };
    let is_same = sent.payload() == got.payload();
    assert!(is_same, "sent {:?}, got {:?}", text(sent), text(got));
    assert_eq!(sent.header_map().to_json(), got.header_map().to_json());
    assert_eq!(sent, got);
}

fn json(text: &str) -> Envelope {
    sealed(Payload::json_text(text).unwrap())
}

fn blob(bytes: Vec<u8>) -> Envelope {
    sealed(Payload::bytes(bytes).unwrap())
}

/// With a moment of its own, so that nothing is left for the database to fill in.
fn sealed(payload: Payload) -> Envelope {
    Envelope::new(EventType::from_static("any.thing"), payload).occurred_at(SystemClock.now())
}
