//! Layers around deliveries: who is asked first, whose word counts.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};
use std::time::Duration;

use pillarbox::layer::{self, CircuitBreaker, Next, Outcome};
use pillarbox::store::Status;
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, RelaySettings};
use pillarbox_testkit::fake::ManualClock;
use tokio::sync::Notify;
use tokio::sync::mpsc::{self, UnboundedSender};

use crate::fixture::{
    ALWAYS, Script, TestDatabase, free, keyed, next, quick, relay, until_the_relay_leaves,
};

/// Reports its number before the listener, and a hundred more after it.
fn sending(number: i64, sender: &UnboundedSender<i64>) -> impl layer::Layer + use<> {
    let sender = sender.clone();
    move |_: Cx, next: Next| {
        let sender = sender.clone();
        async move {
            sender.send(number).ok();
            let outcome = next.run().await;
            sender.send(number + 100).ok();
            outcome
        }
    }
}

fn hearing(sender: &UnboundedSender<i64>) -> Listeners {
    let sender = sender.clone();
    Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number = event.payload().as_json().unwrap().parse::<i64>().unwrap();
        sender.send(number).ok();
        async { Ok::<_, Failure>(()) }
    })
}

pub(crate) async fn the_first_layer_registered_is_the_outermost(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let relay = relay(db, hearing(&sender)).layer(sending(1, &sender)).layer(sending(2, &sender));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(7)]).await;

    assert_eq!(next(&mut received, 5).await, [1, 2, 7, 102, 101]);
    handle.stop().await.unwrap();
}

/// Its failure says what becomes of the event.
pub(crate) async fn a_layer_that_fails_first_keeps_the_listener_out(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let relay = relay(db, hearing(&sender)).layer(layer::before(|cx: Cx| async move {
        match cx.envelope().payload().as_json() {
            Some("1") => Err(Failure::dead("not for us")),
            Some("2") if cx.attempt() == 1 => Err(Failure::retry("not yet")),
            _ => Ok(()),
        }
    }));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1), free(2)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    let dead = db.event_with(&ids[0], Status::Dead).await;
    assert_eq!((dead.attempts, dead.last_error.as_deref()), (1, Some("not for us")));
    let done = db.event_with(&ids[1], Status::Done).await;
    assert_eq!((done.attempts, done.last_error.as_deref()), (1, Some("not yet")));
    handle.stop().await.unwrap();
}

/// Neither to make a success a failure, nor to hide a failure.
pub(crate) async fn no_layer_changes_the_listeners_result(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().fail(2, ALWAYS).listeners();
    let relay = relay(db, listeners).layer(|_: Cx, next: Next| async {
        match next.run().await {
            Ok(()) => Err(Failure::dead("too late to say so")),
            Err(_) => Ok(()),
        }
    });
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1), free(2)]).await;

    assert_eq!(next(&mut received, 1).await, [1]);
    db.event_with(&ids[0], Status::Done).await;
    let dead = db.event_with(&ids[1], Status::Dead).await;
    assert_eq!((dead.attempts, dead.last_error.as_deref()), (3, Some("told to fail")));
    handle.stop().await.unwrap();
}

pub(crate) async fn a_panic_in_a_layer_is_a_failed_delivery(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let relay = relay(db, hearing(&sender)).layer(layer::before(|cx: Cx| async move {
        assert!(cx.attempt() > 1, "the first attempt panics");
        Ok::<_, Failure>(())
    }));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [1]);
    let event = db.event_with(&ids[0], Status::Done).await;
    assert_eq!(event.attempts, 1);
    assert!(event.last_error.unwrap().contains("the first attempt panics"));
    handle.stop().await.unwrap();
}

/// A layer that never comes to an end must not keep its worker for ever.
pub(crate) async fn a_layer_that_hangs_is_stopped(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let settings = RelaySettings { delivery_timeout: Duration::from_millis(30), ..quick() };
    let relay = relay(db, hearing(&sender)).settings(settings);
    let relay = relay.layer(layer::before(|cx: Cx| async move {
        if cx.attempt() == 1 {
            std::future::pending::<()>().await;
        }
        Ok::<_, Failure>(())
    }));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [1]);
    let event = db.event_with(&ids[0], Status::Done).await;
    assert_eq!(event.last_error.as_deref(), Some("the layers took longer than 30ms"));
    handle.stop().await.unwrap();
}

