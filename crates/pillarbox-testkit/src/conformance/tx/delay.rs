//! Delay: an event may be emitted now and delivered later.

use std::time::Duration;

use pillarbox::store::{Status, StoredEvent};
use pillarbox::{Clock, Outbox, SystemClock, Timestamp};

use super::{begin, envelope};
use crate::backend::{Backend, OwnTx};
use crate::conformance::owner::{HOUR, id_of, next_wait, promote_all, read_all, stored};

/// `deliver_after` counts by the database's clock.
pub async fn an_event_waits_for_its_delay<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let later = tx.emit_envelope(envelope(1).deliver_after(HOUR)).await.unwrap().unwrap();
    let now = tx.emit_envelope(envelope(2)).await.unwrap().unwrap();
    let never = envelope(3).deliver_after(Duration::MAX);
    let never = tx.emit_envelope(never).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert!(is_about(next_wait(backend).await, HOUR));
    assert!(is_about(wait(&stored(backend, &later).await), HOUR));
    assert!(wait(&stored(backend, &never).await) > HOUR * 24 * 365 * 50, "for ever is long");
    let rows = read_all(backend).await;
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), [&now]);
    assert_eq!(rows[0].due_in, Duration::ZERO);
}

/// A delay of nothing and a moment that is over are no delay.
pub async fn an_event_may_be_due_at_once<B: Backend>(backend: &B) {
    let now = SystemClock.now().unix_micros();
    let mut tx = begin(backend).await;
    for due in [
        envelope(1).deliver_after(Duration::ZERO),
        envelope(2).deliver_at(Timestamp::from_unix_micros(now - 3_600_000_000)),
    ] {
        tx.emit_envelope(due).await.unwrap();
    }
    tx.commit().await.unwrap();

    // Whether a moment is over is for the database to say.
    promote_all(backend).await;
    let rows = read_all(backend).await;
    assert_eq!(rows.len(), 2);
    assert!(rows.iter().all(|row| row.due_in == Duration::ZERO));
}

/// `deliver_at` is the caller's moment.
pub async fn an_event_waits_for_its_moment<B: Backend>(backend: &B) {
    let moment = SystemClock.now().saturating_add(HOUR);
    let mut tx = begin(backend).await;
    let id = tx.emit_envelope(envelope(1).deliver_at(moment)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    assert!(is_about(next_wait(backend).await, HOUR));
    assert!(read_all(backend).await.is_empty());
    let stored = stored(backend, &id).await;
    assert_eq!((stored.status, stored.available_at), (Status::Waiting, moment));
}

/// In the caller's own transaction the delay counts from the emit.
pub async fn a_delay_counts_from_the_insert_not_from_the_commit<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.place_order(1).await.unwrap();
    let delayed = envelope(1).deliver_after(HOUR);
    let id = own.emit(&Outbox::new(), delayed).await.unwrap().unwrap();
    own.commit().await.unwrap();

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    let waits = stored.available_at.since(stored.created_at);
    assert!(waits + Duration::from_secs(1) > HOUR && waits < HOUR + Duration::from_secs(1));
}

fn wait(stored: &StoredEvent) -> Duration {
    assert_eq!(stored.status, Status::Waiting);
    stored.available_at.since(stored.created_at)
}

fn is_about(due_in: Duration, expected: Duration) -> bool {
    due_in > expected / 2 && due_in < expected * 2
}
