//! Dead letters: what an operator finds, and by what.

use std::collections::HashSet;

use pillarbox::store::{DeadLetter, Filter, List, Status};
use pillarbox::{
    Envelope, ErrorText, EventId, EventType, Key, Payload, ShardId, Timestamp, Verdict,
};

use crate::backend::Backend;
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, free, held, keyed, replay, retry, row,
};

/// Dead letters and held events are listed, and nothing else is.
pub async fn only_dead_and_held_events_are_listed<B: Backend>(backend: &B) {
    let ids = emit(backend, ["new", "done", "retry", "dead", "held"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in ids[1..].iter().zip([Verdict::Done, retry(HOUR), dead(), held()]) {
        owner.settle_event(id, verdict).await;
    }

    finds(backend, Filter::default(), &ids[3..]).await;
    for status in [Status::New, Status::Done, Status::Waiting] {
        finds(backend, Filter { status: Some(status), ..Filter::default() }, &[]).await;
    }

    replay(&*backend.store(), &ids[3..4]).await;
    finds(backend, Filter::default(), &ids[4..]).await;
}

/// A dead letter has every field of its row except the payload.
pub async fn a_dead_letter_has_the_fields_of_its_row<B: Backend>(backend: &B) {
    let happened = Timestamp::from_unix_micros(1_700_000_000_000_001);
    let event = Envelope::json("order.placed", "ß🦀")
        .unwrap()
        .version(7)
        .unwrap()
        .aggregate("order", "42")
        .unwrap()
        .key(Key::Given("customer-9".to_owned()))
        .unwrap()
        .tenant("acme")
        .unwrap()
        .occurred_at(happened);
    let id = emit_one(backend, event).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&id, retry(std::time::Duration::ZERO)).await;
    owner.settle_event(&id, held()).await;
    let stored = backend.store().event(&id).await.unwrap().unwrap();

    let letters = list(backend, Filter::default()).await;

    let expected = DeadLetter {
        seq: stored.seq,
        shard: stored.shard,
        event_id: id.to_string(),
        event_type: "order.placed".to_owned(),
        event_version: 7,
        aggregate_type: "order".to_owned(),
        aggregate_id: Some("42".to_owned()),
        key: Some("customer-9".to_owned()),
        tenant_id: Some("acme".to_owned()),
        status: Status::Held,
        attempts: 2,
        last_error: Some("no such customer".to_owned()),
        settled_by: Some("mailer".to_owned()),
        occurred_at: happened,
        created_at: stored.created_at,
        given_up_at: stored.done_at.unwrap(),
        payload_size: "\"ß🦀\"".len() as u64,
    };
    assert_eq!(letters, [expected]);
}

/// Fields that an event does not have are absent in its dead letter.
pub async fn a_letter_of_a_plain_event_is_plain<B: Backend>(backend: &B) {
    give_up(backend, [(free(), "x")]).await;

    let letters = list(backend, Filter::default()).await;

    let letter = &letters[0];
    assert_eq!((&letter.aggregate_id, &letter.key, &letter.tenant_id), (&None, &None, &None));
    assert_eq!((&*letter.aggregate_type, letter.event_version), ("__GLOBAL__", 1));
    assert!(letter.shard >= ShardId(0));
}

/// The size of a payload is in bytes, whatever it is made of.
pub async fn the_size_of_a_payload_is_in_bytes<B: Backend>(backend: &B) {
    let kind = EventType::from_static("any.thing");
    let json = |text: &str| Envelope::new(kind.clone(), Payload::json_text(text).unwrap());
    let blob = |bytes: Vec<u8>| Envelope::new(kind.clone(), Payload::bytes(bytes).unwrap());
    let events = [json("1"), json(" \"ß\\u0000🦀\" "), blob(vec![]), blob(vec![0, 255, 0])];
    let ids = give_up(backend, events.map(|event| (event, "x"))).await;

    let letters = list(backend, Filter::default()).await;

    let size = |id: &EventId| {
        letters.iter().find(|letter| letter.event_id == id.as_str()).unwrap().payload_size
    };
    assert_eq!(ids.iter().map(size).collect::<Vec<_>>(), [1, 16, 0, 3]);
}

/// Dead ones or held ones alone.
pub async fn letters_are_found_by_status<B: Backend>(backend: &B) {
    let ids = emit(backend, ["a", "b"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], dead()).await;
    owner.settle_event(&ids[1], held()).await;

    let of = |status| Filter { status: Some(status), ..Filter::default() };
    finds(backend, of(Status::Dead), &ids[..1]).await;
    finds(backend, of(Status::Held), &ids[1..]).await;
}

/// The filter matches the exact type of the event.
pub async fn letters_are_found_by_type<B: Backend>(backend: &B) {
    let event = |kind: &'static str| Envelope::json(kind, &7).unwrap();
    let of = |kind: &str| Filter { event_type: Some(kind.to_owned()), ..Filter::default() };
    found_exactly(backend, event, of).await;
}

/// The filter matches the exact type of the aggregate.
pub async fn letters_are_found_by_aggregate_type<B: Backend>(backend: &B) {
    let event = |kind: &'static str| free().aggregate(kind, "1").unwrap();
    let of = |kind: &str| Filter { aggregate_type: Some(kind.to_owned()), ..Filter::default() };
    found_exactly(backend, event, of).await;
}

/// The filter matches the exact id of the aggregate.
pub async fn letters_are_found_by_aggregate_id<B: Backend>(backend: &B) {
    let event = |id: &'static str| free().aggregate("order", id).unwrap();
    let of = |id: &str| Filter { aggregate_id: Some(id.to_owned()), ..Filter::default() };
    found_exactly(backend, event, of).await;
}

/// The filter matches the exact key, given or derived from the aggregate.
pub async fn letters_are_found_by_key<B: Backend>(backend: &B) {
    let of = |key: &str| Filter { key: Some(key.to_owned()), ..Filter::default() };
    found_exactly(backend, keyed, of).await;

    let aggregate = free().aggregate("order", "7").unwrap();
    let id = give_up(backend, [(aggregate, "x")]).await;
    finds(backend, of("order/7"), &id).await;
    finds(backend, of(""), &[]).await;
}

/// The filter matches the exact tenant; an event without one matches no tenant.
pub async fn letters_are_found_by_tenant<B: Backend>(backend: &B) {
    give_up(backend, [(free(), "x")]).await;
    let event = |tenant: &'static str| free().tenant(tenant).unwrap();
    let of = |tenant: &str| Filter { tenant_id: Some(tenant.to_owned()), ..Filter::default() };
    found_exactly(backend, event, of).await;
}

/// The filter matches a part of the error's text; no character of it is a wildcard.
pub async fn letters_are_found_by_a_part_of_their_error<B: Backend>(backend: &B) {
    let texts = ["100% sure", "100 sure", "a_b", "axb", "back\\slash", "it's *a* [b]? \"c\""];
    let ids = give_up(backend, texts.map(|text| (free(), text))).await;

    for (part, found) in [
        ("%", &ids[..1]),
        ("100", &ids[..2]),
        ("sure", &ids[..2]),
        ("0% s", &ids[..1]),
        ("_", &ids[2..3]),
        ("a_b", &ids[2..3]),
        ("\\", &ids[4..5]),
        ("back\\slash", &ids[4..5]),
        ("'", &ids[5..]),
        ("*a* [b]? \"c\"", &ids[5..]),
        ("nowhere", &[]),
        ("", &ids[..]),
    ] {
        let error = Some(part.to_owned());
        finds(backend, Filter { error, ..Filter::default() }, found).await;
    }
}

/// The search in an error's text respects case and accents.
pub async fn case_matters_in_an_error<B: Backend>(backend: &B) {
    let texts = ["Connection refused", "connection Refused", "STRASSE", "straße"];
    let ids = give_up(backend, texts.map(|text| (free(), text))).await;

    for (part, found) in [
        ("Connection", &ids[..1]),
        ("Refused", &ids[1..2]),
        ("refused", &ids[..1]),
        ("STRASSE", &ids[2..3]),
        ("strasse", &[]),
        ("ß", &ids[3..]),
    ] {
        let error = Some(part.to_owned());
        finds(backend, Filter { error, ..Filter::default() }, found).await;
    }
}

/// The filter matches the time of giving up: from a moment on, and before a moment.
pub async fn letters_are_found_by_the_moment_they_were_given_up<B: Backend>(backend: &B) {
    let mut ids = Vec::new();
    for _ in 0..4 {
        ids.extend(give_up(backend, [(free(), "x")]).await);
        for id in &ids {
            backend.age(id, HOUR).await;
        }
    }
    let third = backend.store().event(&ids[2]).await.unwrap().unwrap().done_at;
    let last = backend.store().event(&ids[3]).await.unwrap().unwrap().done_at;

    finds(backend, Filter { since: third, ..Filter::default() }, &ids[2..]).await;
    finds(backend, Filter { until: third, ..Filter::default() }, &ids[..2]).await;
    finds(backend, Filter { since: third, until: last, ..Filter::default() }, &ids[2..3]).await;
    finds(backend, Filter { since: third, until: third, ..Filter::default() }, &[]).await;
}

/// All filters must match.
pub async fn filters_hold_all_at_once<B: Backend>(backend: &B) {
    let event = |tenant: &str, id: &str| {
        free().aggregate("order", id).unwrap().tenant(tenant.to_owned()).unwrap()
    };
    let ids = give_up(
        backend,
        [
            (event("acme", "1"), "refused"),
            (event("acme", "2"), "refused"),
            (event("acme", "1"), "timeout"),
            (event("zeta", "1"), "refused"),
        ],
    )
    .await;
    let first = Filter {
        status: Some(Status::Dead),
        event_type: Some("mail.sent".to_owned()),
        aggregate_type: Some("order".to_owned()),
        aggregate_id: Some("1".to_owned()),
        key: Some("order/1".to_owned()),
        tenant_id: Some("acme".to_owned()),
        error: Some("refus".to_owned()),
        since: Some(Timestamp::from_unix_micros(0)),
        until: Some(Timestamp::from_unix_micros(i64::MAX)),
    };

    finds(backend, first.clone(), &ids[..1]).await;
    finds(backend, Filter { key: None, aggregate_id: None, ..first.clone() }, &ids[..2]).await;
    finds(backend, Filter { error: None, ..first.clone() }, &[ids[0].clone(), ids[2].clone()])
        .await;
    finds(backend, Filter { tenant_id: None, ..first.clone() }, &[ids[0].clone(), ids[3].clone()])
        .await;
    finds(backend, Filter { status: Some(Status::Held), ..first }, &[]).await;
}

/// Emits events and gives each up for its reason, in this order.
pub(super) async fn give_up<B: Backend>(
    backend: &B,
    events: impl IntoIterator<Item = (Envelope, &'static str)>,
) -> Vec<EventId> {
    let (envelopes, errors): (Vec<_>, Vec<_>) = events.into_iter().unzip();
    let ids = emit(backend, envelopes).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let given_up = ids.iter().zip(errors).map(|(id, error)| {
        owner.settlement(row(&rows, id), Verdict::Dead { error: ErrorText::new(error) })
    });
    assert_eq!(owner.settle(given_up.collect()).await.applied.len(), ids.len());
    owner.store.leave(&owner.id).await.unwrap();
    ids
}

/// Gives up events that differ in one field, and finds each by its own value.
async fn found_exactly<B: Backend>(
    backend: &B,
    event: impl Fn(&'static str) -> Envelope,
    of: impl Fn(&str) -> Filter,
) {
    let texts = ["mail", "Mail", "mail ", "mai", "màil", "%", "_"];
    let ids = give_up(backend, texts.map(|text| (event(text), "x"))).await;

    for (text, id) in texts.iter().zip(&ids) {
        finds(backend, of(text), std::slice::from_ref(id)).await;
    }
    finds(backend, of("ail"), &[]).await;
}

/// Asserts that these are listed, and that they are counted.
async fn finds<B: Backend>(backend: &B, filter: Filter, ids: &[EventId]) {
    let letters = list(backend, filter.clone()).await;
    let found: HashSet<_> = letters.iter().map(|letter| &*letter.event_id).collect();
    assert_eq!(found, ids.iter().map(EventId::as_str).collect(), "{filter:?}");
    assert_eq!(letters.len(), ids.len());
    assert_eq!(backend.store().count_dead(&filter).await.unwrap(), ids.len() as u64, "{filter:?}");
}

async fn list<B: Backend>(backend: &B, filter: Filter) -> Vec<DeadLetter> {
    backend.store().dead_letters(&List { filter, ..List::default() }).await.unwrap()
}
