//! Rows that are born under their writer's lease: one delivery, whoever is late.

use std::time::Duration;

use pillarbox::store::Status;
use pillarbox::telemetry::RelayEvent;
use pillarbox::tx::LocalLease;
use pillarbox::{Envelope, EventId, Failure, Hook, RelaySettings, Token};
use pillarbox_testkit::Backend;
use pillarbox_testkit::fake::ManualClock;

use super::fixture::{ControlledRelay, Deliveries, HOUR, commit, count, event, event_with, still};
use crate::fixture::{free, wait_for};
use crate::telemetry::soon;

/// More than a delivery may take, and far less than the lease: a shard may be delivered from with
/// what is left then, a row may not.
const LONG: Duration = Duration::from_secs(45 * 60);

fn brief() -> RelaySettings {
    let delivery_timeout = Duration::from_secs(20 * 60);
    RelaySettings { lease: HOUR, delivery_timeout, ..still() }
}

/// H4: a writer's process pauses in its delivery until the row's lease is over; the shard's owner
/// delivers, and the writer's verdict lands on that delivery. R8: the owner takes the row by a
/// write, which moves the token.
pub(crate) async fn a_lapsed_row_is_delivered_only_after_it_was_taken_by_a_write<B: Backend>(
    backend: &B,
) {
    let (mut owners_deliveries, listeners) = Deliveries::new([1]);
    let owner = ControlledRelay::start(backend, listeners, |relay| relay).await.with_shards().await;
    let (mut writers_deliveries, listeners) = Deliveries::new([1]);
    let writer = ControlledRelay::start(backend, listeners, |relay| relay.settings(brief())).await;
    let ids = commit(backend, &writer.outbox, [free(1)]).await;
    assert_eq!(writers_deliveries.next(1).await, [1]);

    backend.age(&ids[0], HOUR * 2).await;
    owner.handle.wake();
    assert_eq!(owners_deliveries.next(1).await, [1]);
    writers_deliveries.answer(1, Err(Failure::dead("too late")));
    writer.is_fenced().await;

    let stored = event(backend, &ids[0]).await;
    assert_eq!((stored.status, stored.token), (Status::New, Token(2)));
    owners_deliveries.answer(1, Ok(()));
    let stored = event_with(backend, &ids[0], Status::Done).await;
    assert_eq!((stored.attempts, stored.last_error), (0, None));
    writer.leave().await;
    owner.leave().await;
}

/// H8: an event waits in the queue until its row's lease is nearly over, and would still be in
/// delivery when another takes the row. R8: it starts only while the lease lasts for a whole
/// delivery.
pub(crate) async fn a_row_whose_lease_is_too_short_for_a_delivery_is_given_back<B: Backend>(
    backend: &B,
) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let (clock, alone) = (ManualClock::new(), RelaySettings { workers: count(1), ..brief() });
    let configure = |relay: pillarbox::Relay| relay.settings(alone).clock(clock.clone());
    let relay = ControlledRelay::start(backend, listeners, configure).await.with_shards().await;
    commit(backend, &relay.outbox, [free(1)]).await;
    assert_eq!(deliveries.next(1).await, [1]);
    let waiting = commit(backend, &relay.outbox, [free(2)]).await;

    clock.advance(LONG);
    deliveries.answer(1, Ok(()));
    soon(&relay.probe, |seen| matches!(seen, RelayEvent::NotStarted { .. })).await;

    given_back(backend, &waiting[0]).await;
    relay.handle.wake();
    assert_eq!(deliveries.next(1).await, [2], "an ordinary row, under the lease of its shard");
    event_with(backend, &waiting[0], Status::Done).await;
    relay.leave().await;
    assert!(deliveries.is_idle());
}

/// H8: a business transaction that commits after its rows' lease was used up; its process would
/// deliver, and so would the shard's owner. R8: the deadline counts from before the insert.
pub(crate) async fn a_commit_that_outlasts_its_rows_lease_is_left_to_the_owner<B: Backend>(
    backend: &B,
) {
    let (mut owners_deliveries, listeners) = Deliveries::new([]);
    let owner = ControlledRelay::start(backend, listeners, |relay| relay).await.with_shards().await;
    let (mut writers_deliveries, listeners) = Deliveries::new([]);
    let clock = ManualClock::new();
    let configure = |relay: pillarbox::Relay| relay.settings(brief()).clock(clock.clone());
    let writer = ControlledRelay::start(backend, listeners, configure).await;

    let slow = writer.outbox.clone().hook(Passing(clock));
    let ids = commit(backend, &slow, [free(1)]).await;

    soon(&writer.probe, |seen| matches!(seen, RelayEvent::NotStarted { .. })).await;
    given_back(backend, &ids[0]).await;
    owner.handle.wake();
    assert_eq!(owners_deliveries.next(1).await, [1]);
    event_with(backend, &ids[0], Status::Done).await;
    writer.leave().await;
    owner.leave().await;
    assert!(writers_deliveries.is_idle() && owners_deliveries.is_idle());
}

/// R8: a stop gives queued events back: the next relay need not wait for the end of the lease.
pub(crate) async fn queued_events_are_given_back_at_a_stop<B: Backend>(backend: &B) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    // Deliveries start for a moment only, and may take their time.
    let drain = still().delivery_timeout + Duration::from_millis(100);
    let alone = RelaySettings { workers: count(1), drain, ..still() };
    let relay = ControlledRelay::start(backend, listeners, |relay| relay.settings(alone)).await;
    commit(backend, &relay.outbox, [free(1)]).await;
    assert_eq!(deliveries.next(1).await, [1]);
    let waiting = commit(backend, &relay.outbox, [free(2)]).await;

    let leaving = tokio::spawn(relay.leave());
    given_back(backend, &waiting[0]).await;
    deliveries.answer(1, Ok(()));
    leaving.await.unwrap();

    assert!(deliveries.is_idle());
    let (mut deliveries, listeners) = Deliveries::new([]);
    let successor = ControlledRelay::start(backend, listeners, |relay| relay).await;
    assert_eq!(deliveries.next(1).await, [2]);
    successor.leave().await;
}

/// Waits until a row is no longer its writer's.
async fn given_back<B: Backend>(backend: &B, id: &EventId) {
    wait_for(async || (event(backend, id).await.token != LocalLease::TOKEN).then_some(())).await;
}

/// Time that passes between the insert and the commit.
struct Passing(ManualClock);

impl Hook for Passing {
    fn after_write(&self, _: &[Envelope]) {
        self.0.advance(LONG);
    }
}
