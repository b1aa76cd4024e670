//! Savepoints: a part of a transaction goes with its events.

use super::{Counter, begin, has_event, placed};
use crate::backend::Backend;

/// A rolled back savepoint takes its own events and rows back, and no others.
pub async fn a_rollback_takes_its_own_events_back<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 1).await.unwrap();
    let before = tx.emit(&placed(1)).await.unwrap().unwrap();
    let mut savepoint = tx.savepoint().await.unwrap();
    backend.place_order(&mut savepoint, 2).await.unwrap();
    let inside = savepoint.emit(&placed(2)).await.unwrap().unwrap();
    savepoint.rollback().await.unwrap();
    backend.place_order(&mut tx, 3).await.unwrap();
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
    backend.place_order(&mut savepoint, 2).await.unwrap();
    let inside = savepoint.emit(&placed(2)).await.unwrap().unwrap();
    savepoint.release().await.unwrap();
    tx.commit().await.unwrap();

    assert!(backend.has_order(2).await && has_event(backend, &inside).await);
}

/// A savepoint that goes out of scope is rolled back, before anything else happens.
pub async fn a_dropped_savepoint_is_rolled_back<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut savepoint = tx.savepoint().await.unwrap();
    backend.place_order(&mut savepoint, 2).await.unwrap();
    let inside = savepoint.emit(&placed(2)).await.unwrap().unwrap();
    drop(savepoint);
    backend.place_order(&mut tx, 2).await.expect("the first order 2 is gone already");
    let after = tx.emit(&placed(2)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert!(!has_event(backend, &inside).await);
    assert!(backend.has_order(2).await && has_event(backend, &after).await);
}

/// A rollback of an inner savepoint does not affect the outer one.
pub async fn an_inner_rollback_keeps_the_outer_events<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut outer = tx.savepoint().await.unwrap();
    backend.place_order(&mut outer, 1).await.unwrap();
    let kept = outer.emit(&placed(1)).await.unwrap().unwrap();
    let mut inner = outer.savepoint().await.unwrap();
    backend.place_order(&mut inner, 2).await.unwrap();
    let gone = inner.emit(&placed(2)).await.unwrap().unwrap();
    inner.rollback().await.unwrap();
    outer.release().await.unwrap();
    tx.commit().await.unwrap();

    assert!(backend.has_order(1).await && has_event(backend, &kept).await);
    assert!(!backend.has_order(2).await && !has_event(backend, &gone).await);
}

/// A rollback of the outer savepoint also undoes a released inner one.
pub async fn an_outer_rollback_takes_the_inner_events<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let first = tx.emit(&placed(1)).await.unwrap().unwrap();
    let mut outer = tx.savepoint().await.unwrap();
    let mut inner = outer.savepoint().await.unwrap();
    backend.place_order(&mut inner, 2).await.unwrap();
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
        backend.place_order(&mut savepoint, order).await.unwrap();
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

/// The callbacks of a savepoint that is rolled back or dropped: those for the commit never run,
/// those for the rollback run at once. Others are not touched.
pub async fn callbacks_go_with_a_rollback<B: Backend>(backend: &B) {
    for is_dropped in [false, true] {
        let [kept, committed, undone, rolled_back] = [(); 4].map(|()| Counter::default());
        let mut tx = begin(backend).await;
        tx.after_commit(kept.callback());
        tx.after_rollback(rolled_back.callback());
        let mut savepoint = tx.savepoint().await.unwrap();
        savepoint.after_commit(committed.callback());
        savepoint.after_rollback(undone.callback());
        let mut inner = savepoint.savepoint().await.unwrap();
        inner.after_commit(committed.callback());
        inner.after_rollback(undone.callback());
        inner.release().await.unwrap();
        assert_eq!(undone.get(), 0);

        if is_dropped {
            drop(savepoint);
        } else {
            savepoint.rollback().await.unwrap();
        }
        assert_eq!(undone.get(), 2, "dropped: {is_dropped}");
        tx.after_commit(kept.callback());
        tx.commit().await.unwrap();

        let counts = [&kept, &committed, &undone, &rolled_back].map(Counter::get);
        assert_eq!(counts, [2, 0, 2, 0], "dropped: {is_dropped}");
    }
}

/// The callbacks of a savepoint that is released belong to the transaction.
pub async fn callbacks_of_a_release_wait_for_the_end<B: Backend>(backend: &B) {
    for commits in [true, false] {
        let [committed, rolled_back] = [(); 2].map(|()| Counter::default());
        let mut tx = begin(backend).await;
        let mut savepoint = tx.savepoint().await.unwrap();
        savepoint.after_commit(committed.callback());
        savepoint.after_rollback(rolled_back.callback());
        savepoint.release().await.unwrap();
        assert_eq!((committed.get(), rolled_back.get()), (0, 0));

        if commits {
            tx.commit().await.unwrap();
        } else {
            tx.rollback().await.unwrap();
        }

        let expected = if commits { (1, 0) } else { (0, 1) };
        assert_eq!((committed.get(), rolled_back.get()), expected);
    }
}
