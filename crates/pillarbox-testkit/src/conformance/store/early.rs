//! Early: rows that other programs write as new before their time, which are made to wait.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use pillarbox::store::{
    Budget, HeadsCursor, KeyRead, Pending, Predecessor, ReadHeads, ReadKeys, RowLease, Settled,
    Status,
};
use pillarbox::{EventId, Seq, ShardId, Token, Verdict};

use crate::backend::{Backend, Foreign, Hold, Need};
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    ALL, HOUR, Owner, dead, emit, emit_due, emit_one, free, keyed, next_wait, promote_all,
    read_all, retry, row, seqs_of, status, stored,
};
use crate::run::lacks;

/// An early row is read with its wait and says what it is, in whichever way it is read.
pub async fn an_early_row_is_marked_early<B: Backend>(backend: &B) {
    let id = early(backend).await;
    let stored = stored(backend, &id).await;
    let store = backend.store();

    let keys = vec![KeyRead { shard: stored.shard, key: stored.key.unwrap().into() }];
    let (limit, up_to, budget) = (ALL, Seq(i64::MAX), Budget::unlimited());
    let of_key = ReadKeys { keys, limit, budget: budget.clone() };
    let (shard, after) = (stored.shard, HeadsCursor::start());
    let of_shard = ReadHeads { shard, after, up_to, limit, budget };
    for rows in [
        read_all(backend).await,
        store.read_keys(&of_key).await.unwrap(),
        store.read_heads(&of_shard).await.unwrap().rows,
    ] {
        assert_eq!(seqs(&rows), [stored.seq]);
        assert_eq!((rows[0].status, rows[0].before), (Status::New, Predecessor::Nothing));
        assert!(rows[0].is_early && is_about_an_hour(rows[0].due_in), "{:?}", rows[0]);
    }
}

/// An early row whose time has come is an ordinary one: nobody has to promote it.
pub async fn an_early_row_becomes_due<B: Backend>(backend: &B) {
    let id = early(backend).await;

    backend.age(&id, HOUR).await;

    let rows = read_all(backend).await;
    assert_eq!((rows[0].due_in, rows[0].is_early), (Duration::ZERO, false));
    Owner::of_all(backend).await.settle_event(&id, Verdict::Done).await;
}

/// A row that is leased is no early one, whatever its time, until the lease has run out.
pub async fn a_leased_row_is_not_early<B: Backend>(backend: &B) {
    let due = emit_one(backend, keyed("b")).await;
    assert_eq!(Claimer::new(backend).await.claim().await.len(), 1);
    let rows = read_all(backend).await;
    assert!(!rows[0].due_in.is_zero() && !rows[0].is_early, "its time has come");
    Owner::of_all(backend).await.settle_event(&due, Verdict::Delete).await;

    let id = emit_one(backend, keyed("a")).await;
    backend.make_early(&id, HOUR * 10).await;
    assert_eq!(Claimer::new(backend).await.claim().await.len(), 1);
    let rows = read_all(backend).await;
    assert!(rows[0].due_in > HOUR * 9 && !rows[0].is_early, "{:?}", rows[0]);

    backend.age(&id, HOUR * 2).await;

    let rows = read_all(backend).await;
    assert!(rows[0].due_in > HOUR * 7 && rows[0].is_early, "{:?}", rows[0]);
}

/// A postponed row waits for its time under another token, and is promoted like any other.
pub async fn a_postponed_row_waits<B: Backend>(backend: &B) {
    let id = early(backend).await;
    let next = emit_one(backend, keyed("a")).await;
    let before = stored(backend, &id).await;

    assert_eq!(postpone(backend, &[lease(backend, &id).await]).await, 1);

    let after = stored(backend, &id).await;
    assert_eq!((after.status, after.token), (Status::Waiting, Token(before.token.0 + 1)));
    assert_eq!((after.attempts, after.available_at), (0, before.available_at));
    assert!(backend.store().audit_trail(id.as_str()).await.unwrap().is_empty(), "it did not fail");
    let at = seqs_of(backend, &[id.clone(), next]).await;
    assert_eq!(befores(&read_all(backend).await), [(at[1], Predecessor::Waiting)]);
    assert!(is_about_an_hour(next_wait(backend).await));
    assert!(Claimer::new(backend).await.claim().await.is_empty());

    backend.age(&id, HOUR).await;
    assert_eq!(promote_all(backend).await.rows.len(), 1);

    let free = [(at[0], Predecessor::Nothing), (at[1], Predecessor::Nothing)];
    assert_eq!(befores(&read_all(backend).await), free);
}

