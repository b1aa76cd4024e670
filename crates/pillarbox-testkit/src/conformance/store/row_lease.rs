//! Leases of rows: prolonged and given back by the hands that have them.

use std::pin::pin;

use futures_util::future::{Either, select};
use pillarbox::store::{Pending, RowLease, Suspects};
use pillarbox::{Token, Verdict};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{HOUR, emit, emit_one, free, id_of, keyed, retry};
use crate::run::lacks;

/// A renewed lease holds past the end that the claim gave it, under the same token.
pub async fn a_renewed_lease_lives_on<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (holder, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = holder.claim().await;

    assert_eq!(holder.renew(&rows, HOUR * 10).await, seqs(&rows));
    backend.age(&id, HOUR * 2).await;

    assert!(other.claim().await.is_empty(), "it was due by the first lease");
    assert_eq!(token(backend, &rows[0]).await, rows[0].token);
}

/// A renewal counts from now, also one that is shorter than what was left.
pub async fn a_renewal_counts_from_now<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (holder, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = holder.claim().await;
    holder.renew(&rows, HOUR * 10).await;

    holder.renew(&rows, HOUR).await;
    backend.age(&id, HOUR * 2).await;

    assert_eq!(seqs(&other.claim().await), seqs(&rows));
}

/// A lease that ran out is renewed as long as nobody took the row.
pub async fn a_lapsed_lease_is_renewed_until_someone_takes<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (late, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = late.claim().await;
    backend.age(&id, HOUR * 2).await;

    assert_eq!(late.renew(&rows, HOUR).await, seqs(&rows));

    assert!(other.claim().await.is_empty(), "the lease lives again");
}

/// A row that another transaction has locked keeps its lease, and the others are renewed meanwhile.
pub async fn a_locked_row_keeps_no_other_from_being_renewed<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    emit(backend, (0..3).map(|_| free())).await;
    let holder = Claimer::new(backend).await;
    let rows = holder.claim().await;
    let lock = backend.hold(Hold::Event(rows[0].seq)).await;

    let renewed = match select(pin!(holder.renew(&rows, HOUR * 10)), pin!(backend.blocked(1))).await
    {
        Either::Left((renewed, _)) => renewed,
        Either::Right(_) => panic!("the renewal waits for a row that it could pass"),
    };

    let mut others = seqs(&rows[1..]);
    others.sort_unstable();
    let mut renewed = renewed;
    renewed.sort_unstable();
    assert_eq!(renewed, others);
    let leases: Vec<RowLease> = rows.iter().map(RowLease::from).collect();
    assert_eq!(holder.store.locked(&leases).await.unwrap(), [rows[0].seq]);
    lock.commit().await;
    assert_eq!(holder.renew(&rows, HOUR * 10).await.len(), 3);
}

/// A lease that another took is lost, and the other's is not touched.
pub async fn a_lease_that_someone_took_is_not_renewed<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (late, heir) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let lost = late.claim().await;
    backend.age(&id, HOUR * 2).await;
    let taken = heir.claim().await;

    assert!(late.renew(&lost, HOUR * 10).await.is_empty());
    assert!(late.renew(&taken, HOUR * 10).await.is_empty(), "the right token, another's hands");

    backend.age(&id, HOUR * 2).await;
    assert_eq!(Claimer::new(backend).await.claim().await.len(), 1, "it ends when the heir's does");
}

/// An owner that claimed a row again has another lease; the old one is not renewed.
pub async fn an_old_token_is_not_renewed<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let claimer = Claimer::new(backend).await;
    let old = claimer.claim().await;
    backend.age(&id, HOUR * 2).await;
    let new = claimer.claim().await;

    assert!(claimer.renew(&old, HOUR).await.is_empty());
    assert_eq!(claimer.renew(&new, HOUR).await, seqs(&new));
}

/// Of many, those are renewed that are still there; the answer names them.
pub async fn a_renewal_names_what_it_kept<B: Backend>(backend: &B) {
    emit(backend, (0..5).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    claimer.judge(&rows[1], Verdict::Done).await;
    claimer.judge(&rows[2], retry(HOUR)).await;
    claimer.release(&rows[3..4]).await;

    let mut kept = claimer.renew(&rows, HOUR).await;

    kept.sort();
    let mut expected = vec![rows[0].seq, rows[4].seq];
    expected.sort();
    assert_eq!(kept, expected);
}

/// A row that is given back is due at once for anyone, and its old token is worth nothing.
pub async fn a_released_row_is_due_at_once<B: Backend>(backend: &B) {
    emit_one(backend, keyed("a")).await;
    let (first, other) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = first.claim().await;

    assert_eq!(first.release(&rows).await, 1);

    let again = other.claim().await;
    assert_eq!(seqs(&again), seqs(&rows));
    assert_eq!(again[0].token, Token(rows[0].token.0 + 2), "a release and a claim");
    assert!(!again[0].lapsed, "nobody died of it");
    assert_eq!(again[0].attempts, 0, "nothing was tried");
    assert!(first.renew(&rows, HOUR).await.is_empty());

    let counted = vec![RowLease::from(&again[0])];
    backend.store().suspect(&Suspects { rows: counted, below: 1 }).await.unwrap();
    other.release(&again).await;
    assert!(first.claim().await[0].lapsed, "somebody may have: it was counted");
}

/// A row is given back once.
pub async fn a_row_is_released_once<B: Backend>(backend: &B) {
    emit(backend, (0..3).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;

    assert_eq!(claimer.release(&rows[..2]).await, 2);
    assert_eq!(claimer.release(&rows).await, 1);
    assert_eq!(claimer.release(&rows).await, 0);
}

/// Nobody gives back what another holds, nor under another token.
pub async fn a_row_is_released_by_its_owner_only<B: Backend>(backend: &B) {
    emit_one(backend, keyed("a")).await;
    let (holder, stranger) = (Claimer::new(backend).await, Claimer::new(backend).await);
    let rows = holder.claim().await;
    let mut old = rows.clone();
    old[0].token = Token(rows[0].token.0 - 1);

    assert_eq!(stranger.release(&rows).await, 0);
    assert_eq!(holder.release(&old).await, 0);

    assert!(stranger.claim().await.is_empty(), "it is still leased");
    assert_eq!(holder.renew(&rows, HOUR).await, seqs(&rows));
}

/// No rows are no error, and neither are rows that do not exist.
pub async fn no_rows_are_no_error<B: Backend>(backend: &B) {
    emit_one(backend, free()).await;
    let claimer = Claimer::new(backend).await;
    let mut rows = claimer.claim().await;
    assert!(claimer.renew(&[], HOUR).await.is_empty());
    assert_eq!(claimer.release(&[]).await, 0);

    rows[0].seq.0 += 1000;

    assert!(claimer.renew(&rows, HOUR).await.is_empty());
    assert_eq!(claimer.release(&rows).await, 0);
}

/// Two thousand leases are renewed and given back in one call each.
pub async fn two_thousand_leases_go_in_one_call<B: Backend>(backend: &B) {
    emit(backend, (0..2000).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    assert_eq!(rows.len(), 2000);

    assert_eq!(claimer.renew(&rows, HOUR).await.len(), 2000);
    assert_eq!(claimer.release(&rows).await, 2000);

    assert_eq!(claimer.claim().await.len(), 2000);
}

async fn token<B: Backend>(backend: &B, row: &Pending) -> Token {
    backend.store().event(id_of(row)).await.unwrap().unwrap().token
}
