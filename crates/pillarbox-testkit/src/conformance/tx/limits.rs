//! Limits: what is invalid is refused before anything is written.

use pillarbox::{
    Accepted, Context, ErrorKind, EventId, Inbox, MAX_AGGREGATE_ID, MAX_CONSUMER, MAX_EVENT_ID,
    Outbox, PayloadHash, context,
};

use super::{OrderPlaced, assert_nothing, begin, events, placed};
use crate::backend::{Arrival, Backend, OwnTx};
use crate::conformance::owner::free;

/// One invalid event of a call keeps the others out; the transaction goes on.
pub async fn an_invalid_event_keeps_all_of_a_call_out<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;

    let error = tx.emit_all(&[placed(1), too_long(), placed(2)]).await.unwrap_err();
    let alone = tx.emit(&too_long()).await.unwrap_err();
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!((error.kind(), alone.kind()), (ErrorKind::Invalid, ErrorKind::Invalid));
    assert!(backend.has_order(7).await);
    assert_eq!(events(backend).await, 0);
}

/// In the caller's own transaction nothing was sent, so it goes on.
pub async fn an_invalid_event_leaves_the_callers_transaction_open<B: Backend>(backend: &B) {
    let outbox = Outbox::new();
    let tenant = Context::new().tenant("x".repeat(65));
    let mut own = backend.own().await;

    let refused = context::scope(tenant, own.emit(&outbox, free())).await.unwrap_err();
    own.place_order(7).await.unwrap();
    own.emit(&outbox, free()).await.unwrap();
    own.commit().await.unwrap();

    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(backend.has_order(7).await);
    assert_eq!(events(backend).await, 1);
}

/// A context that breaks a limit is refused like an event that does.
pub async fn an_invalid_context_is_refused<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;

    for wrong in [Context::new().actor("line\nbreak"), Context::new().tenant("")] {
        let refused = context::scope(wrong, tx.emit(&placed(7))).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    tx.commit().await.unwrap();

    assert_nothing(backend, 7).await;
}

/// What is just short enough is written: an id of 128 characters, an aggregate type without an id, and
/// in the inbox a consumer of 256.
pub async fn the_longest_names_are_written<B: Backend>(backend: &B) {
    let id = EventId::new("x".repeat(MAX_EVENT_ID)).unwrap();
    let event = free().id(id.clone()).aggregate_without_id("y".repeat(64)).unwrap();
    let inbox = Inbox::new("z".repeat(MAX_CONSUMER)).unwrap();
    let arrival_id: &'static str = Box::leak("i".repeat(255).into_boxed_str());
    let arrival = Arrival { id: arrival_id, hash: PayloadHash::of(b"1") };
    let mut tx = begin(backend).await;
    tx.emit_envelope(event.clone()).await.unwrap();
    let first = backend.accept(&mut tx, &inbox, &arrival).await.unwrap();
    let again = backend.accept(&mut tx, &inbox, &arrival).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!((first, again), (Accepted::FirstTime, Accepted::Duplicate));
    let stored = backend.store().event(&id).await.unwrap().unwrap().event.unwrap();
    assert_eq!(stored.event_id(), &id);
    assert_eq!((stored.aggregate_type(), stored.aggregate_id()), (event.aggregate_type(), None));
}

/// An inbox refuses names and ids that do not fit, and notes nothing.
pub async fn an_inbox_checks_its_names<B: Backend>(backend: &B) {
    let long: &'static str = Box::leak("x".repeat(256).into_boxed_str());
    let inbox = Inbox::new("billing").unwrap();
    assert_eq!(Inbox::new("x".repeat(257)).unwrap_err().kind(), ErrorKind::Invalid);
    let mut tx = begin(backend).await;

    for id in ["", long, "a\0b"] {
        let arrival = Arrival { id, hash: PayloadHash::of(b"1") };
        let refused = backend.accept(&mut tx, &inbox, &arrival).await.unwrap_err();
        assert_eq!(refused.kind(), ErrorKind::Invalid, "{id:?}");
    }
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.commit().await.unwrap();

    assert!(backend.has_order(7).await, "the transaction goes on");
}

fn too_long() -> OrderPlaced {
    OrderPlaced { order_id: "x".repeat(MAX_AGGREGATE_ID + 1) }
}
