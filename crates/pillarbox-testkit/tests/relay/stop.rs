//! A graceful stop: it delivers what was committed before, and reports what is left.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimMode, DeliveryMode, Status};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, Relay, RelaySettings, StopSummary};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore, Side};
use tokio::sync::Semaphore;

use crate::fixture::{ALWAYS, Script, TestDatabase, free, keyed, next, quick, relay, wait_for};
use crate::local_queue::write_and_die;
use crate::lock::due_in;
use crate::rows::Gate;
use crate::telemetry::soon;

const HOUR: Duration = Duration::from_secs(3600);
const CLEAN: StopSummary = StopSummary { abandoned: 0, left: Some(0) };

/// Only a stop can find anything: polls and sweeps are an hour away.
fn settings(claim: ClaimMode) -> RelaySettings {
    RelaySettings { claim, poll: HOUR, sweep: HOUR, drain: Duration::from_secs(60), ..quick() }
}

/// Whichever way they would have taken: from memory, by a wake, or by a poll.
pub(crate) async fn events_committed_before_the_stop_are_delivered(
    db: &TestDatabase,
    claim: ClaimMode,
) {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners).settings(settings(claim));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1), keyed("k", 2), keyed("k", 3)]).await;
    db.commit_unseen(&outbox, keyed("k", 4)).await;
    db.commit(&Outbox::new(), vec![keyed("k", 5), free(6)]).await;
    let summary = handle.stop().await.unwrap();

    let mut numbers = next(&mut received, 6).await;
    let of_key: Vec<i64> = numbers.iter().copied().filter(|it| (2..=5).contains(it)).collect();
    assert_eq!(of_key, [2, 3, 4, 5]);
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2, 3, 4, 5, 6]);
    assert_eq!(summary, CLEAN);
    let stats = db.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.waiting, stats.owners), (0, 0, 0));
}

/// More than fits into memory at a time.
pub(crate) async fn a_backlog_is_delivered_whole(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let batch = NonZeroU32::new(64).unwrap();
    let relay =
        relay(db, listeners).settings(RelaySettings { batch, ..settings(ClaimMode::Shards) });
    let handle = relay.spawn().await.unwrap();

    for first in [0, 300] {
        let events = (first..first + 300).map(|number| match number % 3 {
            0 => free(number),
            1 => keyed("one", number),
            _ => keyed(&number.to_string(), number),
        });
        db.commit(&Outbox::new(), events.collect()).await;
    }
    let summary = handle.stop().await.unwrap();

    let mut numbers = next(&mut received, 600).await;
    let of_key: Vec<i64> = numbers.iter().copied().filter(|it| it % 3 == 1).collect();
    assert!(of_key.is_sorted(), "{of_key:?}");
    numbers.sort_unstable();
    assert_eq!(numbers, (0..600).collect::<Vec<_>>());
    assert_eq!(summary, CLEAN);
}

/// A delayed event, one that waits for a retry, a held one, and what is behind them.
pub(crate) async fn events_that_are_not_due_stay(db: &TestDatabase, claim: ClaimMode) {
    let (listeners, mut received) = Script::default().fail(3, ALWAYS).fail(5, ALWAYS).listeners();
    let backoff = pillarbox::Backoff::new(HOUR, HOUR);
    let relay = relay(db, listeners).retry(backoff).settings(settings(claim));
    let handle = relay.spawn().await.unwrap();

    let delayed = |event: Envelope| event.deliver_after(HOUR);
    let events = vec![
        delayed(free(1)),
        delayed(keyed("late", 2)),
        keyed("late", 20),
        keyed("failing", 3),
        keyed("failing", 30),
        free(4),
        free(5),
    ];
    let ids = db.commit(&Outbox::new(), events).await;
    let summary = handle.stop().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [4]);
    assert!(received.try_recv().is_err(), "the others wait");
    assert_eq!(summary, CLEAN, "nothing of that is due");
    for (id, status) in ids.iter().zip([
        Status::Waiting,
        Status::Waiting,
        Status::New,
        Status::Waiting,
        Status::New,
        Status::Done,
        Status::Waiting,
    ]) {
        db.event_with(id, status).await;
    }
}

