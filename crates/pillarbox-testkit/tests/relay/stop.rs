//! A graceful stop: what was committed before it is delivered, and what is left is told.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimMode, DeliveryMode, Status};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, Relay, RelaySettings, StopSummary};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore, Side};
use tokio::sync::Semaphore;

use crate::fixture::{ALWAYS, Place, Script, free, keyed, next, quick, relay, wait_for};
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
pub(crate) async fn what_was_committed_before_is_delivered(place: &Place, claim: ClaimMode) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners).settings(settings(claim));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    place.commit(&outbox, vec![free(1), keyed("k", 2), keyed("k", 3)]).await;
    place.commit_unseen(&outbox, keyed("k", 4)).await;
    place.commit(&Outbox::new(), vec![keyed("k", 5), free(6)]).await;
    let summary = handle.stop().await.unwrap();

    let mut heard = next(&mut hears, 6).await;
    let of_key: Vec<i64> = heard.iter().copied().filter(|it| (2..=5).contains(it)).collect();
    assert_eq!(of_key, [2, 3, 4, 5]);
    heard.sort_unstable();
    assert_eq!(heard, [1, 2, 3, 4, 5, 6]);
    assert_eq!(summary, CLEAN);
    let stats = place.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.waiting, stats.owners), (0, 0, 0));
}

/// More than fits into memory at a time.
pub(crate) async fn a_backlog_is_delivered_whole(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let batch = NonZeroU32::new(64).unwrap();
    let relay =
        relay(place, listeners).settings(RelaySettings { batch, ..settings(ClaimMode::Shards) });
    let handle = relay.spawn().await.unwrap();

    for first in [0, 300] {
        let events = (first..first + 300).map(|number| match number % 3 {
            0 => free(number),
            1 => keyed("one", number),
            _ => keyed(&number.to_string(), number),
        });
        place.commit(&Outbox::new(), events.collect()).await;
    }
    let summary = handle.stop().await.unwrap();

    let mut heard = next(&mut hears, 600).await;
    let of_key: Vec<i64> = heard.iter().copied().filter(|it| it % 3 == 1).collect();
    assert!(of_key.is_sorted(), "{of_key:?}");
    heard.sort_unstable();
    assert_eq!(heard, (0..600).collect::<Vec<_>>());
    assert_eq!(summary, CLEAN);
}

/// A delayed event, one that waits for a retry, a held one, and what is behind them.
pub(crate) async fn what_waits_stays(place: &Place, claim: ClaimMode) {
    let (listeners, mut hears) = Script::default().fail(3, ALWAYS).fail(5, ALWAYS).listeners();
    let backoff = pillarbox::Backoff::new(HOUR, HOUR);
    let relay = relay(place, listeners).retry(backoff).settings(settings(claim));
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
    let ids = place.commit(&Outbox::new(), events).await;
    let summary = handle.stop().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [4]);
    assert!(hears.try_recv().is_err(), "the others wait");
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
        place.event_with(id, status).await;
    }
}

/// A delivery that takes longer than the stop allows, and events that it keeps from starting.
pub(crate) async fn what_is_abandoned_and_left_is_counted(place: &Place, claim: ClaimMode) {
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
    let handle = relay(place, listeners).settings(settings).spawn().await.unwrap();
    place.commit(&Outbox::new(), vec![free(1), keyed("a", 2), keyed("a", 3), free(4)]).await;
    place.commit(&Outbox::new(), vec![free(5).deliver_after(HOUR)]).await;
    handle.wake();
    started.acquire().await.unwrap().forget();

    let summary = handle.stop().await.unwrap();

    // With row claims the abandoned row stays leased until its lease ends.
    let left = if claim == ClaimMode::Rows { 3 } else { 4 };
    assert_eq!(summary, StopSummary { abandoned: 1, left: Some(left) });
}

/// The lease that its row was born with has become too short to begin: it is given back, and read.
pub(crate) async fn an_event_that_waited_too_long_in_memory_is_delivered(place: &Place) {
    let (gate, mut starts) = Gate::new();
    let settings = RelaySettings {
        lease: Duration::from_secs(6),
        delivery_timeout: Duration::from_millis(3900),
        workers: NonZeroU32::MIN,
        ..settings(ClaimMode::Shards)
    };
    let (probe, store) = (Probe::new(), FaultyStore::new(place.store()));
    let relay = Relay::new(store.clone(), gate.listeners()).settings(settings);
    let relay = relay.observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    place.commit(&outbox, vec![free(1)]).await;
    next(&mut starts, 1).await;
    let ids = place.commit(&outbox, vec![free(2)]).await;
    wait_for(async || (due_in(place, &ids[0]).await < Duration::from_millis(3900)).then_some(()))
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
pub(crate) async fn the_row_of_a_dead_writer_is_delivered(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners).settings(settings(ClaimMode::Shards));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    place.commit(&outbox, vec![keyed("k", 1)]).await;
    assert_eq!(next(&mut hears, 1).await, [1], "the first read is over");
    let event = free(2);
    let id = event.event_id().clone();
    write_and_die(place, event, HOUR).await;
    place.age(&[id], HOUR).await;

    let summary = handle.stop().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [2]);
    assert_eq!(summary, CLEAN);
}

/// Verdicts that the database refused once are tried again, not abandoned.
pub(crate) async fn a_verdict_that_was_refused_is_written(place: &Place) {
    let store = FaultyStore::new(place.store());
    let (listeners, mut hears) = Script::default().listeners();
    let probe = Probe::new();
    let relay = Relay::new(store.clone(), listeners)
        .settings(settings(ClaimMode::Shards))
        .observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    store.next(Call::Settle, Fault::Refuse);
    let ids = place.commit(&Outbox::new(), vec![free(1)]).await;
    handle.wake();
    next(&mut hears, 1).await;
    soon(&probe, |seen| matches!(seen, RelayEvent::VerdictRefused { .. })).await;

    let summary = handle.stop().await.unwrap();

    place.event_with(&ids[0], Status::Done).await;
    assert_eq!(summary, CLEAN);
}

/// Others have its shards: it cannot know what of its events is left.
pub(crate) async fn without_a_lease_nothing_is_said_to_be_left(place: &Place) {
    let store = FaultyStore::new(place.store());
    let (listeners, _) = Script::default().listeners();
    let probe = Probe::new();
    let settings = RelaySettings { lease: Duration::from_secs(15), ..settings(ClaimMode::Shards) };
    let relay = Relay::new(store.clone(), listeners).settings(settings).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    // A relay that is removed joins again; this one cannot.
    (0..100).for_each(|_| store.next(Call::Join, Fault::Fail));

    place.expire_owners().await;
    place.store().configure(&DeliveryMode::default()).await.unwrap();
    soon(&probe, |seen| matches!(seen, RelayEvent::LeaseLost { .. })).await;
    place.commit(&Outbox::new(), vec![free(1)]).await;
    let summary = handle.stop().await.unwrap();

    assert_eq!(summary, StopSummary { abandoned: 0, left: None });
}
