//! Waiting: rows whose time has not come are left out, and what is behind them says so.

use pillarbox::store::{
    Budget, HeadsCursor, KeyRead, Pending, Predecessor, ReadHeads, ReadKeys, Status,
};
use pillarbox::{EventId, Seq};

use crate::backend::Backend;
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    ALL, HOUR, Owner, emit, emit_due, emit_one, free, held, keyed, promote_all, read_above,
    read_all, retry, row, seqs_of, status, stored,
};

/// A row that waits for its time or for an operator is in no read and in no claim.
pub async fn a_waiting_row_has_no_owner<B: Backend>(backend: &B) {
    let ids = waiting(backend).await;

    assert!(read_all(backend).await.is_empty());
    for id in &ids {
        assert!(read_key(backend, id).await.is_empty());
        assert!(read_head(backend, id).await.is_empty());
    }
    assert!(Claimer::new(backend).await.claim().await.is_empty());
    assert!(Claimer::unordered(backend).await.claim().await.is_empty());
}

/// A row behind one that waits says so, in whichever way it is read.
pub async fn a_row_behind_a_waiting_one_is_marked<B: Backend>(backend: &B) {
    let older = waiting(backend).await;
    let younger = emit(backend, KEYS.map(keyed)).await;
    let at = seqs_of(backend, &younger).await;

    let rows = read_all(backend).await;

    let mut found = seqs(&rows);
    found.sort();
    assert_eq!(found, at);
    assert!(rows.iter().all(|row| row.before == Predecessor::Waiting), "{rows:?}");
    for (id, at) in older.iter().zip(at) {
        assert_eq!(befores(&read_key(backend, id).await), [(at, Predecessor::Waiting)]);
        assert_eq!(befores(&read_head(backend, id).await), [(at, Predecessor::Waiting)]);
    }
}

/// A row in front of one that waits may start, and so may those of other keys and of none.
pub async fn a_row_before_a_waiting_one_is_free<B: Backend>(backend: &B) {
    let front = emit_one(backend, keyed("a")).await;
    emit(backend, [keyed("a").deliver_after(HOUR), free().deliver_after(HOUR)]).await;
    let others = emit(backend, [keyed("b"), keyed("A"), free()]).await;
    let behind = emit_one(backend, keyed("a")).await;

    let rows = read_all(backend).await;

    let before = |at: Seq| rows.iter().find(|row| row.seq == at).unwrap().before;
    for at in seqs_of(backend, &[vec![front], others].concat()).await {
        assert_eq!(before(at), Predecessor::Nothing);
    }
    assert_eq!(before(stored(backend, &behind).await.seq), Predecessor::Waiting);
}

/// Once it was promoted, a row and those behind it come in their order, and nothing is before them.
pub async fn a_key_goes_on_after_a_promotion<B: Backend>(backend: &B) {
    let head = emit_due(backend, [keyed("a")]).await.remove(0);
    let tail = emit(backend, [keyed("a"), keyed("a")]).await;
    let at = seqs_of(backend, &[vec![head.clone()], tail].concat()).await;

    promote_all(backend).await;

    let free: Vec<_> = at.iter().map(|at| (*at, Predecessor::Nothing)).collect();
    assert_eq!(befores(&read_all(backend).await), free);
    assert_eq!(befores(&read_key(backend, &head).await), free);
    assert_eq!(befores(&read_head(backend, &head).await), free[..1]);
}

/// Above a floor, a row behind a new one and one that waits is behind the one that waits, wherever
/// that is.
pub async fn a_row_behind_both_is_behind_the_waiting_one<B: Backend>(backend: &B) {
    let below = emit(backend, [keyed("a"), keyed("b").deliver_after(HOUR), keyed("b")]).await;
    let floor = *seqs_of(backend, &below).await.last().unwrap();
    let above = [keyed("a").deliver_after(HOUR), keyed("a"), keyed("b"), keyed("c")];
    let above = emit(backend, above).await;
    let at = seqs_of(backend, &above).await;

    let mut rows = befores(&read_above(backend, floor).await);

    rows.sort_by_key(|(seq, _)| *seq);
    let expected = [
        (at[1], Predecessor::Waiting),
        (at[2], Predecessor::Waiting),
        (at[3], Predecessor::Nothing),
    ];
    assert_eq!(rows, expected);
}

