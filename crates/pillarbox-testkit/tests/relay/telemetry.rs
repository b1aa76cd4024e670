//! What observers see of a relay at work.

use std::time::Duration;

use pillarbox::context::{self, Context};
use pillarbox::telemetry::{Attempt, Component, Probe, RelayEvent};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
use tokio::sync::mpsc;

use crate::fixture::{
    ALWAYS, Script, TestDatabase, WAIT_TIMEOUT, free, keyed, next, quick, relay, wait_for,
};

const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

/// A relay_event that fits, which must come.
pub(crate) async fn soon(
    probe: &Probe,
    fits: impl Fn(&RelayEvent<'static>) -> bool,
) -> RelayEvent<'static> {
    let waited = tokio::time::timeout(WAIT_TIMEOUT, probe.wait(fits)).await;
    waited.unwrap_or_else(|_| panic!("it does not come: {:#?}", probe.seen()))
}

/// From entering as an owner to giving the shards back.
pub(crate) async fn a_delivery_is_observed_from_the_read_to_the_settle(db: &TestDatabase) {
    let probe = Probe::new();
    let (listeners, _received) = Script::default().listeners();
    let handle = relay(db, listeners).observer(probe.clone()).spawn().await.unwrap();

    let ids = db.commit(&Outbox::new(), vec![keyed("k", 1)]).await;

    soon(&probe, |seen| matches!(seen, RelayEvent::Settled { rows: 1, .. })).await;
    handle.stop().await.unwrap();
    let delivered = soon(&probe, |seen| matches!(seen, RelayEvent::Delivered(_))).await;
    let RelayEvent::Delivered(Attempt { event_id, event_type, route, number, lag, .. }) = delivered
    else {
        unreachable!("it was asked for")
    };
    assert_eq!((event_id.as_ref(), number), (ids[0].as_str(), 1));
    assert_eq!(event_type.as_deref(), Some("test.step"));
    assert_eq!(route.as_deref(), Some("__GLOBAL__/test.step"));
    assert!(lag.unwrap() < WAIT_TIMEOUT, "{lag:?}");
    let mut order: Vec<_> = probe.seen().iter().filter_map(place_in_line).collect();
    order.dedup();
    assert_eq!(order, [0, 1, 2, 3, 4, 5], "{:#?}", probe.seen());
    assert!(probe.count(|seen| matches!(seen, RelayEvent::Read { rows: 1 })) > 0);
}

/// The order in which they must come.
fn place_in_line(relay_event: &RelayEvent<'_>) -> Option<u8> {
    match relay_event {
        RelayEvent::Started { .. } => Some(0),
        RelayEvent::ShardsTaken { .. } => Some(1),
        RelayEvent::Delivered(_) => Some(2),
        RelayEvent::Settled { .. } => Some(3),
        RelayEvent::ShardsReleased { .. } => Some(4),
        RelayEvent::Stopped { .. } => Some(5),
        _ => None,
    }
}

/// Each with its attempt and its cause.
pub(crate) async fn failures_are_observed_until_the_event_is_given_up(db: &TestDatabase) {
    let probe = Probe::new();
    let (listeners, _received) = Script::default().fail(1, ALWAYS).fail(2, ALWAYS).listeners();
    let relay = relay(db, listeners).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1), keyed("k", 2)]).await;

    soon(&probe, |seen| matches!(seen, RelayEvent::Dead { error, .. } if *error == "told to fail"))
        .await;
    soon(&probe, |seen| matches!(seen, RelayEvent::Held { attempt, .. } if attempt.number == 3))
        .await;
    handle.stop().await.unwrap();
    let retried = |number| {
        probe.count(
            |seen| matches!(seen, RelayEvent::Retried { attempt, .. } if attempt.number == number),
        )
    };
    assert_eq!((retried(1), retried(2), retried(3)), (2, 2, 0));
}

/// However often it does.
pub(crate) async fn a_panicking_observer_harms_no_delivery(db: &TestDatabase) {
    fn broken(seen: &RelayEvent<'_>) {
        panic!("on demand, seeing {seen:?}");
    }
    let (listeners, mut received) = Script::default().fail(2, 1).listeners();
    let relay = relay(db, listeners).observer(broken);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, (1..=5).map(|number| keyed("k", number)).collect()).await;

    assert_eq!(next(&mut received, 5).await, [1, 2, 3, 4, 5]);
    let store = db.store();
    wait_for(async || (store.stats().await.unwrap().new == 0).then_some(())).await;
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "none comes twice");
}

/// Which part of the relay met it, and what it was.
pub(crate) async fn database_errors_are_observed(db: &TestDatabase) {
    let (probe, store) = (Probe::new(), FaultyStore::new(db.store()));
    let (listeners, mut received) = Script::default().listeners();
    // The lease is renewed soon; nobody else could take it.
    let (lease, delivery_timeout) = (Duration::from_secs(3), Duration::from_secs(2));
    let settings = RelaySettings { lease, delivery_timeout, ..quick() };
    let relay = Relay::new(store.clone(), listeners).settings(settings).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    soon(&probe, |seen| matches!(seen, RelayEvent::ShardsTaken { .. })).await;
    for call in [Call::Renew, Call::Read, Call::Settle] {
        store.next(call, Fault::Fail);
    }

    db.commit(&Outbox::new(), vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [1]);
    for (part, call) in
        [(Component::Lease, "Renew"), (Component::Read, "Read"), (Component::Settle, "Settle")]
    {
        let text = format!("{call} failed on demand");
        soon(&probe, |seen| {
            matches!(seen, RelayEvent::ComponentFailed { component: of, error, .. } if *of == part && *error == text)
        })
        .await;
    }
    handle.stop().await.unwrap();
}

/// Through the database, into the listener, and on into what it emits.
pub(crate) async fn a_trace_goes_from_the_emit_through_the_listener_into_its_emits(
    db: &TestDatabase,
) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let probe = Probe::new();
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        sender.send((cx.context(), context::current())).ok();
        async { Ok::<_, Failure>(()) }
    });
    let relay = relay(db, listeners).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let trace = Context::new().traceparent(TRACE).tracestate("congo=t61rcWkgMzE");

    context::scope(trace.clone(), db.commit(&outbox, vec![free(1)])).await;

    let (told, restored) = received.recv().await.unwrap();
    assert_eq!((&told, restored.as_ref()), (&trace, Some(&trace)));
    // What a listener does in the context it was given.
    context::scope(told, db.commit(&outbox, vec![free(2)])).await;
    assert_eq!(received.recv().await.unwrap().0, trace);
    soon(&probe, |seen| {
        matches!(seen, RelayEvent::Delivered(attempt) if attempt.traceparent.as_deref() == Some(TRACE))
    })
    .await;
    handle.stop().await.unwrap();
}
