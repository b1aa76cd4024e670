//! From the commit to the listener.

use std::num::NonZeroU32;
use std::time::Duration;

use pillarbox::context::{self, Context};
use pillarbox::store::{ClaimMode, Status};
use pillarbox::{
    Clock, Cx, Envelope, ErrorKind, Failure, Listeners, Outbox, RelaySettings, SystemClock,
};
use tokio::sync::mpsc;

use crate::fixture::{Script, TestDatabase, free, keyed, next, quick, relay, wait_for};

/// The settled row names its listener.
pub(crate) async fn a_committed_event_is_delivered_and_marked_done(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut received, 1).await, [1]);
    let event = db.event_with(&ids[0], Status::Done).await;
    assert_eq!((event.attempts, event.settled_by.as_deref()), (0, Some("__GLOBAL__/test.step")));
    handle.stop().await.unwrap();
}

/// The listener is called only with committed events.
pub(crate) async fn a_rolled_back_event_is_never_delivered(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.roll_back(&outbox, vec![keyed("k", 1)]).await;
    db.commit(&outbox, vec![keyed("k", 2)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "nothing else was committed");
}

/// With a poll of an hour, only a wake makes the relay read.
pub(crate) async fn a_commit_wakes_the_relay(db: &TestDatabase, claim: ClaimMode) {
    let (listeners, mut received) = Script::default().listeners();
    let hour = Duration::from_secs(3600);
    let settings = RelaySettings { claim, poll: hour, sweep: hour, ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    db.commit(&outbox, vec![free(1)]).await;
    assert_eq!(next(&mut received, 1).await, [1], "the relay is up");

    for number in 2..=5 {
        db.commit(&outbox, vec![free(number)]).await;
        assert_eq!(next(&mut received, 1).await, [number]);

        db.commit(&outbox, vec![keyed("k", -number)]).await;
        assert_eq!(next(&mut received, 1).await, [-number]);
    }
    handle.stop().await.unwrap();
}

/// As after a commit in another process.
pub(crate) async fn without_a_wake_the_poll_finds_the_event(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(db, listeners).spawn().await.unwrap();
    let deaf = Outbox::new();

    db.commit(&deaf, vec![free(1)]).await;
    assert_eq!(next(&mut received, 1).await, [1]);
    db.commit(&deaf, vec![keyed("k", 2)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    handle.stop().await.unwrap();
}

/// Many more than fit into memory at a time, with few and with many keys, and without.
pub(crate) async fn many_events_are_delivered_once(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let small = RelaySettings {
        batch: NonZeroU32::new(32).unwrap(),
        max_unsettled: NonZeroU32::new(16).unwrap(),
        ..quick()
    };
    let relay = relay(db, listeners).settings(small);
    let outbox = relay.outbox();
    let few = (0..200).map(|n| keyed(&format!("few-{}", n % 3), n));
    let many = (200..400).map(|n| keyed(&format!("many-{n}"), n));
    db.commit(&outbox, few.chain(many).chain((400..600).map(free)).collect()).await;

    let handle = relay.spawn().await.unwrap();

    let numbers = next(&mut received, 600).await;
    for key in 0..3 {
        let of_key = numbers.iter().filter(|n| **n < 200 && **n % 3 == key);
        assert!(of_key.is_sorted(), "key {key} is out of order");
    }
    let store = db.store();
    wait_for(async || (store.stats().await.unwrap().new == 0).then_some(())).await;
    handle.stop().await.unwrap();
    let mut all = numbers;
    all.sort_unstable();
    assert_eq!(all, (0..600).collect::<Vec<_>>());
    assert!(received.try_recv().is_err(), "one came twice");
}

/// A retention of zero keeps no row.
pub(crate) async fn a_retention_of_zero_deletes_at_the_settle(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let settings = RelaySettings { retention_done: Duration::ZERO, ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1)]).await;
    next(&mut received, 1).await;
    handle.stop().await.unwrap();

    assert!(db.store().event(&ids[0]).await.unwrap().is_none());
}

/// Other events are delivered meanwhile.
pub(crate) async fn a_delayed_event_waits_for_its_time(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let (before, delay) = (SystemClock.now(), Duration::from_secs(2));

    let later = [free(1).deliver_after(delay), keyed("k", 2).deliver_after(delay)];
    db.commit(&outbox, later.into_iter().chain([free(3)]).collect()).await;

    assert_eq!(next(&mut received, 1).await, [3]);
    let mut late = next(&mut received, 2).await;
    late.sort_unstable();
    assert_eq!(late, [1, 2]);
    // SQLite's clock has milliseconds.
    assert!(SystemClock.now().since(before) + Duration::from_millis(2) >= delay);
    handle.stop().await.unwrap();
}

/// Tenant, actor and trace travel with the event.
pub(crate) async fn the_listener_has_the_context_of_the_emit(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        sender.send((cx.context(), context::current())).ok();
        async { Ok::<_, Failure>(()) }
    });
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let context = Context::new().tenant("acme").actor("ada").traceparent("00-1-2-01");

    context::scope(context.clone(), db.commit(&outbox, vec![free(1)])).await;

    let (told, scoped) = received.recv().await.unwrap();
    assert_eq!((told, scoped), (context.clone(), Some(context)));
    handle.stop().await.unwrap();
}

/// The relay does not start.
pub(crate) async fn contradicting_settings_are_refused(db: &TestDatabase) {
    let settings = RelaySettings { lease: Duration::from_secs(1), ..quick() };

    let error = relay(db, Listeners::new()).settings(settings).spawn().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert_eq!(db.store().stats().await.unwrap().owners, 0);
}
