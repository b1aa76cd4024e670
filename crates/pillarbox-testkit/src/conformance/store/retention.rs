//! Retention: what goes of audit rows, inbox notes, and events where nobody delivers.

use std::time::Duration;

use pillarbox::store::{ClaimMode, DeliveryMode, Operation, Order, Purge, Status};
use pillarbox::{Accepted, ErrorKind, EventId, Inbox, PayloadHash, Verdict};

use super::audit::said;
use super::operate::given_up;
use crate::backend::{Arrival, Backend};
use crate::conformance::claimer::Claimer;
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, free, held, keyed, read_all, retry, status,
};
use crate::conformance::tx::begin;

/// Where relays deliver, undelivered events are not purged.
pub async fn any_is_refused_where_someone_delivers<B: Backend>(backend: &B) {
    let id = emit_one(backend, free()).await;
    backend.age(&id, HOUR * 2).await;
    for claim in [ClaimMode::Shards, ClaimMode::Rows] {
        backend.store().configure(&DeliveryMode { claim, order: Order::Key }).await.unwrap();

        let refused = backend.store().purge(&Purge::any(HOUR)).await.unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::Configuration);
        assert_eq!(status(backend, &id).await, Some(Status::New));
    }
}

/// In claim mode none, old events of every status are purged, and young ones stay.
pub async fn any_takes_old_events_in_every_state<B: Backend>(backend: &B) {
    let old = emit(backend, ["new", "done", "retry", "dead", "held", "leased"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in old[1..].iter().zip([Verdict::Done, retry(HOUR), dead(), held()]) {
        owner.settle_event(id, verdict).await;
    }
    owner.store.leave(&owner.id).await.unwrap();
    let claimed = Claimer::new(backend).await.claim().await;
    assert_eq!(claimed.len(), 2);
    for id in &old {
        backend.age(id, HOUR * 2).await;
    }
    let young = emit_one(backend, keyed("new")).await;
    nobody_delivers(backend).await;

    assert_eq!(purge(backend, Purge::any(HOUR)).await, 6);
    assert_eq!(purge(backend, Purge::any(HOUR)).await, 0);

    for id in &old {
        assert_eq!(status(backend, id).await, None);
    }
    assert_eq!(status(backend, &young).await, Some(Status::New));
    assert!(emit_one(backend, keyed("new").id(old[0].clone())).await == old[0], "its id is free");
}

/// The age counts from the verdict, and of an event without one from the emit.
pub async fn any_counts_from_the_verdict_or_the_emit<B: Backend>(backend: &B) {
    let ids = emit(backend, [free(), free(), free(), free().deliver_after(HOUR * 50)]).await;
    for id in &ids {
        backend.age(id, HOUR * 2).await;
    }
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], Verdict::Done).await;
    owner.settle_event(&ids[1], dead()).await;
    owner.settle_event(&ids[2], retry(HOUR * 50)).await;
    owner.store.leave(&owner.id).await.unwrap();
    nobody_delivers(backend).await;

    assert_eq!(purge(backend, Purge::any(HOUR)).await, 2, "those that wait, due or not");
    assert_eq!(status(backend, &ids[0]).await, Some(Status::Done));
    assert_eq!(status(backend, &ids[1]).await, Some(Status::Dead));
    for id in &ids[..2] {
        backend.age(id, HOUR * 2).await;
    }

    assert_eq!(purge(backend, Purge::any(HOUR)).await, 2);
}

/// One call deletes a small batch, and says how much it was.
pub async fn any_keeps_to_its_limit<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..5).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[1], Verdict::Done).await;
    owner.settle_event(&ids[2], dead()).await;
    owner.store.leave(&owner.id).await.unwrap();
    for id in &ids {
        backend.age(id, HOUR * 2).await;
    }
    nobody_delivers(backend).await;

    for expected in [2, 2, 1, 0] {
        assert_eq!(purge(backend, Purge::any(HOUR).limit(2)).await, expected);
    }
    assert!(read_all(backend).await.is_empty());
}

