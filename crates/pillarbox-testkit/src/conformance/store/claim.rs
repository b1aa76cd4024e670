//! Claim: which rows are leased, and in which order.

use std::time::Duration;

use pillarbox::store::{Claim, Order, Pending, Predecessor, Status};
use pillarbox::{Envelope, ErrorText, EventId, Token, Verdict};

use crate::backend::Backend;
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_due, emit_one, free, held, id_of, keyed, promote_all, read_all,
    replay, retry, status,
};

/// A due row comes whole, under the next token, and is not said to be behind another.
pub async fn a_due_row_is_leased_under_a_new_token<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let before = read_all(backend).await;

    let claimed = Claimer::new(backend).await.claim().await;

    assert_eq!(ids(&claimed), [&id]);
    let (row, read) = (&claimed[0], &before[0]);
    assert_eq!((row.seq, row.shard, &row.key), (read.seq, read.shard, &read.key));
    assert_eq!(row.token, Token(read.token.0 + 1));
    assert_eq!((row.status, row.attempts, row.before), (Status::New, 0, Predecessor::Nothing));
    assert_eq!((row.due_in, row.is_early), (Duration::ZERO, false));
    assert_eq!(row.event().unwrap(), read.event().unwrap());
    assert_eq!(backend.store().event(&id).await.unwrap().unwrap().token, row.token);
}

/// A lease keeps the row from everyone, its owner too.
pub async fn a_leased_row_is_not_claimed_again<B: Backend>(backend: &B) {
    emit_one(backend, free()).await;
    let (first, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    assert_eq!(first.claim().await.len(), 1);

    assert!(other.claim().await.is_empty());
    assert!(first.claim().await.is_empty());
}

/// A row whose lease is over goes to the next claimer, under another token.
pub async fn a_lapsed_lease_is_claimed_again<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (gone, successor) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let lost = gone.claim().await;
    backend.age(&id, HOUR * 2).await;

    let taken = successor.claim().await;

    assert_eq!(seqs(&taken), seqs(&lost));
    assert_eq!(taken[0].token, Token(lost[0].token.0 + 1));
    assert_eq!((taken[0].status, taken[0].attempts), (Status::New, 0), "nobody has judged it");
    assert!(taken[0].lapsed && !lost[0].lapsed, "its last owner may have crashed on it");
}

/// A delayed row is leased when its time has come and it was promoted, and not before.
pub async fn a_row_that_is_not_due_is_not_claimed<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a").deliver_after(HOUR)).await;
    let claimer = Claimer::new(backend).await;
    assert!(claimer.claim().await.is_empty());

    backend.age(&id, HOUR).await;

    assert!(claimer.claim().await.is_empty(), "it waits until it is promoted");
    promote_all(backend).await;
    assert_eq!(ids(&claimer.claim().await), [&id]);
}

/// Without order a waiting row is not claimed either.
pub async fn without_order_a_waiting_row_is_not_claimed<B: Backend>(backend: &B) {
    let id = emit_due(backend, [keyed("a")]).await.remove(0);
    let claimer = Claimer::unordered(backend).await;

    assert!(claimer.claim().await.is_empty());

    promote_all(backend).await;
    assert_eq!(ids(&claimer.claim().await), [&id]);
}

/// A promoted row is the head of its key again, and what is behind it waits for its verdict.
pub async fn a_promoted_row_is_claimed_first<B: Backend>(backend: &B) {
    let head = emit_due(backend, [keyed("a")]).await.remove(0);
    let next = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    assert!(claimer.claim().await.is_empty());
    promote_all(backend).await;

    let first = claimer.claim().await;

    assert_eq!(ids(&first), [&head]);
    assert_eq!((first[0].status, first[0].attempts), (Status::New, 1));
    assert!(claimer.claim().await.is_empty(), "its head is leased");
    claimer.settle_one(&first[0], Verdict::Done).await;
    assert_eq!(ids(&claimer.claim().await), [&next]);
}

/// A row to be tried again is leased when its backoff is over, with its attempts.
pub async fn a_retried_row_is_claimed_when_it_is_due<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let first = claimer.claim().await;
    claimer.settle_one(&first[0], retry(HOUR * 3)).await;
    assert!(claimer.claim().await.is_empty());

    backend.age(&id, HOUR * 3).await;
    promote_all(backend).await;

    let again = claimer.claim().await;
    assert_eq!(ids(&again), [&id]);
    assert_eq!((again[0].status, again[0].attempts), (Status::New, 1));
    assert_eq!(again[0].token, Token(first[0].token.0 + 2), "a verdict and a claim");
}

