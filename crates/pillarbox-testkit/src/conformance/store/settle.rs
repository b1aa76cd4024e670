//! Settle: what each verdict leaves behind.

use std::{collections::HashSet, time::Duration};

use pillarbox::store::{
    ClaimMode, FAILED_PERMANENT, Predecessor, SEND_FAILED, Settled, Status, StoredEvent,
};
use pillarbox::{Clock, ErrorText, EventId, MAX_ERROR_TEXT, SystemClock, Token, Verdict};

use super::audit::{line, said};
use crate::backend::Backend;
use crate::conformance::any_owner::AnyOwner;
use crate::conformance::claimer::seqs;
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, find, free, held, keyed, next_wait, read_all, retry, row,
    seqs_of, status, stored,
};

/// A delivered row is kept, marked and dated, and is not read again.
pub async fn done_keeps_the_row_and_ends_its_wait<B: Backend>(backend: &B, claim: ClaimMode) {
    let (id, stored) = settled(backend, claim, Verdict::Done).await;

    let stored = stored.expect("it is kept");
    assert_eq!((stored.status, stored.attempts), (Status::Done, 0));
    assert!(stored.done_at.is_some_and(|done| done >= stored.created_at));
    assert_eq!(stored.settled_by.as_deref(), Some("mailer"));
    assert!(find(&read_all(backend).await, &id).is_none());
}

/// A delivered row that need not be kept is gone.
pub async fn delete_removes_the_row<B: Backend>(backend: &B, claim: ClaimMode) {
    let (id, stored) = settled(backend, claim, Verdict::Delete).await;

    assert!(stored.is_none());
    assert!(find(&read_all(backend).await, &id).is_none());
}

/// A failed row has one more attempt, the cause, and a wait by the database's clock.
pub async fn retry_counts_an_attempt_and_waits<B: Backend>(backend: &B, claim: ClaimMode) {
    let (id, stored) = settled(backend, claim, retry(HOUR)).await;

    let stored = stored.unwrap();
    assert_eq!((stored.status, stored.attempts), (Status::Waiting, 1));
    assert_eq!(stored.last_error.as_deref(), Some("socket closed"));
    assert_eq!(stored.done_at, None);
    let due_in = next_wait(backend).await;
    assert!(due_in > HOUR / 2 && due_in <= HOUR, "due in {due_in:?}");
    assert!(find(&read_all(backend).await, &id).is_none(), "it waits");
}

/// A deferred row waits too, but its attempts stay.
pub async fn defer_waits_without_counting<B: Backend>(backend: &B, claim: ClaimMode) {
    let verdict = Verdict::Defer { delay: HOUR, error: ErrorText::new("bank is closed") };
    let (id, stored) = settled(backend, claim, verdict).await;

    let stored = stored.unwrap();
    assert_eq!((stored.status, stored.attempts), (Status::Waiting, 0));
    assert_eq!(stored.last_error.as_deref(), Some("bank is closed"));
    assert_eq!(stored.done_at, None);
    let due_in = next_wait(backend).await;
    assert!(due_in > HOUR / 2 && due_in <= HOUR, "due in {due_in:?}");
    assert!(find(&read_all(backend).await, &id).is_none(), "it waits");
}

/// A deferral between two failures counts for nothing, and its cause is the last one.
pub async fn defer_keeps_the_attempt_count<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    let defer = Verdict::Defer { delay: Duration::ZERO, error: ErrorText::new("bank is closed") };

    for verdict in [retry(Duration::ZERO), defer.clone(), defer, retry(Duration::ZERO)] {
        owner.settle_event(&id, verdict).await;
    }

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.attempts), (Status::Waiting, 2));
    assert_eq!(stored.last_error.as_deref(), Some("socket closed"));
}

/// A delivery after failures leaves their number and the last cause to be read.
pub async fn a_delivered_row_keeps_its_last_error<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&id, retry(Duration::ZERO)).await;

    owner.settle_event(&id, Verdict::Done).await;

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.attempts), (Status::Done, 1));
    assert_eq!(stored.last_error.as_deref(), Some("socket closed"));
}

