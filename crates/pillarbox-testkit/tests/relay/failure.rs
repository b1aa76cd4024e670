//! Failures in and around a listener.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use pillarbox::store::{ClaimMode, Status};
use pillarbox::{Cx, Envelope, Event, Failure, Listeners, Outbox, RelaySettings};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc;

use crate::fixture::{ALWAYS, Script, TestDatabase, free, keyed, next, quick, relay};

#[derive(Debug, Serialize, Deserialize, Event)]
#[event("test.step", version = 2)]
struct StepV2 {
    number: i64,
}

/// The relay goes on after a panic.
pub(crate) async fn a_panic_is_a_failure_and_is_retried(db: &TestDatabase, claim: ClaimMode) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        let sender = sender.clone();
        async move {
            assert!(cx.attempt() > 1, "the first attempt panics");
            sender.send(i64::from(cx.attempt())).ok();
            Ok::<_, Failure>(())
        }
    });
    let relay = relay(db, listeners).settings(RelaySettings { claim, ..quick() });
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let mut ids = db.commit(&outbox, vec![keyed("a", 1), free(2)]).await;
    ids.extend(db.commit(&Outbox::new(), vec![keyed("b", 3), free(4)]).await);

    assert_eq!(
        next(&mut received, 4).await,
        [2, 2, 2, 2],
        "each is delivered at its second attempt"
    );
    for id in &ids {
        let error = db.event_with(id, Status::Done).await.last_error.unwrap();
        assert!(error.contains("the first attempt panics"), "{error}");
    }
    handle.stop().await.unwrap();
}

#[derive(Debug)]
struct Unspeakable;

impl std::fmt::Display for Unspeakable {
    fn fmt(&self, _: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        panic!("this error cannot be shown")
    }
}

impl std::error::Error for Unspeakable {}

/// The text comes from foreign code, which must not stop the relay.
pub(crate) async fn an_error_that_cannot_be_shown_is_retried(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        let sender = sender.clone();
        async move {
            if cx.attempt() == 1 {
                return Err(Unspeakable);
            }
            sender.send(i64::from(cx.attempt())).ok();
            Ok(())
        }
    });
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    handle.stop().await.unwrap();
}

/// The attempt is stopped, and counts.
pub(crate) async fn a_listener_that_takes_too_long_is_retried(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        let sender = sender.clone();
        async move {
            if cx.attempt() == 1 {
                std::future::pending::<()>().await;
            }
            sender.send(i64::from(cx.attempt())).ok();
            Ok::<_, Failure>(())
        }
    });
    let settings = RelaySettings { delivery_timeout: Duration::from_millis(30), ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    let event = db.event_with(&ids[0], Status::Done).await;
    assert_eq!(event.last_error.as_deref(), Some("the listener took longer than 30ms"));
    handle.stop().await.unwrap();
}

/// Without a listener no retry can succeed.
pub(crate) async fn an_event_without_a_listener_is_dead_at_once(db: &TestDatabase) {
    let handle = relay(db, Listeners::new()).spawn().await.unwrap();

    let ids = db.commit(&Outbox::new(), vec![free(1)]).await;

    let event = db.event_with(&ids[0], Status::Dead).await;
    assert_eq!(event.last_error.as_deref(), Some("no listener for __GLOBAL__/test.step"));
    handle.stop().await.unwrap();
}

/// The event is not retried.
pub(crate) async fn a_payload_that_does_not_decode_is_dead_with_its_cause(db: &TestDatabase) {
    let handle = relay(db, step_listener()).spawn().await.unwrap();

    let ids = db.commit(&Outbox::new(), vec![free(1).version(2).unwrap()]).await;

    let event = db.event_with(&ids[0], Status::Dead).await;
    let error = event.last_error.unwrap();
    assert_eq!(error, "the payload cannot be decoded (Data, line 1, column 1)");
    assert_eq!(event.attempts, 1);
    handle.stop().await.unwrap();
}

/// The error has both versions.
pub(crate) async fn a_version_nobody_reads_is_dead_with_its_cause(db: &TestDatabase) {
    let handle = relay(db, step_listener()).spawn().await.unwrap();

    let ids = db.commit(&Outbox::new(), vec![free(1)]).await;

    let event = db.event_with(&ids[0], Status::Dead).await;
    let cause =
        "event version is 1, the listener supports 2, and no upcaster from 1 to 2 is registered";
    assert_eq!(event.last_error.as_deref(), Some(cause));
    handle.stop().await.unwrap();
}

/// Any number of deferrals leaves the attempts unchanged.
pub(crate) async fn a_deferral_counts_no_attempt(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let calls = Arc::new(AtomicU32::new(0));
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        let call = calls.fetch_add(1, Ordering::Relaxed);
        let sender = sender.clone();
        async move {
            if call < 6 {
                return Err(Failure::defer(Duration::from_millis(1), "closed"));
            }
            sender.send(i64::from(cx.attempt())).ok();
            Ok(())
        }
    });
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [1], "still the first attempt, of three");
    handle.stop().await.unwrap();
}

/// An event without a key blocks nobody, so it is dead and not held.
pub(crate) async fn the_last_attempt_makes_a_dead_letter(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().fail(1, ALWAYS).listeners();
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1), free(2)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    let event = db.event_with(&ids[0], Status::Dead).await;
    assert_eq!((event.attempts, event.last_error.as_deref()), (3, Some("told to fail")));
    handle.stop().await.unwrap();
}

fn step_listener() -> Listeners {
    Listeners::new().on(|step: StepV2, _: Cx| async move {
        Err::<(), _>(Failure::retry(format!("not to be called with {}", step.number)))
    })
}
