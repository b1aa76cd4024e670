//! Delay: an event may be emitted now and delivered later.

use std::time::Duration;

use pillarbox::{Clock, Outbox, SystemClock, Timestamp};

use super::{begin, envelope};
use crate::backend::{Backend, OwnTx};
use crate::conformance::owner::{HOUR, read_all, row};

/// `deliver_after` counts by the database's clock.
pub async fn an_event_waits_for_its_delay<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let later = tx.emit_envelope(envelope(1).deliver_after(HOUR)).await.unwrap().unwrap();
    let now = tx.emit_envelope(envelope(2)).await.unwrap().unwrap();
    let never = envelope(3).deliver_after(Duration::MAX);
    let never = tx.emit_envelope(never).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    let rows = read_all(backend).await;
    assert!(is_about(row(&rows, &later).due_in, HOUR));
    assert_eq!(row(&rows, &now).due_in, Duration::ZERO);
    assert!(row(&rows, &never).due_in > HOUR * 24 * 365 * 50, "for ever is long");
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

    assert!(is_about(row(&read_all(backend).await, &id).due_in, HOUR));
    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!(stored.available_at, moment);
}

/// In the caller's own transaction the delay counts from the emit.
pub async fn a_delay_counts_from_the_insert_not_from_the_commit<B: Backend>(backend: &B) {
    let mut own = backend.own().await;
    own.place(1).await.unwrap();
    let delayed = envelope(1).deliver_after(HOUR);
    let id = own.emit(&Outbox::new(), delayed).await.unwrap().unwrap();
    own.commit().await.unwrap();

    let stored = backend.store().event(&id).await.unwrap().unwrap();
    let waits = stored.available_at.since(stored.created_at);
    assert!(waits + Duration::from_secs(1) > HOUR && waits < HOUR + Duration::from_secs(1));
}

fn is_about(due_in: Duration, expected: Duration) -> bool {
    due_in > expected / 2 && due_in < expected * 2
}