/// An event that happened tomorrow, by the writer's clock, is retried like any other.
pub async fn an_event_of_tomorrow_is_retried_like_any_other<B: Backend>(backend: &B) {
    let tomorrow = SystemClock.now().saturating_add(HOUR * 24);
    let id = emit_one(backend, keyed("a").occurred_at(tomorrow)).await;
    let owner = Owner::of_all(backend).await;

    owner.settle_event(&id, retry(Duration::ZERO)).await;

    owner.promote().await;
    let rows = owner.read().await;
    assert_eq!(row(&rows, &id).due_in, Duration::ZERO);
    let event = row(&rows, &id).event().unwrap();
    assert_eq!(event.moment(), Some(tomorrow));
}

/// A dead letter keeps its error and its date, and is not read again.
pub async fn a_dead_letter_is_not_read_again<B: Backend>(backend: &B, claim: ClaimMode) {
    let (id, stored) = settled(backend, claim, dead()).await;

    let stored = stored.unwrap();
    assert_eq!((stored.status, stored.attempts), (Status::Dead, 1));
    assert_eq!(stored.last_error.as_deref(), Some("no such customer"));
    assert!(stored.done_at.is_some());
    assert!(find(&read_all(backend).await, &id).is_none());
}

/// A held row is a dead letter that is not read any more, and its key is seen to wait.
pub async fn a_held_event_is_not_read_again_and_blocks_its_key<B: Backend>(
    backend: &B,
    claim: ClaimMode,
) {
    let (id, stored) = settled(backend, claim, held()).await;
    let next = emit_one(backend, keyed("a")).await;

    let stored = stored.unwrap();
    assert_eq!((stored.status, stored.attempts), (Status::Held, 1));
    let rows = read_all(backend).await;
    assert!(find(&rows, &id).is_none());
    assert_eq!(seqs(&rows), seqs_of(backend, &[next]).await);
    assert_eq!(rows[0].before, Predecessor::Waiting);
}

/// A held row waits for a human: no verdict moves it, also with the right token.
pub async fn a_held_row_takes_no_verdict<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    let mut read = row(&owner.read().await, &id).clone();
    owner.settle_one(&read, held()).await;
    read.token = stored(backend, &id).await.token;

    let settled = owner.settle_one(&read, Verdict::Done).await;

    assert_eq!(settled, Settled::default());
    assert_eq!(status(backend, &id).await, Some(Status::Held));
}

/// A row that is done or dead is so: no verdict moves it, also with the right token.
pub async fn a_final_row_takes_no_verdict<B: Backend>(backend: &B) {
    for last in [Verdict::Done, dead()] {
        let id = emit_one(backend, keyed("a")).await;
        let owner = Owner::of_all(backend).await;
        let rows = owner.read().await;
        owner.settle_one(row(&rows, &id), last.clone()).await;
        let before = backend.store().event(&id).await.unwrap().unwrap();

        let defer = Verdict::Defer { delay: HOUR, error: ErrorText::new("later") };
        for verdict in [Verdict::Done, Verdict::Delete, retry(HOUR), defer, dead(), held()] {
            let mut late = owner.settlement(row(&rows, &id), verdict);
            late.token = before.token;
            assert_eq!(owner.settle(vec![late]).await, Settled::default());
        }

        let after = backend.store().event(&id).await.unwrap().expect("it is still there");
        assert_eq!((after.status, after.token), (before.status, before.token), "after {last:?}");
        owner.store.leave(&owner.id).await.unwrap();
    }
}

/// A row that does not exist takes no verdict, and is in nobody's way.
pub async fn an_unknown_row_takes_no_verdict<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let mut unknown = owner.settlement(&rows[0], Verdict::Done);
    unknown.seq.0 += 1000;

    let settled = owner.settle(vec![unknown, owner.settlement(&rows[0], Verdict::Done)]).await;

    assert_eq!(settled, Settled { applied: vec![rows[0].seq], refused: vec![] });
    assert_eq!(status(backend, &id).await, Some(Status::Done));
}

/// A cause of 5,000 characters is kept up to the limit, whole characters only.
pub async fn a_long_error_is_truncated<B: Backend>(backend: &B) {
    let error = ErrorText::new(&format!("\0{}", "ß🦀".repeat(2500)));

    let (_, stored) = settled(backend, ClaimMode::Shards, Verdict::Dead { error }).await;

    let kept = stored.unwrap().last_error.unwrap();
    assert_eq!(kept, "ß🦀".repeat(MAX_ERROR_TEXT / 2));
}