/// Another token, another shard and an unknown row are nothing, and neither is a row given twice.
pub async fn a_row_is_postponed_once_under_its_token<B: Backend>(backend: &B) {
    let id = early(backend).await;
    let right = lease(backend, &id).await;
    let token = RowLease { token: Token(right.token.0 + 1), ..right };
    let shard = RowLease { shard: ShardId(right.shard.0 ^ 1), ..right };
    let seq = RowLease { seq: Seq(right.seq.0 + 1000), ..right };

    assert_eq!(postpone(backend, &[]).await, 0);
    for wrong in [token, shard, seq] {
        assert_eq!(postpone(backend, &[wrong]).await, 0, "{wrong:?}");
    }
    let stored_before = stored(backend, &id).await;
    assert_eq!((stored_before.status, stored_before.token), (Status::New, right.token));

    assert_eq!(postpone(backend, &[right, right]).await, 1);
    assert_eq!(postpone(backend, &[right]).await, 0, "its token has moved on");
    let waiting = lease(backend, &id).await;
    assert_eq!(postpone(backend, &[waiting]).await, 0, "it waits already");
    assert_eq!(stored(backend, &id).await.token, waiting.token);
}

/// A row that can be delivered is left alone, as is one that was decided.
pub async fn a_due_row_is_not_postponed<B: Backend>(backend: &B) {
    let mut ids = vec![emit_one(backend, keyed("leased")).await];
    assert_eq!(Claimer::new(backend).await.claim().await.len(), 1);
    ids.extend(emit_due(backend, [keyed("promoted")]).await);
    promote_all(backend).await;
    ids.extend(emit_due(backend, [keyed("waiting")]).await);
    ids.extend(emit(backend, ["done", "dead", "new"].map(keyed)).await);
    let owner = Owner::of_all(backend).await;
    let read = owner.read().await;
    owner.settle_one(row(&read, &ids[3]), Verdict::Done).await;
    owner.settle_one(row(&read, &ids[4]), dead()).await;
    let mut rows = Vec::new();
    for id in &ids {
        rows.push(lease(backend, id).await);
    }

    assert_eq!(postpone(backend, &rows).await, 0);

    let (new, done) = (Status::New, Status::Done);
    let states = [new, new, Status::Waiting, done, Status::Dead, new];
    for ((id, state), row) in ids.iter().zip(states).zip(rows) {
        let stored = stored(backend, id).await;
        assert_eq!((stored.status, stored.token), (state, row.token));
    }
}

/// Of many rows, the early ones are postponed and counted.
pub async fn a_postponement_counts_its_rows<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..1000).map(|_| free())).await;
    for id in ids.iter().step_by(200) {
        backend.make_early(id, HOUR).await;
    }
    let rows = read_all(backend).await;
    let early = rows.iter().filter(|row| row.is_early).count() as u64;
    assert!(early >= 5);

    let leases: Vec<RowLease> = rows.iter().map(RowLease::from).collect();
    assert_eq!(postpone(backend, &leases).await, early);

    assert_eq!(backend.store().stats().await.unwrap().waiting, early);
}

/// A row that somebody has locked stays as it is, the others wait, and nobody waits for the lock.
pub async fn a_locked_row_is_not_postponed<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    let ids = emit(backend, (0..3).map(|_| free())).await;
    for id in &ids {
        backend.make_early(id, HOUR).await;
    }
    let rows: Vec<RowLease> = read_all(backend).await.iter().map(RowLease::from).collect();
    let lock = backend.hold(Hold::Event(rows[0].seq)).await;

    let postponed = match select(pin!(postpone(backend, &rows)), pin!(backend.blocked(1))).await {
        Either::Left((postponed, _)) => postponed,
        Either::Right(_) => panic!("the postponement waits for a row that it could pass"),
    };

    lock.commit().await;
    assert_eq!(postponed, 2);
    assert_eq!(seqs(&read_all(backend).await), [rows[0].seq]);
    assert_eq!(postpone(backend, &rows).await, 1);
}