/// Above a floor, a row says that an older new one of its key is at or below it; a promoted row is
/// one of those.
pub async fn a_promoted_row_below_the_floor_is_unread<B: Backend>(backend: &B) {
    let older = emit_due(backend, [keyed("a")]).await.remove(0);
    let floor = stored(backend, &older).await.seq;
    let younger = emit_one(backend, keyed("a")).await;
    let at = stored(backend, &younger).await.seq;
    assert_eq!(befores(&read_above(backend, floor).await), [(at, Predecessor::Waiting)]);

    promote_all(backend).await;
    assert_eq!(befores(&read_above(backend, floor).await), [(at, Predecessor::Unread)]);
    assert_eq!(befores(&read_above(backend, Seq(floor.0 - 1)).await).len(), 2);

    Owner::of_all(backend).await.settle_event(&older, held()).await;
    assert_eq!(befores(&read_above(backend, floor).await), [(at, Predecessor::Waiting)]);
}

/// A verdict that puts the head off stops its key at once, also for rows that were read before.
pub async fn a_head_that_is_put_off_stops_its_key<B: Backend>(backend: &B) {
    let ids = emit(backend, ["a", "a"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    assert_eq!(befores(&owner.read().await).len(), 2);

    owner.settle_event(&ids[0], retry(HOUR)).await;

    let at = seqs_of(backend, &ids).await;
    assert_eq!(befores(&owner.read().await), [(at[1], Predecessor::Waiting)]);
    assert!(Claimer::new(backend).await.claim().await.is_empty());
}

const KEYS: [&str; 4] = ["delayed", "retried", "due", "held"];

/// An event that is delayed, one that is to be retried in an hour, one that is to be retried now and
/// was not promoted, and one that is held.
async fn waiting<B: Backend>(backend: &B) -> Vec<EventId> {
    let mut ids = emit(backend, [keyed(KEYS[0]).deliver_after(HOUR), keyed(KEYS[1])]).await;
    ids.extend(emit_due(backend, [keyed(KEYS[2])]).await);
    ids.push(emit_one(backend, keyed(KEYS[3])).await);
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    for (id, verdict) in [(&ids[1], retry(HOUR)), (&ids[3], held())] {
        let row = row(&rows, id);
        assert_eq!(owner.settle_one(row, verdict).await.applied, [row.seq]);
    }
    for id in &ids[..3] {
        assert_eq!(status(backend, id).await, Some(Status::Waiting));
    }
    ids
}

/// Reads the key of an event.
async fn read_key<B: Backend>(backend: &B, id: &EventId) -> Vec<Pending> {
    let stored = stored(backend, id).await;
    let keys = vec![KeyRead { shard: stored.shard, key: stored.key.unwrap().into() }];
    backend
        .store()
        .read_keys(&ReadKeys { keys, limit: ALL, budget: Budget::unlimited() })
        .await
        .unwrap()
}

/// Reads the head of an event's key.
async fn read_head<B: Backend>(backend: &B, id: &EventId) -> Vec<Pending> {
    let stored = stored(backend, id).await;
    let after = HeadsCursor::start();
    let read = ReadHeads {
        shard: stored.shard,
        after,
        up_to: Seq(i64::MAX),
        limit: ALL,
        budget: Budget::unlimited(),
    };
    let mut rows = backend.store().read_heads(&read).await.unwrap().rows;
    rows.retain(|row| row.key.as_deref() == stored.key.as_deref());
    rows
}

fn befores(rows: &[Pending]) -> Vec<(Seq, Predecessor)> {
    rows.iter().map(|row| (row.seq, row.before)).collect()
}
