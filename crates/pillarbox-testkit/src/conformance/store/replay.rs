//! Replay: dead letters get another life, and nothing takes it from them.

use std::time::Duration;

use pillarbox::store::Status;
use pillarbox::{EventId, Token, Verdict};

use crate::backend::Backend;
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, held, keyed, read_all, replay, retry, row, status,
};

/// A dead letter is new again, due at once, with no attempt counted.
pub async fn a_dead_letter_becomes_new<B: Backend>(backend: &B) {
    becomes_new(backend, dead()).await;
}

/// A held event is new again, and its key goes on.
pub async fn a_held_event_becomes_new<B: Backend>(backend: &B) {
    becomes_new(backend, held()).await;
}

/// Delivered, waiting and unknown events are left alone.
pub async fn an_event_that_is_not_dead_is_not_replayed<B: Backend>(backend: &B) {
    let ids = emit(backend, ["new", "done", "retry", "dead"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[1], Verdict::Done).await;
    owner.settle_event(&ids[2], retry(HOUR)).await;
    owner.settle_event(&ids[3], dead()).await;

    let asked: Vec<_> = ids.iter().cloned().chain([EventId::generate()]).collect();
    let replayed = replay(&*backend.store(), &asked).await;

    assert_eq!(replayed, 1);
    assert_eq!(status(backend, &ids[0]).await, Some(Status::New));
    assert_eq!(status(backend, &ids[1]).await, Some(Status::Done));
    assert_eq!(status(backend, &ids[2]).await, Some(Status::Waiting));
    assert_eq!(status(backend, &ids[3]).await, Some(Status::New));
    assert_eq!(replay(&*backend.store(), &[]).await, 0);
}

/// A verdict that is repeated after an operator's replay finds another token, and is nothing.
pub async fn a_late_verdict_does_not_swallow_a_replay<B: Backend>(backend: &B) {
    for verdict in [dead(), held()] {
        let id = emit_one(backend, keyed("a")).await;
        let owner = Owner::of_all(backend).await;
        let rows = owner.read().await;
        assert_eq!(owner.settle_one(row(&rows, &id), verdict.clone()).await.applied.len(), 1);
        replay(&*backend.store(), std::slice::from_ref(&id)).await;

        let repeated = owner.settle_one(row(&rows, &id), verdict).await;

        assert!(repeated.applied.is_empty());
        assert_eq!(status(backend, &id).await, Some(Status::New));
        owner.settle_event(&id, Verdict::Delete).await;
        owner.store.leave(&owner.id).await.unwrap();
    }
}

/// A replay adds one to the token.
pub async fn a_replay_moves_the_token<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    Owner::of_all(backend).await.settle_event(&id, dead()).await;
    let store = backend.store();
    let before = store.event(&id).await.unwrap().unwrap().token;

    replay(&*store, std::slice::from_ref(&id)).await;

    let after = store.event(&id).await.unwrap().unwrap().token;
    assert_eq!(after, Token(before.0 + 1));
}

async fn becomes_new<B: Backend>(backend: &B, verdict: Verdict) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&id, verdict).await;

    assert_eq!(replay(&*backend.store(), std::slice::from_ref(&id)).await, 1);

    let rows = read_all(backend).await;
    let again = row(&rows, &id);
    assert_eq!((again.status, again.attempts, again.due_in), (Status::New, 0, Duration::ZERO));
    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!(stored.done_at, None);
    assert_eq!(owner.settle_one(again, Verdict::Done).await.applied.len(), 1, "it can be settled");
}
