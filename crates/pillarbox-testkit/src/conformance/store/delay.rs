//! Delay: rows that are there and not due yet.

use std::time::Duration;

use pillarbox::store::{Predecessor, Status};
use pillarbox::{Clock, SystemClock};

use crate::backend::Backend;
use crate::conformance::claimer::seqs;
use crate::conformance::owner::{
    HOUR, Owner, emit, emit_one, keyed, next_wait, promote_all, read_all, retry, row, seqs_of,
    stored,
};

/// A delayed row waits and is not read. What is behind it is, and says so.
pub async fn a_delayed_row_waits_and_is_not_read<B: Backend>(backend: &B) {
    let ids = emit(backend, [keyed("a").deliver_after(HOUR), keyed("a")]).await;

    let rows = read_all(backend).await;

    assert_eq!(seqs(&rows), seqs_of(backend, &ids[1..]).await);
    assert_eq!((rows[0].due_in, rows[0].before), (Duration::ZERO, Predecessor::Waiting));
    assert_eq!(stored(backend, &ids[0]).await.status, Status::Waiting);
    let due_in = next_wait(backend).await;
    assert!(due_in > HOUR / 2 && due_in <= HOUR, "{due_in:?}");
}

/// A delayed row is due when its time has come, and is read in order once it was promoted.
pub async fn a_delayed_row_becomes_due<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a").deliver_after(HOUR)).await;
    emit_one(backend, keyed("a")).await;

    backend.age(&id, HOUR).await;

    assert_eq!(read_all(backend).await.len(), 1, "it waits until it is promoted");
    promote_all(backend).await;
    let rows = read_all(backend).await;
    assert_eq!((rows.len(), rows[0].seq), (2, row(&rows, &id).seq));
    assert_eq!((rows[0].due_in, rows[0].status), (Duration::ZERO, Status::New));
    assert!(rows.iter().all(|row| row.before == Predecessor::Nothing && !row.is_early));
}

/// A moment that the caller gives is kept exactly; one in the past is due at once.
pub async fn a_moment_given_is_kept_to_the_microsecond<B: Backend>(backend: &B) {
    let soon = SystemClock.now().saturating_add(HOUR);
    let past = pillarbox::Timestamp::from_unix_micros(1_700_000_000_000_001);
    let ids = emit(backend, [keyed("a").deliver_at(soon), keyed("b").deliver_at(past)]).await;

    promote_all(backend).await;

    // The database's clock may differ a little from the caller's, who gave the moment.
    let due_in = next_wait(backend).await;
    assert!(due_in > HOUR / 2 && due_in < HOUR * 2, "due in {due_in:?}");
    let rows = read_all(backend).await;
    assert_eq!(seqs(&rows), seqs_of(backend, &ids[1..]).await);
    assert_eq!(rows[0].due_in, Duration::ZERO);
    assert_eq!(stored(backend, &ids[0]).await.available_at, soon);
    assert_eq!(stored(backend, &ids[1]).await.available_at, past);
}

/// A row to be retried is due when its backoff is over.
pub async fn a_retried_row_becomes_due<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    Owner::of_all(backend).await.settle_event(&id, retry(HOUR)).await;

    backend.age(&id, HOUR).await;

    assert_eq!(stored(backend, &id).await.status, Status::Waiting);
    promote_all(backend).await;
    let rows = read_all(backend).await;
    assert_eq!(row(&rows, &id).due_in, Duration::ZERO);
    assert_eq!((row(&rows, &id).status, row(&rows, &id).attempts), (Status::New, 1));
}