/// A row that was put off is leased when its time has come, with no attempt counted.
pub async fn a_deferred_row_is_claimed_when_it_is_due<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let first = claimer.claim().await;
    let error = ErrorText::new("bank is closed");
    claimer.settle_one(&first[0], Verdict::Defer { delay: HOUR, error }).await;
    assert!(claimer.claim().await.is_empty());

    backend.age(&id, HOUR).await;
    promote_all(backend).await;

    let again = claimer.claim().await;
    assert_eq!(ids(&again), [&id]);
    assert_eq!((again[0].status, again[0].attempts), (Status::New, 0));
}

/// Delivered, dead and held events are not claimed, whatever their age.
pub async fn final_and_held_events_are_never_claimed<B: Backend>(backend: &B) {
    let events = emit(backend, ["done", "dead", "held"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in events.iter().zip([Verdict::Done, dead(), held()]) {
        owner.settle_event(id, verdict).await;
        backend.age(id, HOUR * 2).await;
    }

    assert!(Claimer::new(backend).await.claim().await.is_empty());
    assert!(Claimer::unordered(backend).await.claim().await.is_empty());
}

/// Only the oldest row of a key is claimed.
pub async fn only_the_head_of_a_key_is_claimed<B: Backend>(backend: &B) {
    let events = emit(backend, ["a", "a", "b", "a", "b"].map(keyed)).await;

    let claimed = Claimer::new(backend).await.claim().await;

    let mut found = ids(&claimed);
    found.sort();
    let mut heads = [&events[0], &events[2]];
    heads.sort();
    assert_eq!(found, heads);
}

/// A head that is leased to another keeps its key.
pub async fn a_leased_head_blocks_its_key<B: Backend>(backend: &B) {
    emit(backend, ["a", "a"].map(keyed)).await;
    let (first, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    assert_eq!(first.claim().await.len(), 1);

    assert!(other.claim().await.is_empty());
}

/// A head that is not due yet keeps its key.
pub async fn a_delayed_head_blocks_its_key<B: Backend>(backend: &B) {
    blocks(backend, keyed("a").deliver_after(HOUR), None).await;
}

/// A head that waits for another try keeps its key.
pub async fn a_retried_head_blocks_its_key<B: Backend>(backend: &B) {
    blocks(backend, keyed("a"), Some(retry(HOUR))).await;
}

/// A head that was given up and held keeps its key.
pub async fn a_held_head_blocks_its_key<B: Backend>(backend: &B) {
    blocks(backend, keyed("a"), Some(held())).await;
}

/// A head that is done, deleted or dead lets the next one go.
pub async fn a_final_head_frees_the_next<B: Backend>(backend: &B) {
    for verdict in [Verdict::Done, Verdict::Delete, dead()] {
        let events = emit(backend, ["a", "a"].map(keyed)).await;
        let claimer = Claimer::new(backend).await;
        let head = claimer.claim().await;
        assert_eq!(ids(&head), [&events[0]]);

        claimer.settle_one(&head[0], verdict.clone()).await;

        let next = claimer.claim().await;
        assert_eq!(ids(&next), [&events[1]], "after {verdict:?}");
        claimer.settle_one(&next[0], Verdict::Delete).await;
    }
}

/// A row without a key waits for nobody.
pub async fn rows_without_a_key_do_not_wait<B: Backend>(backend: &B) {
    emit(backend, (0..5).map(|_| free())).await;

    assert_eq!(Claimer::new(backend).await.claim().await.len(), 5);
}

/// Without order every due row is claimed at once.
pub async fn without_order_every_due_row_is_claimed<B: Backend>(backend: &B) {
    let first = keyed("a").deliver_after(HOUR);
    let events = emit(backend, [first, keyed("a"), keyed("a"), free()]).await;

    let claimed = Claimer::unordered(backend).await.claim().await;

    assert_eq!(claimed.len(), 3);
    assert!(!ids(&claimed).contains(&&events[0]), "not due is not due");
}

/// The limit is for all shards together.
pub async fn the_limit_counts_over_all_shards<B: Backend>(backend: &B) {
    emit(backend, (0..100).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;

    assert!(claimer.claim_up_to(0).await.is_empty());
    let sizes = [claimer.claim_up_to(7).await.len(), claimer.claim_up_to(90).await.len()];
    assert_eq!(sizes, [7, 90]);
    assert_eq!(claimer.claim().await.len(), 3, "no more were leased than were given");
}

/// Shards come in the order given, and the rows of each by seq.
pub async fn shards_are_claimed_in_the_order_given<B: Backend>(backend: &B) {
    emit(backend, (0..200).map(|_| free())).await;
    let mut claimer = Claimer::new(backend).await;
    let third = claimer.shards.len() / 3;
    claimer.shards.reverse();
    claimer.shards.rotate_left(third);
    let place = |row: &Pending| claimer.shards.iter().position(|shard| *shard == row.shard);
    let mut expected = read_all(backend).await;
    expected.sort_by_key(|row| (place(row), row.seq));

    let (first, rest) = (claimer.claim_up_to(50).await, claimer.claim().await);

    assert_eq!(seqs(&first), seqs(&expected[..50]));
    assert_eq!(seqs(&rest), seqs(&expected[50..]));
}

/// A claim leases rows of the shards it names and no others.
pub async fn only_the_shards_asked_for_are_claimed<B: Backend>(backend: &B) {
    emit(backend, (0..100).map(|_| free())).await;
    let all = read_all(backend).await;
    let mut claimer = Claimer::new(backend).await;
    let wanted = all[0].shard;

    claimer.shards = vec![];
    assert!(claimer.claim().await.is_empty());
    claimer.shards = vec![wanted];
    let claimed = claimer.claim().await;

    let expected: Vec<_> = all.into_iter().filter(|row| row.shard == wanted).collect();
    assert_eq!(seqs(&claimed), seqs(&expected));
}

/// Rows that wait for their head do not use up the limit.
pub async fn blocked_rows_do_not_use_up_the_limit<B: Backend>(backend: &B) {
    emit(backend, (0..50).map(|_| keyed("a"))).await;
    emit(backend, (0..500).map(|n| keyed(&format!("b{n}")))).await;
    let all = read_all(backend).await;
    let head = &all.iter().min_by_key(|row| row.seq).unwrap();
    let mut claimer = Claimer::new(backend).await;
    claimer.shards = vec![head.shard];

    let claimed = claimer.claim_up_to(2).await;

    let others = all.iter().filter(|row| row.shard == head.shard && row.key != head.key);
    let other = others.min_by_key(|row| &row.key).expect("another key is in the shard");
    assert_eq!(seqs(&claimed), [head.seq, other.seq]);
}

/// A replayed event can be claimed at once, and is the head of its key again.
pub async fn a_replayed_row_is_claimed_first<B: Backend>(backend: &B) {
    let events = emit(backend, ["a", "a"].map(keyed)).await;
    let claimer = Claimer::new(backend).await;
    let head = claimer.claim().await;
    claimer.settle_one(&head[0], dead()).await;
    replay(&*backend.store(), &events[..1]).await;

    let again = claimer.claim().await;

    assert_eq!(ids(&again), [&events[0]]);
    assert_eq!(again[0].attempts, 0);
    assert_eq!(status(backend, &events[1]).await, Some(Status::New));
}

/// A claim for a time longer than the calendar is one for as long as it goes.
pub async fn a_lease_may_have_any_length<B: Backend>(backend: &B) {
    emit_one(backend, free()).await;
    let claimer = Claimer::new(backend).await;
    let wish = Claim { length: Duration::MAX, ..claimer.request(1) };

    assert_eq!(claimer.store.claim(&wish).await.unwrap().len(), 1);

    assert!(claimer.claim().await.is_empty());
}

/// Emits a head, settles it, and sees that the next of its key is held back by it alone.
async fn blocks<B: Backend>(backend: &B, head: Envelope, verdict: Option<Verdict>) {
    let head = emit_one(backend, head).await;
    if let Some(verdict) = verdict {
        Owner::of_all(backend).await.settle_event(&head, verdict).await;
    }
    let next = emit_one(backend, keyed("a")).await;

    let claimer = Claimer::new(backend).await;
    assert!(claimer.claim().await.is_empty());

    let unordered = Claimer { order: Order::None, ..claimer };
    assert_eq!(ids(&unordered.claim().await), [&next]);
}

fn ids(rows: &[Pending]) -> Vec<&EventId> {
    rows.iter().map(id_of).collect()
}
