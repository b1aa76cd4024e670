//! A graceful stop: what was committed before it is delivered, and what is left is told.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimMode, Status};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, RelaySettings, StopSummary};
use tokio::sync::Semaphore;

use crate::fixture::{ALWAYS, Place, Script, free, keyed, next, quick, relay};

const HOUR: Duration = Duration::from_secs(3600);
const CLEAN: StopSummary = StopSummary { abandoned: 0, left: Some(0) };

/// Only a stop can find anything: polls and sweeps are an hour away.
fn settings(claim: ClaimMode) -> RelaySettings {
    RelaySettings { claim, poll: HOUR, sweep: HOUR, drain: Duration::from_secs(60), ..quick() }
}

/// Whichever way they would have taken: from memory, by a wake, or by a poll.
pub(crate) async fn what_was_committed_before_is_delivered(place: &Place) {
    deliver_what_was_committed(place, ClaimMode::Shards).await;
}

pub(crate) async fn what_was_committed_before_is_delivered_by_rows(place: &Place) {
    deliver_what_was_committed(place, ClaimMode::Rows).await;
}

async fn deliver_what_was_committed(place: &Place, claim: ClaimMode) {
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
    assert_eq!((stats.new, stats.retry, stats.owners), (0, 0, 0));
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
pub(crate) async fn what_waits_stays(place: &Place) {
    leave_what_waits(place, ClaimMode::Shards).await;
}

pub(crate) async fn what_waits_stays_by_rows(place: &Place) {
    leave_what_waits(place, ClaimMode::Rows).await;
}

async fn leave_what_waits(place: &Place, claim: ClaimMode) {
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
        Status::New,
        Status::New,
        Status::New,
        Status::Retry,
        Status::New,
        Status::Done,
        Status::Retry,
    ]) {
        place.event_with(id, status).await;
    }
}

/// A delivery that takes longer than the stop allows, and events that it keeps from starting.
pub(crate) async fn what_is_abandoned_and_left_is_counted(place: &Place) {
    count_what_is_left(place, ClaimMode::Shards).await;
}

pub(crate) async fn what_is_abandoned_and_left_is_counted_by_rows(place: &Place) {
    count_what_is_left(place, ClaimMode::Rows).await;
}

async fn count_what_is_left(place: &Place, claim: ClaimMode) {
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
        drain: Duration::from_millis(100),
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
