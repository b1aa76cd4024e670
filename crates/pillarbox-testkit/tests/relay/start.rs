//! From the commit to the listener.

use std::num::NonZeroU32;
use std::time::Duration;

use pillarbox::context::{self, Context};
use pillarbox::store::{ClaimMode, Status};
use pillarbox::{
    Clock, Cx, Envelope, ErrorKind, Failure, Listeners, Outbox, RelaySettings, SystemClock,
};
use tokio::sync::mpsc;

use crate::fixture::{Place, Script, free, keyed, next, quick, relay, wait_for};

/// The row tells afterwards who delivered it.
pub(crate) async fn a_committed_event_is_delivered_and_marked_done(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = place.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut hears, 1).await, [1]);
    let event = place.event_with(&ids[0], Status::Done).await;
    assert_eq!((event.attempts, event.settled_by.as_deref()), (0, Some("__GLOBAL__/test.step")));
    handle.stop().await.unwrap();
}

/// Only what committed is heard of.
pub(crate) async fn a_rolled_back_event_is_never_delivered(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    place.roll_back(&outbox, vec![keyed("k", 1)]).await;
    place.commit(&outbox, vec![keyed("k", 2)]).await;

    assert_eq!(next(&mut hears, 1).await, [2]);
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "nothing else was committed");
}

/// With a poll of an hour, only the wake can have told it.
pub(crate) async fn a_commit_wakes_the_relay(place: &Place, claim: ClaimMode) {
    let (listeners, mut hears) = Script::default().listeners();
    let hour = Duration::from_secs(3600);
    let settings = RelaySettings { claim, poll: hour, sweep: hour, ..quick() };
    let relay = relay(place, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    place.commit(&outbox, vec![free(1)]).await;
    assert_eq!(next(&mut hears, 1).await, [1], "the relay is up");

    for number in 2..=5 {
        place.commit(&outbox, vec![free(number)]).await;
        assert_eq!(next(&mut hears, 1).await, [number]);

        place.commit(&outbox, vec![keyed("k", -number)]).await;
        assert_eq!(next(&mut hears, 1).await, [-number]);
    }
    handle.stop().await.unwrap();
}

/// As when another process writes.
pub(crate) async fn without_a_wake_the_poll_finds_it(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(place, listeners).spawn().await.unwrap();
    let deaf = Outbox::new();

    place.commit(&deaf, vec![free(1)]).await;
    assert_eq!(next(&mut hears, 1).await, [1]);
    place.commit(&deaf, vec![keyed("k", 2)]).await;

    assert_eq!(next(&mut hears, 1).await, [2]);
    handle.stop().await.unwrap();
}

/// Many more than fit into memory at a time, with few and with many keys, and without.
pub(crate) async fn many_events_come_once_each(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let small = RelaySettings {
        batch: NonZeroU32::new(32).unwrap(),
        max_unsettled: NonZeroU32::new(16).unwrap(),
        ..quick()
    };
    let relay = relay(place, listeners).settings(small);
    let outbox = relay.outbox();
    let few = (0..200).map(|n| keyed(&format!("few-{}", n % 3), n));
    let many = (200..400).map(|n| keyed(&format!("many-{n}"), n));
    place.commit(&outbox, few.chain(many).chain((400..600).map(free)).collect()).await;

    let handle = relay.spawn().await.unwrap();

    let heard = next(&mut hears, 600).await;
    for key in 0..3 {
        let of_key = heard.iter().filter(|n| **n < 200 && **n % 3 == key);
        assert!(of_key.is_sorted(), "key {key} is out of order");
    }
    let store = place.store();
    wait_for(async || (store.stats().await.unwrap().new == 0).then_some(())).await;
    handle.stop().await.unwrap();
    let mut all = heard;
    all.sort_unstable();
    assert_eq!(all, (0..600).collect::<Vec<_>>());
    assert!(hears.try_recv().is_err(), "one came twice");
}

/// A retention of zero keeps no row.
pub(crate) async fn nothing_kept_means_deleted_at_settle(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let settings = RelaySettings { retention_done: Duration::ZERO, ..quick() };
    let relay = relay(place, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = place.commit(&outbox, vec![free(1)]).await;
    next(&mut hears, 1).await;
    handle.stop().await.unwrap();

    assert!(place.store().event(&ids[0]).await.unwrap().is_none());
}

/// Others overtake it meanwhile.
pub(crate) async fn a_delayed_event_waits_for_its_time(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let (before, delay) = (SystemClock.now(), Duration::from_secs(2));

    let later = [free(1).deliver_after(delay), keyed("k", 2).deliver_after(delay)];
    place.commit(&outbox, later.into_iter().chain([free(3)]).collect()).await;

    assert_eq!(next(&mut hears, 1).await, [3]);
    let mut late = next(&mut hears, 2).await;
    late.sort_unstable();
    assert_eq!(late, [1, 2]);
    // SQLite's clock has milliseconds.
    assert!(SystemClock.now().since(before) + Duration::from_millis(2) >= delay);
    handle.stop().await.unwrap();
}

/// Tenant, actor and trace travel with the event.
pub(crate) async fn the_listener_has_the_context_of_the_emit(place: &Place) {
    let (heard, mut hears) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |_: Envelope, cx: Cx| {
        heard.send((cx.context(), context::current())).ok();
        async { Ok::<_, Failure>(()) }
    });
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let context = Context::new().tenant("acme").actor("ada").traceparent("00-1-2-01");

    context::scope(context.clone(), place.commit(&outbox, vec![free(1)])).await;

    let (told, scoped) = hears.recv().await.unwrap();
    assert_eq!((told, scoped), (context.clone(), Some(context)));
    handle.stop().await.unwrap();
}

/// Before anything starts.
pub(crate) async fn contradicting_settings_are_refused(place: &Place) {
    let settings = RelaySettings { lease: Duration::from_secs(1), ..quick() };

    let error = relay(place, Listeners::new()).settings(settings).spawn().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert_eq!(place.store().stats().await.unwrap().owners, 0);
}
