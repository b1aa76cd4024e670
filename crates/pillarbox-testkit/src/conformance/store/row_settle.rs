//! Verdicts on claimed rows: the same as any verdict, from the hands that hold the row.

use std::{collections::HashSet, time::Duration};

use pillarbox::store::{AuditEntry, RowLease, Status, StoredEvent};
use pillarbox::{ErrorKind, ErrorText, EventId, ShardId, Token, Verdict};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, free, held, id_of, keyed, promote_all, replay, retry, row,
    status,
};
use crate::run::lacks;

/// A delivered row is kept, marked and dated.
pub async fn done_is_what_it_is_in_a_shard<B: Backend>(backend: &B) {
    let after = same_as_in_a_shard(backend, Verdict::Done).await.expect("it is kept");

    assert_eq!((after.status, after.attempts), (Status::Done, 0));
    assert!(after.done_at.is_some());
    assert_eq!(after.settled_by.as_deref(), Some("mailer"));
}

/// A delivered row that need not be kept is gone.
pub async fn delete_is_what_it_is_in_a_shard<B: Backend>(backend: &B) {
    assert!(same_as_in_a_shard(backend, Verdict::Delete).await.is_none());
}

/// A failed row waits, with one more attempt.
pub async fn retry_is_what_it_is_in_a_shard<B: Backend>(backend: &B) {
    let after = same_as_in_a_shard(backend, retry(HOUR)).await.unwrap();

    assert_eq!((after.status, after.attempts, after.done_at), (Status::Waiting, 1, None));
    assert_eq!(after.last_error.as_deref(), Some("socket closed"));
}

/// A deferred row waits, and its attempts stay.
pub async fn defer_is_what_it_is_in_a_shard<B: Backend>(backend: &B) {
    let verdict = Verdict::Defer { delay: HOUR, error: ErrorText::new("bank is closed") };
    let after = same_as_in_a_shard(backend, verdict).await.unwrap();

    assert_eq!((after.status, after.attempts, after.done_at), (Status::Waiting, 0, None));
}

/// A row that was given up is a dead letter.
pub async fn dead_is_what_it_is_in_a_shard<B: Backend>(backend: &B) {
    let after = same_as_in_a_shard(backend, dead()).await.unwrap();

    assert_eq!((after.status, after.attempts), (Status::Dead, 1));
    assert!(after.done_at.is_some());
}

/// A row that was given up and holds its key is held.
pub async fn held_is_what_it_is_in_a_shard<B: Backend>(backend: &B) {
    let after = same_as_in_a_shard(backend, held()).await.unwrap();

    assert_eq!((after.status, after.attempts), (Status::Held, 1));
}

/// Whoever lost a lease decides nothing any more; the heir does.
pub async fn a_verdict_after_the_lease_was_taken_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (late, heir) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let lost = late.claim().await;
    backend.age(&id, HOUR * 2).await;
    let taken = heir.claim().await;

    for verdict in [Verdict::Done, Verdict::Delete, dead(), retry(Duration::ZERO)] {
        assert!(late.judge(&lost[0], verdict).await.is_empty());
    }

    assert_eq!(status(backend, &id).await, Some(Status::New));
    assert!(backend.store().trail(id.as_str()).await.unwrap().is_empty());
    assert_eq!(heir.judge(&taken[0], Verdict::Done).await, seqs(&taken));
}

/// Whoever gave a row back decides nothing any more.
pub async fn a_verdict_after_a_release_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    claimer.release(&rows).await;

    assert!(claimer.judge(&rows[0], Verdict::Done).await.is_empty());

    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// The right token is not enough: the row must be the owner's.
pub async fn a_verdict_of_another_owner_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (holder, stranger) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = holder.claim().await;

    assert!(stranger.judge(&rows[0], Verdict::Delete).await.is_empty());

    assert_eq!(status(backend, &id).await, Some(Status::New));
    assert_eq!(holder.judge(&rows[0], Verdict::Done).await, seqs(&rows));
}

/// Another token or another shard than the claim gave decides nothing, nor does a row unclaimed.
pub async fn a_verdict_beside_its_fence_changes_nothing<B: Backend>(backend: &B) {
    let ids = emit(backend, [keyed("a"), keyed("a")]).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    let unclaimed = Owner::of_all(backend).await.read().await;
    let (mut old, mut next, mut shard) = (rows[0].clone(), rows[0].clone(), rows[0].clone());
    old.token = Token(old.token.0 - 1);
    next.token = Token(next.token.0 + 1);
    shard.shard = ShardId(shard.shard.0 + 1);

    for wrong in [&old, &next, &shard, row(&unclaimed, &ids[1])] {
        assert!(claimer.judge(wrong, Verdict::Done).await.is_empty());
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

    assert_eq!(claimer.judge(&rows[0], Verdict::Done).await, seqs(&rows));

    assert_eq!(status(backend, &id).await, Some(Status::Done));
}

/// A verdict that is repeated because its answer was lost applies once.
pub async fn a_repeated_verdict_applies_once<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;

    assert_eq!(claimer.judge(&rows[0], retry(Duration::ZERO)).await, seqs(&rows));
    assert!(claimer.judge(&rows[0], retry(Duration::ZERO)).await.is_empty());

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.attempts, stored.token), (1, Token(rows[0].token.0 + 1)));
    assert_eq!(backend.store().trail(id.as_str()).await.unwrap().len(), 1);
}