/// A delivery that takes longer than the stop allows, and events that it keeps from starting.
pub(crate) async fn abandoned_and_remaining_events_are_counted(
    db: &TestDatabase,
    claim: ClaimMode,
) {
    let started = Arc::new(Semaphore::new(0));
    let starts = Arc::clone(&started);
    let listeners = Listeners::new().fallback(move |_: Envelope, _: Cx| {
        starts.add_permits(1);
        std::future::pending::<Result<(), Failure>>()
    });
    let settings = RelaySettings {
        workers: NonZeroU32::MIN,
        lease: HOUR,
        delivery_timeout: Duration::from_secs(600),
        // Deliveries start in the first half, and nothing else needs the second one.
        drain: Duration::from_secs(4),
        ..settings(claim)
    };
    let handle = relay(db, listeners).settings(settings).spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![free(1), keyed("a", 2), keyed("a", 3), free(4)]).await;
    db.commit(&Outbox::new(), vec![free(5).deliver_after(HOUR)]).await;
    handle.wake();
    started.acquire().await.unwrap().forget();

    let summary = handle.stop().await.unwrap();

    // With row claims the abandoned row stays leased until its lease ends.
    let left = if claim == ClaimMode::Rows { 3 } else { 4 };
    assert_eq!(summary, StopSummary { abandoned: 1, left: Some(left) });
}

/// The lease that its row was born with has become too short to begin: it is given back, and read.
pub(crate) async fn an_event_that_waited_too_long_in_the_queue_is_delivered(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    let settings = RelaySettings {
        lease: Duration::from_secs(6),
        delivery_timeout: Duration::from_millis(3900),
        workers: NonZeroU32::MIN,
        ..settings(ClaimMode::Shards)
    };
    let (probe, store) = (Probe::new(), FaultyStore::new(db.store()));
    let relay = Relay::new(store.clone(), gate.listeners()).settings(settings);
    let relay = relay.observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    db.commit(&outbox, vec![free(1)]).await;
    next(&mut starts, 1).await;
    let ids = db.commit(&outbox, vec![free(2)]).await;
    wait_for(async || (due_in(db, &ids[0]).await < Duration::from_millis(3900)).then_some(()))
        .await;

    // It waits behind the first one when the last read has passed it by.
    let mut last_read = store.hold(Call::Read, Side::After);
    let stopping = tokio::spawn(handle.stop());
    last_read.reached().await;
    last_read.release();
    gate.open(2);
    let summary = stopping.await.unwrap().unwrap();

    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::NotStarted { .. })), 1);
    assert_eq!(next(&mut starts, 1).await, [2]);
    assert_eq!(summary, CLEAN);
}

/// Its row is leased to a writer that died, and the lease has run out: it is taken by a write first.
pub(crate) async fn the_row_of_a_dead_writer_is_delivered(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners).settings(settings(ClaimMode::Shards));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    db.commit(&outbox, vec![keyed("k", 1)]).await;
    assert_eq!(next(&mut received, 1).await, [1], "the first read is over");
    let event = free(2);
    let id = event.event_id().clone();
    write_and_die(db, event, HOUR).await;
    db.age(&[id], HOUR).await;

    let summary = handle.stop().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [2]);
    assert_eq!(summary, CLEAN);
}

/// Verdicts that the database refused once are tried again, not abandoned.
pub(crate) async fn a_refused_verdict_is_written_before_the_stop_ends(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    let (listeners, mut received) = Script::default().listeners();
    let probe = Probe::new();
    let relay = Relay::new(store.clone(), listeners)
        .settings(settings(ClaimMode::Shards))
        .observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    store.next(Call::Settle, Fault::Refuse);
    let ids = db.commit(&Outbox::new(), vec![free(1)]).await;
    handle.wake();
    next(&mut received, 1).await;
    soon(&probe, |seen| matches!(seen, RelayEvent::VerdictRefused { .. })).await;

    let summary = handle.stop().await.unwrap();

    db.event_with(&ids[0], Status::Done).await;
    assert_eq!(summary, CLEAN);
}

/// Others have its shards: it cannot know what of its events is left.
pub(crate) async fn without_a_lease_the_remaining_count_is_unknown(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    let (listeners, _) = Script::default().listeners();
    let probe = Probe::new();
    let settings = RelaySettings { lease: Duration::from_secs(15), ..settings(ClaimMode::Shards) };
    let relay = Relay::new(store.clone(), listeners).settings(settings).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    // A relay that is removed joins again; this one cannot.
    (0..100).for_each(|_| store.next(Call::Join, Fault::Fail));

    // A heartbeat may renew the lease between the two.
    wait_for(async || {
        db.expire_owners().await;
        db.store().configure(&DeliveryMode::default()).await.ok()
    })
    .await;
    soon(&probe, |seen| matches!(seen, RelayEvent::LeaseLost { .. })).await;
    db.commit(&Outbox::new(), vec![free(1)]).await;
    let summary = handle.stop().await.unwrap();

    assert_eq!(summary, StopSummary { abandoned: 0, left: None });
}
