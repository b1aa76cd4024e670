//! Delay: rows that are there and not due yet.

use std::time::Duration;

use pillarbox::store::Status;
use pillarbox::{Clock, SystemClock};

use crate::backend::Backend;
use crate::conformance::owner::{HOUR, Owner, emit, emit_one, id_of, keyed, read_all, retry, row};

/// A delayed row is read in its place, with the time it still waits.
pub async fn a_delayed_row_is_read_with_its_wait<B: Backend>(backend: &B) {
    let ids = emit(backend, [keyed("a").deliver_after(HOUR), keyed("a")]).await;

    let rows = read_all(backend).await;

    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), [&ids[0], &ids[1]]);
    assert!(rows[0].due_in > HOUR / 2 && rows[0].due_in <= HOUR, "{:?}", rows[0].due_in);
    assert_eq!(rows[1].due_in, Duration::ZERO);
    assert_eq!(rows[0].status, Status::New);
}

/// A delayed row is due when its time has come.
pub async fn a_delayed_row_becomes_due<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a").deliver_after(HOUR)).await;

    backend.age(&id, HOUR).await;

    assert_eq!(row(&read_all(backend).await, &id).due_in, Duration::ZERO);
}

/// A moment that the caller gives is kept exactly; one in the past is due at once.
pub async fn a_moment_given_is_kept_to_the_microsecond<B: Backend>(backend: &B) {
    let soon = SystemClock.now().saturating_add(HOUR);
    let past = pillarbox::Timestamp::from_unix_micros(1_700_000_000_000_001);
    let ids = emit(backend, [keyed("a").deliver_at(soon), keyed("b").deliver_at(past)]).await;

    let store = backend.store();
    let rows = read_all(backend).await;

    // The database's clock may differ a little from the caller's, who gave the moment.
    let due_in = row(&rows, &ids[0]).due_in;
    assert!(due_in > HOUR / 2 && due_in < HOUR * 2, "due in {due_in:?}");
    assert_eq!(row(&rows, &ids[1]).due_in, Duration::ZERO);
    assert_eq!(store.event(&ids[0]).await.unwrap().unwrap().available_at, soon);
    assert_eq!(store.event(&ids[1]).await.unwrap().unwrap().available_at, past);
}

/// A row to be retried is due when its backoff is over.
pub async fn a_retried_row_becomes_due<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    Owner::of_all(backend).await.judge_id(&id, retry(HOUR)).await;

    backend.age(&id, HOUR).await;

    let rows = read_all(backend).await;
    assert_eq!(row(&rows, &id).due_in, Duration::ZERO);
    assert_eq!(row(&rows, &id).status, Status::Waiting);
}
