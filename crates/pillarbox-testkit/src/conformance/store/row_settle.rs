//! Verdicts on claimed rows: what differs from verdicts on rows of an owned shard.

use std::{collections::HashSet, time::Duration};

use pillarbox::store::{RowLease, Status};
use pillarbox::{ErrorKind, ShardId, Token, Verdict};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, free, keyed, promote_all, replay, retry, row, status,
};
use crate::run::lacks;

/// The right token is not enough: the row must be the owner's.
pub async fn a_verdict_of_another_owner_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (holder, stranger) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = holder.claim().await;

    assert!(stranger.settle_one(&rows[0], Verdict::Delete).await.is_empty());

    assert_eq!(status(backend, &id).await, Some(Status::New));
    assert_eq!(holder.settle_one(&rows[0], Verdict::Done).await, seqs(&rows));
}

/// Another token or another shard than the claim gave decides nothing, nor does a row unclaimed.
pub async fn a_verdict_with_a_wrong_token_or_shard_changes_nothing<B: Backend>(backend: &B) {
    let ids = emit(backend, [keyed("a"), keyed("a")]).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    let unclaimed = Owner::of_all(backend).await.read().await;
    let (mut old, mut next, mut shard) = (rows[0].clone(), rows[0].clone(), rows[0].clone());
    old.token = Token(old.token.0 - 1);
    next.token = Token(next.token.0 + 1);
    shard.shard = ShardId(shard.shard.0 + 1);

    for wrong in [&old, &next, &shard, row(&unclaimed, &ids[1])] {
        assert!(claimer.settle_one(wrong, Verdict::Done).await.is_empty());
    }

    for id in &ids {
        assert_eq!(status(backend, id).await, Some(Status::New));
    }
}

/// A lease that ran out does not matter as long as nobody took the row.
pub async fn a_lapsed_lease_that_nobody_took_still_settles<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    backend.age(&id, HOUR * 2).await;

    assert_eq!(claimer.settle_one(&rows[0], Verdict::Done).await, seqs(&rows));

    assert_eq!(status(backend, &id).await, Some(Status::Done));
}

/// A verdict that is twice in one call applies once, and is reported once.
pub async fn a_verdict_given_twice_applies_once<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;

    let twice = [(&rows[0], retry(HOUR)), (&rows[0], retry(HOUR))];
    assert_eq!(claimer.settle(twice).await, seqs(&rows));

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.attempts, stored.token), (1, Token(rows[0].token.0 + 1)));
    assert_eq!(backend.store().audit_trail(id.as_str()).await.unwrap().len(), 1);
}

/// A settle that gives up on a locked row leaves no locks on the others: they would be reported as
/// locked by another transaction.
pub async fn a_settle_that_gave_up_has_locked_nothing<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    emit(backend, (0..10).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let mut rows = claimer.claim().await;
    rows.sort_unstable_by_key(|row| row.seq);
    let leases: Vec<RowLease> = rows.iter().map(RowLease::from).collect();
    // Rows are locked in the order of their seq: all others are locked before the last.
    let lock = backend.hold(Hold::Event(leases[9].seq)).await;

    let settle = claimer.settlement(rows.iter().map(|row| (row, Verdict::Done)));
    let error = claimer.store.settle_rows(&settle).await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Busy);
    assert_eq!(claimer.store.locked(&leases).await.unwrap(), [leases[9].seq]);
    lock.commit().await;
    assert_eq!(claimer.store.settle_rows(&settle).await.unwrap().len(), 10);
}

/// Lost rows do not keep the others' verdicts from being written.
pub async fn kept_rows_settle_beside_lost_ones<B: Backend>(backend: &B) {
    emit(backend, (0..40).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    claimer.release(&rows[..10]).await;

    let applied = claimer.settle(rows.iter().map(|row| (row, Verdict::Done))).await;

    let applied: HashSet<_> = applied.into_iter().collect();
    assert_eq!(applied, seqs(&rows[10..]).into_iter().collect());
    assert_eq!(backend.store().stats().await.unwrap().new, 10);
}

/// A verdict ends the lease: a row to be tried again is there for all when it is due.
pub async fn a_verdict_ends_the_lease<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (first, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = first.claim().await;
    first.settle_one(&rows[0], retry(Duration::ZERO)).await;
    promote_all(backend).await;
    let again = other.claim().await;
    assert_eq!(seqs(&again), seqs(&rows));
    assert!(first.renew(&again, HOUR).await.is_empty());

    other.settle_one(&again[0], dead()).await;
    replay(&*backend.store(), std::slice::from_ref(&id)).await;

    assert_eq!(seqs(&first.claim().await), seqs(&rows), "nothing is left of either lease");
}

/// A verdict through the shard ends the lease of a row as well.
pub async fn a_verdict_through_the_shard_ends_the_lease<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    let owner = Owner::of_all(backend).await;

    owner.settle_event(&id, retry(Duration::ZERO)).await;

    assert!(claimer.settle_one(&rows[0], Verdict::Done).await.is_empty(), "it was decided since");
    promote_all(backend).await;
    assert_eq!(seqs(&claimer.claim().await), seqs(&rows));
}