/// A verdict under way from before a postponement is nothing, through the shard or on a claimed row.
pub async fn a_late_verdict_undoes_no_postponement<B: Backend>(backend: &B) {
    let id = early(backend).await;
    let owner = Owner::of_all(backend).await;
    let claimer = Claimer::new(backend).await;
    let claimed = claimer.claim().await;
    let read = owner.read().await.remove(0);
    assert_eq!(read.token, claimed[0].token);
    assert_eq!(postpone(backend, &[RowLease::from(&read)]).await, 1);

    for verdict in [Verdict::Done, Verdict::Delete, dead(), retry(Duration::ZERO)] {
        assert_eq!(owner.settle_one(&read, verdict.clone()).await, Settled::default());
        assert!(claimer.settle_one(&claimed[0], verdict).await.is_empty());
    }

    assert_eq!(status(backend, &id).await, Some(Status::Waiting));
    assert!(backend.store().audit_trail(id.as_str()).await.unwrap().is_empty());
}

/// An early row is claimed like any other and says what it is, so that its claimer postpones it.
pub async fn a_claimer_postpones_an_early_row<B: Backend>(backend: &B) {
    let id = early(backend).await;
    emit_one(backend, keyed("a")).await;
    let (claimer, other) = (Claimer::new(backend).await, Claimer::new(backend).await);

    let claimed = claimer.claim().await;

    assert_eq!(seqs(&claimed), seqs_of(backend, std::slice::from_ref(&id)).await);
    assert!(claimed[0].is_early && is_about_an_hour(claimed[0].due_in), "{:?}", claimed[0]);
    assert!(other.claim().await.is_empty(), "it is leased, and the head of its key");
    assert_eq!(postpone(backend, &[RowLease::from(&claimed[0])]).await, 1);
    assert!(claimer.renew(&claimed, HOUR).await.is_empty(), "its lease has ended");
    assert_eq!(claimer.release(&claimed).await, 0);
    assert!(other.claim().await.is_empty(), "its key waits for it");

    backend.age(&id, HOUR).await;
    promote_all(backend).await;

    let again = other.claim().await;
    assert_eq!(seqs(&again), seqs(&claimed));
    assert!(!again[0].is_early && !again[0].lapsed && again[0].due_in.is_zero());
    assert_eq!(again[0].token, Token(claimed[0].token.0 + 2), "a postponement and a claim");
}

/// Without order an early row is claimed too, with the rows behind it.
pub async fn without_order_an_early_row_is_claimed_too<B: Backend>(backend: &B) {
    let id = early(backend).await;
    let next = emit_one(backend, keyed("a")).await;

    let claimed = Claimer::unordered(backend).await.claim().await;

    let at = seqs_of(backend, &[id, next]).await;
    let early: Vec<_> = claimed.iter().map(|row| (row.seq, row.is_early)).collect();
    assert_eq!(early, [(at[0], true), (at[1], false)]);
}

/// A row that a program inserts with a time to come is never given out as due before that, and is
/// there when it has come.
pub async fn an_insert_by_another_program_is_not_early<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let payload = Some("7".to_owned());
    let row = Foreign { id: "later", payload, due_in: HOUR, ..Foreign::default() };
    backend.insert_foreign(&row).await;
    let id = EventId::new("later").unwrap();
    promote_all(backend).await;
    let is_held_back = |row: &Pending| row.is_early && is_about_an_hour(row.due_in);

    assert!(read_all(backend).await.iter().all(is_held_back));
    let claimer = Claimer::new(backend).await;
    let claimed = claimer.claim().await;
    assert!(claimed.iter().all(is_held_back));
    assert_eq!(backend.store().count_due(&claimer.shards).await.unwrap(), 0);
    let leases: Vec<RowLease> = claimed.iter().map(RowLease::from).collect();
    assert_eq!(postpone(backend, &leases).await, claimed.len() as u64);

    backend.age(&id, HOUR).await;
    promote_all(backend).await;

    let rows = read_all(backend).await;
    assert_eq!((rows.len(), rows[0].due_in, rows[0].is_early), (1, Duration::ZERO, false));
}

/// An event of key `a` that is new, an hour before its time.
async fn early<B: Backend>(backend: &B) -> EventId {
    let id = emit_one(backend, keyed("a")).await;
    backend.make_early(&id, HOUR).await;
    id
}

/// The row of an event as it is.
async fn lease<B: Backend>(backend: &B, id: &EventId) -> RowLease {
    let stored = stored(backend, id).await;
    RowLease { shard: stored.shard, seq: stored.seq, token: stored.token }
}

async fn postpone<B: Backend>(backend: &B, rows: &[RowLease]) -> u64 {
    backend.store().postpone(rows).await.unwrap()
}

fn is_about_an_hour(wait: Duration) -> bool {
    wait > HOUR / 2 && wait <= HOUR
}

fn befores(rows: &[Pending]) -> Vec<(Seq, Predecessor)> {
    rows.iter().map(|row| (row.seq, row.before)).collect()
}
