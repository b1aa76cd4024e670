//! Commit: what was done and what was emitted appear together.

use pillarbox::store::Status;
use pillarbox::{Error, ErrorKind, Outbox, Token};

use super::{OrderPlaced, begin, envelope, events, has_event, placed};
use crate::backend::{Backend, Need, OwnTx};
use crate::conformance::owner::{free, id_of, read_all};
use crate::run::lacks;

/// After the commit the order and its event are there.
pub async fn rows_and_events_appear_together<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    let id = tx.emit(&placed(7)).await.unwrap().unwrap();

    tx.commit().await.unwrap();

    assert!(backend.has_order(7).await);
    assert!(has_event(backend, &id).await);
}

/// Before the commit nobody sees the order or the event.
pub async fn nothing_is_seen_before_the_commit<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();
    let id = tx.emit(&placed(7)).await.unwrap().unwrap();

    assert!(!backend.has_order(7).await);
    assert!(!has_event(backend, &id).await);
    tx.commit().await.unwrap();
}

/// The id that `emit` gives is the id in the table, generated or the caller's own.
pub async fn every_emit_gives_the_id_of_its_event<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let typed = tx.emit(&placed(1)).await.unwrap().unwrap();
    let own = tx.emit_envelope(envelope(2).id(super::id("own-2"))).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert_eq!(own, super::id("own-2"));
    let stored = backend.store().event(&typed).await.unwrap().unwrap().event.unwrap();
    assert_eq!((stored.event_type().as_str(), stored.event_version()), ("order.placed", 3));
    assert_eq!(stored.payload().as_json(), Some(r#"{"order_id":"1"}"#));
    assert!(has_event(backend, &own).await);
}

/// An event that says no more than it must is new, and the rest of it is what it is by default.
pub async fn an_event_with_few_fields_has_the_defaults<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let id = tx.emit_envelope(free()).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert_eq!(id.as_str().len(), 26, "a ULID");
    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.attempts, stored.token), (Status::New, 0, Token(0)));
    assert_eq!((stored.done_at, stored.settled_by, stored.last_error), (None, None, None));
    assert_eq!(stored.key, None);
    let event = stored.event.unwrap();
    assert_eq!((event.aggregate_type().as_str(), event.aggregate_id()), ("__GLOBAL__", None));
    assert_eq!((event.event_version(), event.tenant_id()), (1, None));
    assert_eq!(event.header_map().to_json(), None);
    let minute = std::time::Duration::from_secs(60);
    let happened = event.moment().expect("the database says when");
    assert!(happened.since(stored.created_at) < minute);
    assert!(stored.created_at.since(happened) < minute);
    assert!(stored.available_at <= stored.created_at.saturating_add(minute));
}

/// `emit_all` gives the ids in order, and the table keeps it.
pub async fn many_events_keep_their_order<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let all: Vec<OrderPlaced> = (0..30).map(|_| placed(7)).collect();
    let ids = tx.emit_all(&all).await.unwrap();
    tx.commit().await.unwrap();

    let rows = read_all(backend).await;
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    assert!(rows.is_sorted_by(|one, next| one.seq < next.seq));
}

/// Emits of any kind in one transaction stand in the order of the calls.
pub async fn events_of_one_transaction_follow_the_calls<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut ids = Vec::new();
    for _ in 0..3 {
        ids.extend(tx.emit(&placed(7)).await.unwrap());
        ids.extend(tx.emit_all(&[placed(7), placed(7)]).await.unwrap());
        ids.extend(tx.emit_envelope(envelope(7)).await.unwrap());
    }
    tx.commit().await.unwrap();

    let rows = read_all(backend).await;
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
}

/// More events than one statement may take commit as one transaction: nothing is seen before the
/// commit, everything in order after it, and one that is refused keeps all of them out.
pub async fn a_thousand_events_go_in_one_transaction<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let mut ids = Vec::new();
    for _ in 0..1200 {
        ids.extend(tx.emit_envelope(envelope(7)).await.unwrap());
    }
    assert_eq!(events(backend).await, 0, "before the commit");
    tx.commit().await.unwrap();

    let rows = read_all(backend).await;
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());

    let mut tx = begin(backend).await;
    for _ in 0..1200 {
        tx.emit_envelope(envelope(7)).await.unwrap();
    }
    tx.emit_envelope(envelope(7).id(ids[0].clone())).await.unwrap();
    assert_eq!(tx.commit().await.unwrap_err().kind(), ErrorKind::Duplicate);

    assert_eq!(events(backend).await, 1200, "after a refused commit");
}

/// A transaction that only does business commits.
pub async fn a_transaction_without_events_commits<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 7).await.unwrap();

    tx.commit().await.unwrap();

    assert!(backend.has_order(7).await);
    assert_eq!(events(backend).await, 0);
}

/// A transaction that did nothing commits.
pub async fn an_empty_transaction_commits<B: Backend>(backend: &B) {
    begin(backend).await.commit().await.unwrap();
}

/// A closure that returns `Ok` has committed, and its value comes back.
pub async fn a_closure_that_succeeds_commits<B: Backend>(backend: &B) {
    let work = async |tx: &mut pillarbox::OutboxTx<B::Open>| {
        backend.place_order(tx, 7).await.unwrap();
        Ok::<_, Error>(tx.emit(&placed(7)).await?.unwrap())
    };

    let id = Outbox::new().transaction(backend.pool(), work).await.unwrap();

    assert!(backend.has_order(7).await && has_event(backend, &id).await);
}

/// An open transaction does not keep another from committing.
pub async fn two_transactions_do_not_disturb_each_other<B: Backend>(backend: &B) {
    if lacks(backend, Need::ConcurrentWriters) {
        return;
    }
    let mut open = backend.own().await;
    open.place_order(1).await.unwrap();
    open.emit(&Outbox::new(), free()).await.unwrap();
    let mut tx = begin(backend).await;
    backend.place_order(&mut tx, 2).await.unwrap();
    let id = tx.emit(&placed(2)).await.unwrap().unwrap();

    tx.commit().await.unwrap();

    assert!(has_event(backend, &id).await && backend.has_order(2).await);
    assert_eq!(events(backend).await, 1);
    open.rollback().await.unwrap();
    assert_eq!(events(backend).await, 1);
}
