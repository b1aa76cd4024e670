//! Savepoints: a part of a transaction goes with its events.

use super::{begin, has_event, placed};
use crate::backend::Backend;

/// A rolled back savepoint takes its own events and rows back, and no others.
pub async fn a_rollback_takes_its_own_events_back<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place(&mut tx, 1).await.unwrap();
    let before = tx.emit(&placed(1)).await.unwrap().unwrap();
    let mut savepoint = tx.savepoint().await.unwrap();
    backend.place(&mut savepoint, 2).await.unwrap();
    let inside = savepoint.emit(&placed(2)).await.unwrap().unwrap();
    savepoint.rollback().await.unwrap();
    backend.place(&mut tx, 3).await.unwrap();
    let after = tx.emit(&placed(3)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert!(backend.has_order(1).await && has_event(backend, &before).await);
    assert!(!backend.has_order(2).await && !has_event(backend, &inside).await);
    assert!(backend.has_order(3).await && has_event(backend, &after).await);
}

/// A released savepoint's events commit with the transaction.
pub async fn a_release_keeps_its_events<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut savepoint = tx.savepoint().await.unwrap();
    backend.place(&mut savepoint, 2).await.unwrap();
    let inside = savepoint.emit(&placed(2)).await.unwrap().unwrap();
    savepoint.release().await.unwrap();
    tx.commit().await.unwrap();

    assert!(backend.has_order(2).await && has_event(backend, &inside).await);
}

/// A savepoint that goes out of scope is rolled back, before anything else happens.
pub async fn a_dropped_savepoint_is_rolled_back<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut savepoint = tx.savepoint().await.unwrap();
    backend.place(&mut savepoint, 2).await.unwrap();
    let inside = savepoint.emit(&placed(2)).await.unwrap().unwrap();
    drop(savepoint);
    backend.place(&mut tx, 2).await.expect("the first order 2 is gone already");
    let after = tx.emit(&placed(2)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert!(!has_event(backend, &inside).await);
    assert!(backend.has_order(2).await && has_event(backend, &after).await);
}

/// What an inner savepoint takes back, the outer one does not lose.
pub async fn an_inner_rollback_keeps_the_outer_events<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut outer = tx.savepoint().await.unwrap();
    backend.place(&mut outer, 1).await.unwrap();
    let kept = outer.emit(&placed(1)).await.unwrap().unwrap();
    let mut inner = outer.savepoint().await.unwrap();
    backend.place(&mut inner, 2).await.unwrap();
    let gone = inner.emit(&placed(2)).await.unwrap().unwrap();
    inner.rollback().await.unwrap();
    outer.release().await.unwrap();
    tx.commit().await.unwrap();

    assert!(backend.has_order(1).await && has_event(backend, &kept).await);
    assert!(!backend.has_order(2).await && !has_event(backend, &gone).await);
}

/// What an inner savepoint keeps, the outer one may still take back.
pub async fn an_outer_rollback_takes_the_inner_events<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let first = tx.emit(&placed(1)).await.unwrap().unwrap();
    let mut outer = tx.savepoint().await.unwrap();
    let mut inner = outer.savepoint().await.unwrap();
    backend.place(&mut inner, 2).await.unwrap();
    let gone = inner.emit(&placed(2)).await.unwrap().unwrap();
    inner.release().await.unwrap();
    drop(outer);
    tx.commit().await.unwrap();

    assert!(has_event(backend, &first).await);
    assert!(!backend.has_order(2).await && !has_event(backend, &gone).await);
}

/// Savepoints one after another do not inherit each other's events.
pub async fn a_savepoint_after_a_rollback_starts_anew<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut ids = Vec::new();
    for order in 0..4 {
        let mut savepoint = tx.savepoint().await.unwrap();
        backend.place(&mut savepoint, order).await.unwrap();
        ids.push(savepoint.emit(&placed(order)).await.unwrap().unwrap());
        match order % 2 {
            0 => savepoint.rollback().await.unwrap(),
            _ => savepoint.release().await.unwrap(),
        }
    }
    tx.commit().await.unwrap();

    for (order, id) in (0..).zip(&ids) {
        let kept = order % 2 == 1;
        assert_eq!(backend.has_order(order).await, kept, "order {order}");
        assert_eq!(has_event(backend, id).await, kept, "event {order}");
    }
}
