//! Purge: only what is over and old goes.

use std::pin::pin;

use futures_util::future::{Either, select};
use pillarbox::store::{Purge, Status};
use pillarbox::{EventId, Verdict};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::owner::{HOUR, Owner, dead, emit, free, held, replay, retry, status};
use crate::run::lacks;

/// Delivered rows go after their retention, and dead letters stay.
pub async fn done_rows_go_when_they_are_old<B: Backend>(backend: &B) {
    let ids = old(backend, &[Verdict::Done, dead()]).await;

    assert_eq!(purge(backend, Purge::done(HOUR)).await, 1);

    assert_eq!(status(backend, &ids[0]).await, None);
    assert_eq!(status(backend, &ids[1]).await, Some(Status::Dead));
}

/// Dead letters go after a retention of their own, and delivered rows stay.
pub async fn dead_rows_go_when_they_are_old<B: Backend>(backend: &B) {
    let ids = old(backend, &[Verdict::Done, dead()]).await;

    assert_eq!(purge(backend, Purge::dead(HOUR)).await, 1);

    assert_eq!(status(backend, &ids[0]).await, Some(Status::Done));
    assert_eq!(status(backend, &ids[1]).await, None);
}

/// The age counts from the verdict.
pub async fn young_rows_stay<B: Backend>(backend: &B) {
    let ids = emit(backend, [free(), free()]).await;
    backend.age(&ids[0], HOUR * 2).await;
    backend.age(&ids[1], HOUR * 2).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], Verdict::Done).await;
    owner.settle_event(&ids[1], dead()).await;

    assert_eq!(purge(backend, Purge::done(HOUR)).await, 0);
    assert_eq!(purge(backend, Purge::dead(HOUR)).await, 0);

    assert_eq!(status(backend, &ids[0]).await, Some(Status::Done));
    assert_eq!(status(backend, &ids[1]).await, Some(Status::Dead));
}

/// One call deletes a small batch, and says how much it was.
pub async fn no_more_goes_than_the_limit<B: Backend>(backend: &B) {
    old(backend, &[const { Verdict::Done }; 5]).await;

    assert_eq!(purge(backend, Purge::done(HOUR).limit(2)).await, 2);
    assert_eq!(purge(backend, Purge::done(HOUR).limit(2)).await, 2);
    assert_eq!(purge(backend, Purge::done(HOUR).limit(2)).await, 1);
    assert_eq!(purge(backend, Purge::done(HOUR).limit(2)).await, 0);
}

/// Waiting and held events stay, whatever their age.
pub async fn waiting_and_held_rows_never_go<B: Backend>(backend: &B) {
    let new = emit(backend, [free()]).await;
    let ids = old(backend, &[retry(HOUR), held()]).await;
    backend.age(&new[0], HOUR * 2).await;

    assert_eq!(purge(backend, Purge::done(HOUR)).await, 0);
    assert_eq!(purge(backend, Purge::dead(HOUR)).await, 0);

    assert_eq!(status(backend, &new[0]).await, Some(Status::New));
    assert_eq!(status(backend, &ids[0]).await, Some(Status::Waiting));
    assert_eq!(status(backend, &ids[1]).await, Some(Status::Held));
}

/// A dead letter that was replayed is not a dead letter any more.
pub async fn a_replayed_row_stays<B: Backend>(backend: &B) {
    let ids = old(backend, &[dead()]).await;
    replay(&*backend.store(), &ids).await;

    assert_eq!(purge(backend, Purge::dead(HOUR)).await, 0);
    assert_eq!(purge(backend, Purge::done(HOUR)).await, 0);

    assert_eq!(status(backend, &ids[0]).await, Some(Status::New));
}

/// A replay that commits while the purge waits for its row is seen.
pub async fn a_row_replayed_while_the_purge_waits_stays<B: Backend>(backend: &B) {
    if lacks(backend, Need::Waiting) {
        return;
    }
    let ids = old(backend, &[dead()]).await;
    let replay = backend.hold(Hold::Replay(&ids[0])).await;
    let store = backend.store();
    let wanted = Purge::dead(HOUR);

    let mut waiting = pin!(store.purge(&wanted));
    // A purge may wait for the row, or may pass it by.
    let purged = match select(&mut waiting, pin!(backend.blocked(1))).await {
        Either::Left((purged, _)) => {
            replay.commit().await;
            purged
        }
        Either::Right(_) => {
            replay.commit().await;
            waiting.await
        }
    };

    assert_eq!(purged.unwrap(), 0);
    assert_eq!(status(backend, &ids[0]).await, Some(Status::New));
}

/// Emits events, settles each with its verdict, and makes them two hours old.
async fn old<B: Backend>(backend: &B, verdicts: &[Verdict]) -> Vec<EventId> {
    let ids = emit(backend, verdicts.iter().map(|_| free())).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in ids.iter().zip(verdicts) {
        owner.settle_event(id, verdict.clone()).await;
    }
    for id in &ids {
        backend.age(id, HOUR * 2).await;
    }
    owner.store.leave(&owner.id).await.unwrap();
    ids
}

async fn purge<B: Backend>(backend: &B, purge: Purge) -> u64 {
    backend.store().purge(&purge).await.unwrap()
}