/// The lease is looked at after all layers: one of them may have waited it out.
pub(crate) async fn a_layer_that_outlasts_the_lease_calls_no_listener(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let passes = Arc::new(AtomicI64::new(0));
    let listeners = Listeners::new().fallback({
        let passes = Arc::clone(&passes);
        move |_: Envelope, cx: Cx| {
            sender.send(passes.load(Ordering::SeqCst)).ok();
            sender.send(i64::from(cx.attempt())).ok();
            async { Ok::<_, Failure>(()) }
        }
    });
    let clock = ManualClock::new();
    // It is renewed soon after it was lost.
    let (lease, delivery_timeout) = (Duration::from_secs(3), Duration::from_secs(2));
    let settings = RelaySettings { lease, delivery_timeout, ..quick() };
    let relay = relay(db, listeners).settings(settings).clock(clock.clone());
    let relay = relay.layer(layer::before(move |_| {
        if passes.fetch_add(1, Ordering::SeqCst) == 0 {
            clock.advance(Duration::from_secs(3600));
        }
        async { Ok::<_, Failure>(()) }
    }));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 2).await, [2, 1], "the second pass, still the first attempt");
    handle.stop().await.unwrap();
}

/// The last delivery under way turns out to have come too late: nothing is left to wait for.
pub(crate) async fn a_stop_does_not_wait_for_a_late_delivery(db: &TestDatabase) {
    let (sender, _received) = mpsc::unbounded_channel();
    let (begun, gate) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (probe, clock) = (Probe::new(), ManualClock::new());
    let relay = relay(db, hearing(&sender)).clock(clock.clone()).observer(probe.clone());
    let relay = relay.layer(layer::before({
        let (begun, gate) = (Arc::clone(&begun), Arc::clone(&gate));
        move |_| {
            let (begun, gate, clock) = (Arc::clone(&begun), Arc::clone(&gate), clock.clone());
            async move {
                begun.notify_one();
                gate.notified().await;
                clock.advance(Duration::from_secs(3600));
                Ok::<_, Failure>(())
            }
        }
    }));
    let handle = relay.spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![keyed("a", 1)]).await;
    begun.notified().await;

    let open_later = async {
        until_the_relay_leaves(db.store()).await;
        gate.notify_one();
    };
    tokio::join!(handle.stop(), open_later).0.unwrap();

    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::NotStarted { .. })), 1);
    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::Abandoned { .. })), 0);
}

/// The waiting events are put off as often as it takes, and keep all their attempts.
pub(crate) async fn an_open_circuit_uses_up_no_attempts(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let calls = AtomicI64::new(0);
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let is_down = calls.fetch_add(1, Ordering::SeqCst) < 2;
        let number = event.payload().as_json().unwrap().parse::<i64>().unwrap();
        sender.send(if is_down { 0 } else { number }).ok();
        async move { if is_down { Err(Failure::retry("down")) } else { Ok(()) } }
    });
    let once = NonZeroU32::new(1).unwrap();
    let settings = RelaySettings { workers: once, ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let relay = relay.layer(CircuitBreaker::new(once, Duration::from_millis(150)));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, (1..=6).map(free).collect()).await;

    let mut numbers = next(&mut received, 8).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [0, 0, 1, 2, 3, 4, 5, 6], "one opens it, one probes in vain");
    let mut failed = 0;
    for id in &ids {
        failed += db.event_with(id, Status::Done).await.attempts;
    }
    assert_eq!(failed, 2, "attempts are what the listener was called for, no more");
    handle.stop().await.unwrap();
}

/// The context of the emit is there for layers, too.
pub(crate) async fn a_layer_has_the_context_of_the_emit(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let relay =
        relay(db, Listeners::new().fallback(|_: Envelope, _: Cx| async { Ok::<_, Failure>(()) }));
    let relay = relay.layer(move |_: Cx, next: Next| {
        let sender = sender.clone();
        async move {
            let current = pillarbox::context::current();
            let tenant = current.and_then(|context| context.tenant);
            sender.send(i64::from(tenant.as_deref() == Some("acme"))).ok();
            let outcome: Outcome = next.run().await;
            outcome
        }
    });
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1).tenant("acme").unwrap()]).await;

    assert_eq!(next(&mut received, 1).await, [1]);
    handle.stop().await.unwrap();
}
