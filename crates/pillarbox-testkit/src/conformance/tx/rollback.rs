//! Rollback: neither rows nor events remain.

use pillarbox::{Error, ErrorKind, Outbox, OutboxTx};
use tokio::sync::Notify;

use super::{assert_nothing, assert_usable, begin, placed};
use crate::backend::Backend;

/// A rollback leaves no order and no event.
pub async fn a_rollback_takes_rows_and_events_back<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.emit(&placed(7)).await.unwrap();

    tx.rollback().await.unwrap();

    assert_nothing(backend, 7).await;
}

/// A transaction that goes out of scope leaves no order and no event.
pub async fn a_dropped_transaction_is_rolled_back<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.emit(&placed(7)).await.unwrap();

    drop(tx);

    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}

/// A closure that returns an error has rolled back, and its error comes back.
pub async fn a_closure_that_fails_rolls_back<B: Backend>(backend: &B) {
    let work = async |tx: &mut OutboxTx<B::Open>| {
        backend.place_order(tx, 7).await.unwrap();
        tx.emit(&placed(7)).await?;
        Err::<(), _>(Error::new(ErrorKind::Invalid, "out of stock"))
    };

    let error = Outbox::new().transaction(backend.pool(), work).await.unwrap_err();

    assert_eq!(error.to_string(), "out of stock");
    assert_nothing(backend, 7).await;
}

/// A closure whose future is dropped in the middle has rolled back.
pub async fn a_closure_dropped_half_way_rolls_back<B: Backend>(backend: &B) {
    let (outbox, reached) = (Outbox::new(), Notify::new());
    let work = async |tx: &mut OutboxTx<B::Open>| {
        backend.place_order(tx, 7).await.unwrap();
        tx.emit(&placed(7)).await?;
        reached.notify_one();
        std::future::pending::<Result<(), Error>>().await
    };

    tokio::select! {
        _ = outbox.transaction(backend.pool(), work) => unreachable!("it never ends"),
        () = reached.notified() => {}
    }

    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}

/// However many transactions were rolled back, the pool has all its connections.
pub async fn a_rolled_back_pool_goes_on<B: Backend>(backend: &B) {
    for order in 0..4 {
        let mut tx = begin(backend).await;
        backend.place_order(&mut tx, order).await.unwrap();
        tx.emit(&placed(order)).await.unwrap();
        if order % 2 == 0 {
            tx.rollback().await.unwrap();
        }
    }

    assert_nothing(backend, 0).await;
    assert_usable(backend).await;
}