/// A verdict that stands twice in one call applies once, and is told of once.
pub async fn a_verdict_given_twice_applies_once<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;

    let twice = [(&rows[0], retry(HOUR)), (&rows[0], retry(HOUR))];
    assert_eq!(claimer.settle(twice).await, seqs(&rows));

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.attempts, stored.token), (1, Token(rows[0].token.0 + 1)));
    assert_eq!(backend.store().trail(id.as_str()).await.unwrap().len(), 1);
}

/// A settle that gives up on a locked row leaves no lock on the others, which would be taken for
/// locked by somebody else.
pub async fn a_settle_that_gave_up_has_locked_nothing<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    emit(backend, (0..10).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let mut rows = claimer.claim().await;
    rows.sort_unstable_by_key(|row| row.seq);
    let leases: Vec<RowLease> = rows.iter().map(RowLease::from).collect();
    // Rows are locked in order of their places: all others are, when it comes to the last.
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

/// One call may carry every kind of verdict; each row gets its own.
pub async fn verdicts_mix_in_one_call<B: Backend>(backend: &B) {
    emit(backend, (0..200).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    let kinds = [Verdict::Done, Verdict::Delete, retry(HOUR), dead(), held()];

    let verdicts = rows.iter().enumerate().map(|(n, row)| (row, kinds[n % 5].clone()));
    let applied = claimer.settle(verdicts).await;

    assert_eq!(applied.len(), 200);
    let expected =
        [Some(Status::Done), None, Some(Status::Waiting), Some(Status::Dead), Some(Status::Held)];
    for (n, row) in rows.iter().enumerate() {
        assert_eq!(status(backend, id_of(row)).await, expected[n % 5], "row {n}");
    }
}

/// A call may be as large as what a relay has in hand at most.
pub async fn two_thousand_verdicts_go_in_one_call<B: Backend>(backend: &B) {
    emit(backend, (0..2000).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    assert_eq!(rows.len(), 2000);

    let verdict = |n: usize| if n.is_multiple_of(2) { Verdict::Done } else { retry(HOUR) };
    let verdicts = rows.iter().enumerate().map(|(n, row)| (row, verdict(n)));
    let applied = claimer.settle(verdicts).await;

    let distinct: HashSet<_> = applied.iter().collect();
    assert_eq!((distinct.len(), applied.len()), (2000, 2000));
    let stats = backend.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.waiting), (0, 1000));
}

/// A settle without verdicts does nothing.
pub async fn no_verdicts_are_no_error<B: Backend>(backend: &B) {
    assert!(Claimer::new(backend).await.settle([]).await.is_empty());
}

/// A verdict ends the lease: a row to be tried again is there for all when it is due.
pub async fn a_verdict_ends_the_lease<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (first, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = first.claim().await;
    first.judge(&rows[0], retry(Duration::ZERO)).await;
    promote_all(backend).await;
    let again = other.claim().await;
    assert_eq!(seqs(&again), seqs(&rows));
    assert!(first.renew(&again, HOUR).await.is_empty());

    other.judge(&again[0], dead()).await;
    replay(&*backend.store(), std::slice::from_ref(&id)).await;

    assert_eq!(seqs(&first.claim().await), seqs(&rows), "nothing is left of either lease");
}

/// A verdict through the shard ends the lease of a row as well.
pub async fn a_verdict_through_the_shard_ends_the_lease<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    let owner = Owner::of_all(backend).await;

    owner.judge_id(&id, retry(Duration::ZERO)).await;

    assert!(claimer.judge(&rows[0], Verdict::Done).await.is_empty(), "it was decided since");
    promote_all(backend).await;
    assert_eq!(seqs(&claimer.claim().await), seqs(&rows));
}

/// Settles one event through its shard and one that was claimed, and compares what is left.
async fn same_as_in_a_shard<B: Backend>(backend: &B, verdict: Verdict) -> Option<StoredEvent> {
    let ids = emit(backend, [keyed("a"), keyed("b")]).await;
    let owner = Owner::of_all(backend).await;
    owner.judge_id(&ids[0], verdict.clone()).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;

    assert_eq!(claimer.judge(row(&rows, &ids[1]), verdict).await.len(), 1);

    let (shard, claimed) = (left(backend, &ids[0]).await, left(backend, &ids[1]).await);
    assert_eq!(claimed.1, shard.1, "the trails differ");
    let plain = |stored: &StoredEvent| {
        let wait = stored.available_at.since(stored.created_at).as_secs() / 60;
        let said = (stored.last_error.clone(), stored.settled_by.clone());
        (stored.status, stored.attempts, stored.done_at.is_some(), wait, said)
    };
    assert_eq!(claimed.0.as_ref().map(plain), shard.0.as_ref().map(plain));
    claimed.0
}

type Said = (String, u32, Option<String>);

async fn left<B: Backend>(backend: &B, id: &EventId) -> (Option<StoredEvent>, Vec<Said>) {
    let store = backend.store();
    let said = |entry: AuditEntry| (entry.action, entry.attempts, entry.error);
    let trail = store.trail(id.as_str()).await.unwrap().into_iter().map(said).collect();
    (store.event(id).await.unwrap(), trail)
}
