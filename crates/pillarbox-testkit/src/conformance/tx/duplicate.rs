//! Duplicate: an id names one event.

use pillarbox::{ErrorKind, Outbox, TxFate};

use super::{assert_usable, begin, envelope, events, has_event, id};
use crate::backend::{Backend, OwnTx};

/// An id given twice in one transaction is refused at the commit, which leaves nothing.
pub async fn an_id_given_twice_in_one_transaction_is_refused<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.emit_envelope(envelope(1).id(id("twice"))).await.unwrap();
    tx.emit_envelope(envelope(2).id(id("twice"))).await.unwrap();

    let error = tx.commit().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Duplicate);
    assert_eq!(error.transaction(), Some(TxFate::RolledBack));
    super::assert_nothing(backend, 7).await;
}

/// An id that another transaction committed is refused, and the first event stays as it is.
pub async fn an_id_that_exists_is_refused<B: Backend>(backend: &B) {
    exists(backend).await;
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    let other = tx.emit_envelope(envelope(8)).await.unwrap().unwrap();
    tx.emit_envelope(envelope(2).id(id("taken"))).await.unwrap();

    let error = tx.commit().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Duplicate);
    assert_eq!(error.transaction(), Some(TxFate::RolledBack));
    assert!(!backend.has_order(7).await && !has_event(backend, &other).await);
    let first = backend.store().event(&id("taken")).await.unwrap().unwrap();
    assert_eq!(first.event.unwrap().aggregate_id(), Some("1"));
}

/// In the caller's own transaction the error says whether it goes on, and that is true.
pub async fn a_refused_id_leaves_the_callers_transaction_in_the_reported_state<B: Backend>(
    backend: &B,
) {
    exists(backend).await;
    let outbox = Outbox::new();
    let mut own = backend.own().await;
    own.place_order(7).await.unwrap();

    let error = own.emit(&outbox, envelope(2).id(id("taken"))).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Duplicate);
    let is_open = match error.transaction() {
        Some(TxFate::Open) => true,
        Some(TxFate::Aborted) => false,
        other => panic!("the fate of the caller's transaction is {other:?}"),
    };
    assert_eq!(own.place_order(8).await.is_ok(), is_open);
    let _ = own.commit().await;
    assert_eq!(backend.has_order(7).await, is_open);
    assert_eq!(backend.has_order(8).await, is_open);
    assert_eq!(events(backend).await, 1);
}

/// Of a call that was refused nothing is written, however many statements it took.
pub async fn a_refused_batch_leaves_nothing_behind<B: Backend>(backend: &B) {
    exists(backend).await;
    let mut batch: Vec<_> = (0..6000).map(envelope).collect();
    batch.push(envelope(2).id(id("taken")));
    let mut own = backend.own().await;

    let error = own.insert(&batch).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Duplicate);
    let _ = own.commit().await;
    assert_eq!(events(backend).await, 1, "fate: {:?}", error.transaction());
}

/// After refusals, the pool has all its connections, and they work.
pub async fn the_pool_goes_on_after_a_refusal<B: Backend>(backend: &B) {
    exists(backend).await;
    for order in 0..4 {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        tx.emit_envelope(envelope(2).id(id("taken"))).await.unwrap();
        assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Duplicate);
    }

    assert_eq!(events(backend).await, 1);
    assert_usable(backend).await;
}

/// Ids are compared byte for byte.
pub async fn ids_differ_in_case<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    tx.emit_envelope(envelope(1).id(id("a-1"))).await.unwrap();
    tx.emit_envelope(envelope(2).id(id("A-1"))).await.unwrap();

    tx.commit().await.unwrap();

    assert!(has_event(backend, &id("a-1")).await && has_event(backend, &id("A-1")).await);
}

async fn exists<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    tx.emit_envelope(envelope(1).id(id("taken"))).await.unwrap();
    tx.commit().await.unwrap();
}
