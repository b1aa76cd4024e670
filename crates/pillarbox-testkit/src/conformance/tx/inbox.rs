//! Inbox: an arrival has its effect once.

use futures_util::future::join_all;
use pillarbox::{Accepted, ErrorKind, Inbox, PayloadHash};

use super::{assert_usable, begin};
use crate::backend::{Arrival, Backend, Need};
use crate::run::lacks;

/// A new arrival may have its effect.
pub async fn the_first_arrival_may_have_its_effect<B: Backend>(backend: &B) {
    assert_eq!(arrives(backend, &billing(), &arrival("e-1", "{}")).await, Accepted::FirstTime);
}

/// An arrival seen with the same payload is a duplicate, every time.
pub async fn a_second_arrival_is_a_duplicate<B: Backend>(backend: &B) {
    arrived(backend, &arrival("e-1", "{}")).await;

    for _ in 0..2 {
        assert_eq!(arrives(backend, &billing(), &arrival("e-1", "{}")).await, Accepted::Duplicate);
    }
}

/// Another payload under a known id is a conflict, and the first one stays known.
pub async fn another_payload_is_a_conflict<B: Backend>(backend: &B) {
    arrived(backend, &arrival("e-1", "{}")).await;

    assert_eq!(arrives(backend, &billing(), &arrival("e-1", "[]")).await, Accepted::Conflict);
    assert_eq!(arrives(backend, &billing(), &arrival("e-1", "{}")).await, Accepted::Duplicate);
}

/// An arrival whose transaction was rolled back has not been.
pub async fn a_rollback_forgets_the_arrival<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let accepted = backend.accept(&mut tx, &billing(), &arrival("e-1", "{}")).await.unwrap();
    assert_eq!(accepted, Accepted::FirstTime);
    tx.rollback().await.unwrap();

    assert_eq!(arrives(backend, &billing(), &arrival("e-1", "{}")).await, Accepted::FirstTime);
}

/// A transaction sees its own arrivals, and goes on after a duplicate.
pub async fn a_second_arrival_in_one_transaction_is_a_duplicate<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let inbox = billing();
    let first = backend.accept(&mut tx, &inbox, &arrival("e-1", "{}")).await.unwrap();
    let second = backend.accept(&mut tx, &inbox, &arrival("e-1", "{}")).await.unwrap();
    let third = backend.accept(&mut tx, &inbox, &arrival("e-1", "[]")).await.unwrap();
    backend.place_order(&mut tx, 7).await.unwrap();
    tx.commit().await.unwrap();

    let expected = (Accepted::FirstTime, Accepted::Duplicate, Accepted::Conflict);
    assert_eq!((first, second, third), expected);
    assert!(backend.has_order(7).await);
}

/// Each consumer takes an event in for itself.
pub async fn consumers_and_sources_are_independent<B: Backend>(backend: &B) {
    arrived(backend, &arrival("e-1", "{}")).await;

    let shipping = Inbox::new("shipping").unwrap();
    assert_eq!(arrives(backend, &shipping, &arrival("e-1", "{}")).await, Accepted::FirstTime);
    assert_eq!(arrives(backend, &billing(), &arrival("e-2", "{}")).await, Accepted::FirstTime);
    assert_eq!(arrives(backend, &shipping, &arrival("e-1", "{}")).await, Accepted::Duplicate);
}

/// Exactly one of several concurrent arrivals commits its effect.
pub async fn of_many_at_once_one_has_its_effect<B: Backend>(backend: &B) {
    let effect = async |order: i64| {
        let mut tx = begin(backend).await;
        let accepted = backend.accept(&mut tx, &billing(), &arrival("e-1", "{}")).await.unwrap();
        if accepted != Accepted::FirstTime {
            return 0;
        }
        backend.place_order(&mut tx, order).await.unwrap();
        u64::from(tx.commit().await.is_ok())
    };

    let effects: u64 = join_all((1..=6).map(effect)).await.into_iter().sum();

    assert_eq!(effects, 1);
    let mut orders = 0;
    for order in 1..=6 {
        orders += u64::from(backend.has_order(order).await);
    }
    assert_eq!(orders, 1);
}

/// A note that commits before its effect would lose the effect: no transaction, no note.
pub async fn a_bare_connection_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::BareConnection) {
        return;
    }
    let arrival = arrival("e-1", "{}");

    let refused = backend.accept_bare(&billing(), &arrival).await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::NoTransaction);
    assert_eq!(arrives(backend, &billing(), &arrival).await, Accepted::FirstTime);
    assert_usable(backend).await;
}

/// Ids that differ in case, accents or trailing spaces are different ids.
pub async fn an_id_is_compared_byte_for_byte<B: Backend>(backend: &B) {
    for id in ["straße", "STRASSE", "strasse", "strasse ", "strässe", "stra\u{308}sse"] {
        let accepted = arrives(backend, &billing(), &arrival(id, "{}")).await;
        assert_eq!(accepted, Accepted::FirstTime, "{id:?}");
    }
}

fn billing() -> Inbox {
    Inbox::new("billing").unwrap()
}

fn arrival(id: &'static str, payload: &str) -> Arrival {
    Arrival { id, hash: PayloadHash::of(payload) }
}

async fn arrived<B: Backend>(backend: &B, arrival: &Arrival) {
    assert_eq!(arrives(backend, &billing(), arrival).await, Accepted::FirstTime);
}

/// Accepts in a transaction and commits it.
async fn arrives<B: Backend>(backend: &B, inbox: &Inbox, arrival: &Arrival) -> Accepted {
    let mut tx = begin(backend).await;
    let accepted = backend.accept(&mut tx, inbox, arrival).await.unwrap();
    tx.commit().await.unwrap();
    accepted
}
