//! Promote: waiting rows become new when their time has come.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use pillarbox::store::{Due, DueRow, Promote, Status};
use pillarbox::{Envelope, Seq, ShardId, Verdict};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::owner::{
    ALL, HOUR, Owner, emit, emit_due, emit_one, free, held, keyed, promote_all, read_all, retry,
    row, seqs_of, shards, status, stored,
};
use crate::run::lacks;

/// Without waiting rows there is nothing to promote, now or later.
pub async fn nothing_is_due_where_nothing_waits<B: Backend>(backend: &B) {
    let ids = emit(backend, ["new", "done", "held"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[1], Verdict::Done).await;
    owner.settle_event(&ids[2], held()).await;

    assert_eq!(promote_all(backend).await, Due::default());
    assert_eq!(promote(backend, vec![], ALL).await, Due::default());

    assert_eq!(status(backend, &ids[2]).await, Some(Status::Held));
}

/// A promoted row is new, and nothing else of it has changed. The answer says where it is.
pub async fn a_promoted_row_is_new_and_otherwise_the_same<B: Backend>(backend: &B) {
    let ids = emit_due(backend, [keyed("a"), free()]).await;
    let before = [stored(backend, &ids[0]).await, stored(backend, &ids[1]).await];

    let due = promote_all(backend).await;

    let mut rows: Vec<_> = due.rows.iter().map(said).collect();
    rows.sort();
    let expected = before.each_ref().map(|it| (it.seq, it.shard, it.key.clone()));
    assert_eq!((rows, due.next), (expected.to_vec(), None));
    for before in before {
        let id = before.event.as_ref().unwrap().event_id().clone();
        let after = stored(backend, &id).await;
        assert_eq!((before.status, after.status), (Status::Waiting, Status::New));
        assert_eq!((after.token, after.attempts), (before.token, 1));
        assert_eq!(after.available_at, before.available_at);
        assert_eq!(after.last_error, before.last_error);
    }
}

/// A row is promoted once, and stays new whatever the time.
pub async fn a_row_is_promoted_once<B: Backend>(backend: &B) {
    emit_due(backend, [keyed("a")]).await;
    assert_eq!(promote_all(backend).await.rows.len(), 1);

    assert_eq!(promote_all(backend).await, Due::default());
    assert_eq!(read_all(backend).await.len(), 1);
}

/// A row that is not due stays, and the answer has the time until it is due.
pub async fn a_row_that_is_not_due_keeps_waiting<B: Backend>(backend: &B) {
    let ids = emit(backend, [4, 9, 6].map(|hours| late("a", hours))).await;
    let due = promote_all(backend).await;
    assert_eq!((due.rows, due.next.map(hours)), (vec![], Some(4)));

    backend.age(&ids[0], HOUR * 4).await;

    let due = promote_all(backend).await;
    assert_eq!(seqs(&due), seqs_of(backend, &ids[..1]).await);
    // Where the clock was turned, two hours are left of the six.
    assert!(due.next.is_some_and(|next| [2, 6].contains(&hours(next))), "{:?}", due.next);
    assert_eq!(status(backend, &ids[1]).await, Some(Status::Waiting));
}

/// No more is promoted than asked for, what has been due for longest first, whatever its shard. As
/// long as there is more, it is due now.
pub async fn the_longest_overdue_row_is_promoted_first<B: Backend>(backend: &B) {
    let ids = emit(backend, [3, 1, 5, 2, 4].map(|hours| late(&hours.to_string(), hours))).await;
    for id in &ids {
        backend.age(id, HOUR * 6).await;
    }
    let at = seqs_of(backend, &ids).await;
    let all = shards(&*backend.store()).await;

    let mut pages = Vec::new();
    for _ in 0..3 {
        let due = promote(backend, all.clone(), 2).await;
        pages.push((seqs(&due), due.next.map(hours)));
    }

    let of = |mut at: Vec<Seq>| {
        at.sort();
        at
    };
    assert_eq!(pages[0], (of(vec![at[1], at[3]]), Some(0)));
    assert_eq!(pages[1], (of(vec![at[0], at[4]]), Some(0)));
    assert_eq!(pages[2], (vec![at[2]], None));
}

/// A page that takes all there is does not say that there is more.
pub async fn a_full_page_may_be_the_last_one<B: Backend>(backend: &B) {
    emit_due(backend, (0..4).map(|_| free())).await;
    emit_one(backend, free().deliver_after(HOUR)).await;
    let all = shards(&*backend.store()).await;

    let mut due = promote(backend, all.clone(), 4).await;
    assert_eq!(due.rows.len(), 4);
    if due.next == Some(Duration::ZERO) {
        due = promote(backend, all, 4).await;
        assert!(due.rows.is_empty(), "it was only not known");
    }

    assert_eq!(due.next.map(hours), Some(1));
}

/// Rows of other shards stay as they are, and do not say when the next one is due.
pub async fn only_the_shards_asked_for_are_promoted<B: Backend>(backend: &B) {
    let ids = emit_due(backend, (0..100).map(|_| free())).await;
    let shard = stored(backend, &ids[0]).await.shard;

    let due = promote(backend, vec![shard], ALL).await;

    assert!(!due.rows.is_empty() && due.rows.iter().all(|row| row.shard == shard));
    assert_eq!(due.next, None);
    for id in &ids {
        let stored = stored(backend, id).await;
        let expected = if stored.shard == shard { Status::New } else { Status::Waiting };
        assert_eq!(stored.status, expected);
    }
}

/// Many waiting rows are promoted in a few calls, each once.
pub async fn many_rows_are_promoted_page_by_page<B: Backend>(backend: &B) {
    let ids = emit_due(backend, (0..1500).map(|n| keyed(&(n % 300).to_string()))).await;
    let all = shards(&*backend.store()).await;

    let mut found = Vec::new();
    for _ in 0..20 {
        let due = promote(backend, all.clone(), 400).await;
        assert!(due.rows.len() <= 400);
        found.extend(seqs(&due));
        if due.next.is_none() {
            break;
        }
        assert_eq!(due.next, Some(Duration::ZERO), "after {} rows", found.len());
    }

    found.sort();
    assert_eq!(found, seqs_of(backend, &ids).await);
    assert_eq!(read_all(backend).await.len(), 1500);
}

/// A row that somebody has locked is left for later, the others go on, and nobody waits. The relay is
/// told to come again soon, and not at once.
pub async fn a_locked_row_is_promoted_later<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    let ids = emit_due(backend, [keyed("a"), keyed("a"), keyed("b"), free()]).await;
    emit_one(backend, free().deliver_after(HOUR)).await;
    let at = seqs_of(backend, &ids).await;
    let lock = backend.hold(Hold::Event(at[0])).await;

    let due = match select(pin!(promote_all(backend)), pin!(backend.blocked(1))).await {
        Either::Left((due, _)) => due,
        Either::Right(_) => panic!("the promotion waits for a row that it could pass"),
    };

    assert_eq!(seqs(&due), at[1..]);
    let soon = Duration::from_secs(1)..Duration::from_secs(60);
    assert!(due.next.is_some_and(|next| soon.contains(&next)), "{:?}", due.next);
    lock.commit().await;
    assert_eq!(seqs(&promote_all(backend).await), at[..1]);
}