/// Every verdict increments the token.
pub async fn every_verdict_moves_the_token<B: Backend>(backend: &B) {
    let defer = Verdict::Defer { delay: Duration::ZERO, error: ErrorText::new("later") };
    for verdict in [Verdict::Done, retry(HOUR), defer, dead(), held()] {
        let id = emit_one(backend, free()).await;
        let owner = Owner::of_all(backend).await;
        let before = row(&owner.read().await, &id).token;
        owner.settle_event(&id, verdict.clone()).await;
        owner.store.leave(&owner.id).await.unwrap();

        let after = backend.store().event(&id).await.unwrap().unwrap().token;
        assert_eq!(after, Token(before.0 + 1), "after {verdict:?}");
    }
}

/// One call may carry every kind of verdict on rows of every shard; each row gets its own.
pub async fn verdicts_mix_over_shards_and_kinds<B: Backend>(backend: &B, claim: ClaimMode) {
    let event = |n: u8| if n.is_multiple_of(2) { keyed(&n.to_string()) } else { free() };
    let ids = emit(backend, (0..200).map(event)).await;
    let owner = AnyOwner::new(backend, claim).await;
    let rows = owner.read().await;
    let kinds = [Verdict::Done, Verdict::Delete, retry(HOUR), dead(), held()];

    let verdicts = ids.iter().enumerate().map(|(n, id)| (row(&rows, id), kinds[n % 5].clone()));
    let settled = owner.settle(verdicts).await;

    assert_eq!(settled.applied.len(), 200);
    assert!(settled.refused.is_empty());
    let expected =
        [Some(Status::Done), None, Some(Status::Waiting), Some(Status::Dead), Some(Status::Held)];
    for (n, id) in ids.iter().enumerate() {
        assert_eq!(status(backend, id).await, expected[n % 5], "event {n}");
    }
}

/// A call may be as large as what a relay has unsettled at most.
pub async fn two_thousand_verdicts_go_in_one_call<B: Backend>(backend: &B, claim: ClaimMode) {
    // A claim takes only the first event of a key.
    let event = |n: u16| match claim {
        ClaimMode::Rows => free(),
        _ => keyed(&(n % 500).to_string()),
    };
    emit(backend, (0..2000).map(event)).await;
    let owner = AnyOwner::new(backend, claim).await;
    let rows = owner.read().await;
    assert_eq!(rows.len(), 2000);

    let verdict = |n: usize| if n.is_multiple_of(2) { Verdict::Done } else { retry(HOUR) };
    let settled = owner.settle(rows.iter().enumerate().map(|(n, row)| (row, verdict(n)))).await;

    let applied: HashSet<_> = settled.applied.iter().collect();
    assert_eq!((applied.len(), settled.applied.len()), (2000, 2000));
    let stats = backend.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.waiting), (0, 1000));
}

/// A settle without verdicts does nothing.
pub async fn no_verdicts_are_no_error<B: Backend>(backend: &B, claim: ClaimMode) {
    let owner = AnyOwner::new(backend, claim).await;

    assert_eq!(owner.settle([]).await, Settled::default());
}

/// Emits one event, settles it, checks what its trail says, and gives what is left of it.
async fn settled<B: Backend>(
    backend: &B,
    claim: ClaimMode,
    verdict: Verdict,
) -> (EventId, Option<StoredEvent>) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = AnyOwner::new(backend, claim).await;
    owner.settle_event(backend, &id, verdict.clone()).await;
    owner.leave().await;
    let stored = backend.store().event(&id).await.unwrap();
    let error = stored.as_ref().and_then(|stored| stored.last_error.as_deref());
    let trail = match verdict {
        Verdict::Done | Verdict::Delete | Verdict::Defer { .. } => vec![],
        Verdict::Retry { .. } => vec![line(SEND_FAILED, 1, error)],
        _ => vec![line(FAILED_PERMANENT, 1, error)],
    };
    assert_eq!(said(backend, &id).await, trail);
    (id, stored)
}