/// Audit rows go by their age; the event they are about does not matter.
pub async fn audit_rows_go_when_they_are_old<B: Backend>(backend: &B) {
    let id = given_up(backend, dead()).await;
    backend.age(&id, HOUR * 2).await;
    backend.store().operate(&Operation::replay([id.clone()])).await.unwrap();
    let gone = given_up(backend, dead()).await;
    backend.store().operate(&Operation::discard([gone.clone()])).await.unwrap();

    assert_eq!(purge(backend, Purge::audit(HOUR)).await, 1);

    let left: Vec<_> = said(backend, &id).await.into_iter().map(|said| said.0).collect();
    assert_eq!(left, ["outbox-replayed"]);
    assert_eq!(said(backend, &gone).await.len(), 2);
    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// One call deletes a small batch of audit rows.
pub async fn a_purge_of_audit_rows_keeps_to_its_limit<B: Backend>(backend: &B) {
    let id = emit_one(backend, free()).await;
    let owner = Owner::of_all(backend).await;
    for _ in 0..5 {
        owner.settle_event(&id, retry(Duration::ZERO)).await;
    }
    backend.age(&id, HOUR * 2).await;

    for (expected, left) in [(2, 3), (2, 1), (1, 0), (0, 0)] {
        assert_eq!(purge(backend, Purge::audit(HOUR).limit(2)).await, expected);
        assert_eq!(said(backend, &id).await.len(), left);
    }
}

/// An arrival that was noted long ago is forgotten, and may have its effect again.
pub async fn inbox_notes_go_when_they_are_old<B: Backend>(backend: &B) {
    arrived(backend, "old").await;
    backend.age(&EventId::new("old").unwrap(), HOUR * 2).await;
    arrived(backend, "young").await;

    assert_eq!(purge(backend, Purge::inbox(HOUR)).await, 1);

    assert_eq!(arrives(backend, "young").await, Accepted::Duplicate);
    assert_eq!(arrives(backend, "old").await, Accepted::FirstTime);
    assert_eq!(arrives(backend, "old").await, Accepted::Duplicate);
}

/// One call deletes a small batch of notes.
pub async fn a_purge_of_notes_keeps_to_its_limit<B: Backend>(backend: &B) {
    for id in ["1", "2", "3", "4", "5"] {
        arrived(backend, id).await;
        backend.age(&EventId::new(id).unwrap(), HOUR * 2).await;
    }

    for expected in [2, 2, 1, 0] {
        assert_eq!(purge(backend, Purge::inbox(HOUR).limit(2)).await, expected);
    }
}

/// Each purge takes what it is for, and leaves the rest.
pub async fn a_purge_keeps_to_its_kind<B: Backend>(backend: &B) {
    let ids = emit(backend, [free(), free(), keyed("held"), free()]).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in ids.iter().zip([Verdict::Done, dead(), held()]) {
        owner.settle_event(id, verdict).await;
    }
    arrived(backend, "note").await;
    for id in ids.iter().chain([&EventId::new("note").unwrap()]) {
        backend.age(id, HOUR * 2).await;
    }

    let takes = [
        (Purge::audit(HOUR), 2),
        (Purge::inbox(HOUR), 1),
        (Purge::dead(HOUR), 1),
        (Purge::done(HOUR), 1),
    ];
    for (wanted, expected) in takes {
        assert_eq!(purge(backend, wanted).await, expected, "{wanted:?}");
        assert_eq!(purge(backend, wanted).await, 0, "{wanted:?}");
    }

    assert_eq!(status(backend, &ids[2]).await, Some(Status::Held));
    assert_eq!(status(backend, &ids[3]).await, Some(Status::New));
}

/// A trail outlives the purge of its event.
pub async fn a_trail_outlives_the_purge_of_its_event<B: Backend>(backend: &B) {
    let id = given_up(backend, dead()).await;
    backend.age(&id, HOUR * 2).await;

    assert_eq!(purge(backend, Purge::dead(HOUR)).await, 1);

    assert_eq!(said(backend, &id).await.len(), 1);
}

/// Nothing is older than for ever, and no rows are few.
pub async fn a_retention_for_ever_keeps_everything<B: Backend>(backend: &B) {
    nobody_delivers(backend).await;
    let id = emit_one(backend, free()).await;
    backend.age(&id, HOUR * 2).await;
    arrived(backend, "note").await;

    let for_ever = Duration::MAX;
    for wanted in [Purge::done, Purge::dead, Purge::audit, Purge::inbox, Purge::any] {
        assert_eq!(purge(backend, wanted(for_ever)).await, 0);
    }
    assert_eq!(purge(backend, Purge::any(HOUR).limit(0)).await, 0);
    assert_eq!(status(backend, &id).await, Some(Status::New));
}

async fn purge<B: Backend>(backend: &B, purge: Purge) -> u64 {
    backend.store().purge(&purge).await.unwrap()
}

async fn nobody_delivers<B: Backend>(backend: &B) {
    let mode = DeliveryMode { claim: ClaimMode::None, order: Order::Key };
    backend.store().configure(&mode).await.unwrap();
}

async fn arrived<B: Backend>(backend: &B, id: &'static str) {
    assert_eq!(arrives(backend, id).await, Accepted::FirstTime);
}

/// Accepts in a transaction and commits it.
async fn arrives<B: Backend>(backend: &B, id: &'static str) -> Accepted {
    let inbox = Inbox::new("billing").unwrap();
    let arrival = Arrival { id, hash: PayloadHash::of("{}") };
    let mut tx = begin(backend).await;
    let accepted = backend.accept(&mut tx, &inbox, &arrival).await.unwrap();
    tx.commit().await.unwrap();
    accepted
}