/// A verdict under the token that a promoted row has is written.
pub async fn a_promoted_row_takes_a_verdict<B: Backend>(backend: &B) {
    let id = emit_due(backend, [keyed("a")]).await.remove(0);
    let waiting = stored(backend, &id).await;
    let owner = Owner::of_all(backend).await;
    owner.promote().await;
    let rows = owner.read().await;
    let read = row(&rows, &id);
    assert_eq!(read.token, waiting.token);

    assert_eq!(owner.settle_one(read, Verdict::Done).await.applied, [read.seq]);

    assert_eq!(status(backend, &id).await, Some(Status::Done));
}

/// A verdict that is repeated after its row was promoted applies once.
pub async fn a_repeated_verdict_on_a_promoted_row_applies_once<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let read = row(&rows, &id);
    assert_eq!(owner.settle_one(read, retry(Duration::ZERO)).await.applied, [read.seq]);
    owner.promote().await;

    assert!(owner.settle_one(read, retry(Duration::ZERO)).await.applied.is_empty());

    let stored = stored(backend, &id).await;
    assert_eq!((stored.status, stored.attempts), (Status::New, 1));
}

async fn promote<B: Backend>(backend: &B, shards: Vec<ShardId>, limit: u32) -> Due {
    backend.store().promote(&Promote { shards, limit }).await.unwrap()
}

fn late(key: &str, hours: u32) -> Envelope {
    keyed(key).deliver_after(HOUR * hours)
}

/// The `seq` of the promoted rows, which come in no order.
fn seqs(due: &Due) -> Vec<Seq> {
    let mut seqs: Vec<Seq> = due.rows.iter().map(|row| row.seq).collect();
    seqs.sort();
    seqs
}

fn said(row: &DueRow) -> (Seq, ShardId, Option<String>) {
    (row.seq, row.shard, row.key.as_deref().map(str::to_owned))
}

/// How many hours, rounded up.
fn hours(wait: Duration) -> u128 {
    wait.as_micros().div_ceil(HOUR.as_micros())
}
