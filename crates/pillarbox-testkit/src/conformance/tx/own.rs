//! Own: events in a transaction that the caller began without the outbox.

use pillarbox::{ErrorKind, Outbox};

use super::{assert_nothing, assert_usable, envelope, events, has_event};
use crate::backend::{Backend, Need, OwnTx};
use crate::run::lacks;

/// The event is there once the caller's transaction has committed.
pub async fn an_event_commits_with_the_callers_transaction<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.place_order(7).await.unwrap();
    let id = own.emit(&Outbox::new(), envelope(7)).await.unwrap().unwrap();

    own.commit().await.unwrap();

    assert!(backend.has_order(7).await && has_event(backend, &id).await);
}

/// The event goes with the caller's rollback.
pub async fn an_event_goes_with_the_callers_rollback<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.place_order(7).await.unwrap();
    own.emit(&Outbox::new(), envelope(7)).await.unwrap();

    own.rollback().await.unwrap();

    assert_nothing(backend, 7).await;
}

/// The event goes with a transaction that goes out of scope.
pub async fn an_event_goes_with_a_dropped_transaction<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.place_order(7).await.unwrap();
    own.emit(&Outbox::new(), envelope(7)).await.unwrap();

    drop(own);

    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}

/// A connection that has a transaction open is as good as the transaction.
pub async fn a_connection_with_a_transaction_takes_events<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.place_order(7).await.unwrap();
    let id = own.emit_on_connection(&Outbox::new(), envelope(7)).await.unwrap().unwrap();
    assert!(!has_event(backend, &id).await);

    own.commit().await.unwrap();

    assert!(backend.has_order(7).await && has_event(backend, &id).await);
}

/// A connection without a transaction is refused, and nothing is written.
pub async fn a_bare_connection_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::BareConnection) {
        return;
    }
    let error = backend.emit_bare(&Outbox::new(), envelope(7)).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::NoTransaction);
    assert_nothing(backend, 7).await;
    assert_usable(backend).await;
}

/// A transaction that the database has given up refuses events, which would be ghosts.
pub async fn an_aborted_transaction_takes_no_events<B: Backend>(backend: &B) {
    if lacks(backend, Need::SpoiledTransaction) {
        return;
    }
    for on_connection in [false, true] {
        let outbox = Outbox::new();
        let mut own = backend.own().await;
        own.place_order(7).await.unwrap();
        own.spoil().await;

        let emitted = if on_connection {
            own.emit_on_connection(&outbox, envelope(7)).await
        } else {
            own.emit(&outbox, envelope(7)).await
        };

        assert_eq!(emitted.unwrap_err().kind(), ErrorKind::NoTransaction);
        // The caller's commit may succeed or fail; what counts is that nothing is there.
        let _ = own.commit().await;
        assert_nothing(backend, 7).await;
    }
    assert_usable(backend).await;
}

/// An event in the caller's open transaction is seen by nobody.
pub async fn events_are_unseen_until_the_caller_commits<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.emit(&Outbox::new(), envelope(7)).await.unwrap();
    assert_eq!(events(backend).await, 0);

    own.commit().await.unwrap();

    assert_eq!(events(backend).await, 1);
}
