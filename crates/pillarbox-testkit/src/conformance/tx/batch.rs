//! Batch: many events in one call are one call to hooks, and all or nothing.

use std::sync::{Arc, Mutex};

use pillarbox::{Envelope, ErrorKind, EventId, Headers, Hook, Outbox, OutboxTx, Result};

use super::{OrderPlaced, assert_nothing, envelope, events, has_event, placed};
use crate::backend::{Backend, OwnTx};
use crate::conformance::owner::{id_of, read_all};

/// A hook sees the events of one call together, in order, and those of another call apart.
pub async fn before_write_sees_all_events_of_a_call<B: Backend>(backend: &B) {
    let seen = Seen::default();
    let mut tx = begin(backend, seen.clone()).await;

    let three = tx.emit_all(&[placed(1), placed(2), placed(3)]).await.unwrap();
    let one = tx.emit(&placed(4)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert_eq!(seen.all(), [three, vec![one]]);
}

/// A call without events succeeds, and no hook runs.
pub async fn a_call_without_events_writes_nothing<B: Backend>(backend: &B) {
    let seen = Seen::default();
    let mut tx = begin(backend, seen.clone()).await;

    assert!(tx.emit_all::<OrderPlaced>(&[]).await.unwrap().is_empty());
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.commit().await.unwrap();
    let mut own = backend.own().await;
    own.insert(&[]).await.unwrap();
    own.commit().await.unwrap();

    assert!(seen.all().is_empty());
    assert!(backend.has_order(7).await);
    assert_eq!(events(backend).await, 0);
}

/// A hook may replace the events that it got; the ids of the new ones are returned.
pub async fn before_write_may_replace_events<B: Backend>(backend: &B) {
    let mut tx = begin(backend, Merge).await;

    let ids = tx.emit_all(&[placed(1), placed(2), placed(3)]).await.unwrap();
    tx.commit().await.unwrap();

    assert_eq!(ids.len(), 1);
    let rows = read_all(backend).await;
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    let stored = rows[0].event().unwrap();
    assert_eq!(stored.payload().as_json(), Some("3"), "it says how many there were");
}

/// A hook may drop all that a call had; what follows in the transaction is written.
pub async fn before_write_may_drop_a_whole_call<B: Backend>(backend: &B) {
    let mut tx = begin(backend, DropCalls).await;

    assert!(tx.emit_all(&[placed(1), placed(2)]).await.unwrap().is_empty());
    let kept = tx.emit(&placed(3)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert!(has_event(backend, &kept).await);
    assert_eq!(events(backend).await, 1);
}

/// In the caller's own transaction a dropped event has no id, and nothing is written.
pub async fn an_own_transaction_may_have_its_event_dropped<B: Backend>(backend: &B) {
    let outbox = Outbox::new().hook(DropAll);
    let mut own = backend.own().await;
    own.place_order(7).await.unwrap();

    assert_eq!(own.emit(&outbox, envelope(7)).await.unwrap(), None);
    own.commit().await.unwrap();

    assert!(backend.has_order(7).await);
    assert_eq!(events(backend).await, 0);
}

/// Many events of a caller's own transaction are there together, in order, or not at all; and few
/// statements write them.
pub async fn an_own_transaction_takes_many_events_at_once<B: Backend>(backend: &B) {
    let batch: Vec<_> = (0..1200).map(|_| envelope(7)).collect();
    let mut own = backend.own().await;
    own.insert(&batch).await.unwrap();
    own.rollback().await.unwrap();
    assert_nothing(backend, 7).await;

    let mut own = backend.own().await;
    let before = own.inserts().await;
    own.insert(&batch).await.unwrap();
    let after = own.inserts().await;
    assert_eq!(events(backend).await, 0, "before the commit");
    own.commit().await.unwrap();

    let rows = read_all(backend).await;
    let sent: Vec<_> = batch.iter().map(Envelope::event_id).collect();
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), sent);
    if let Some((before, after)) = before.zip(after) {
        assert!((1..=6).contains(&(after - before)), "{} statements", after - before);
    }
}

/// Headers count in the size of a statement: the largest ones do not make it too large.
pub async fn events_with_the_largest_headers_go_in_one_transaction<B: Backend>(backend: &B) {
    let mut headers = Headers::new();
    for n in 0..8 {
        headers.insert(n.to_string(), "x".repeat(8100)).unwrap();
    }
    let mut tx = Outbox::new().begin(backend.pool()).await.unwrap();
    for _ in 0..500 {
        tx.emit_envelope(envelope(7).headers(headers.clone())).await.unwrap();
    }

    tx.commit().await.unwrap();

    assert_eq!(events(backend).await, 500);
}

/// One payload that is too large keeps all of its call out.
pub async fn a_payload_over_the_limit_keeps_its_call_out<B: Backend>(backend: &B) {
    let large = OrderPlaced { order_id: "x".repeat(pillarbox::MAX_PAYLOAD) };
    let mut tx = Outbox::new().begin(backend.pool()).await.unwrap();
    backend.place_order(&mut tx, 7).await.unwrap();

    let refused = tx.emit_all(&[placed(1), large]).await.unwrap_err();
    tx.commit().await.unwrap();

    assert_eq!(refused.kind(), ErrorKind::Invalid);
    assert!(backend.has_order(7).await, "the transaction goes on");
    assert_eq!(events(backend).await, 0);
}

async fn begin<B: Backend>(backend: &B, hook: impl Hook) -> OutboxTx<B::Open> {
    Outbox::new().hook(hook).begin(backend.pool()).await.unwrap()
}

/// Keeps which events came together.
#[derive(Clone, Default)]
struct Seen(Arc<Mutex<Vec<Vec<EventId>>>>);

impl Seen {
    fn all(&self) -> Vec<Vec<EventId>> {
        self.0.lock().unwrap().clone()
    }
}

impl Hook for Seen {
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        let ids = envelopes.iter().map(|envelope| envelope.event_id().clone()).collect();
        self.0.lock().unwrap().push(ids);
        Ok(envelopes)
    }
}

/// Makes one event of all.
struct Merge;

impl Hook for Merge {
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        Ok(vec![Envelope::json("orders.placed", &envelopes.len())?])
    }
}

/// Drops calls of more than one event.
struct DropCalls;

impl Hook for DropCalls {
    fn before_write(&self, envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        Ok(if envelopes.len() > 1 { vec![] } else { envelopes })
    }
}

struct DropAll;

impl Hook for DropAll {
    fn before_write(&self, _envelopes: Vec<Envelope>) -> Result<Vec<Envelope>> {
        Ok(vec![])
    }
}
