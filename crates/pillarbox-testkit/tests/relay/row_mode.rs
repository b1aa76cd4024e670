//! One way to claim rows for all relays of the tables, and one of them that purges.

use std::time::Duration;

use pillarbox::store::{AcquireShards, ClaimMode, DeliveryMode, Join, Lease, Order, Status};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{ErrorKind, Listeners, Outbox, OwnerId, RelaySettings};

use crate::fixture::{LONGEST, Place, Script, free, keyed, next, quick, relay, wait_for};
use crate::rows::by_rows;
use crate::telemetry::soon;

const ROWS: DeliveryMode = DeliveryMode { claim: ClaimMode::Rows, order: Order::Key };

async fn mode(place: &Place) -> DeliveryMode {
    place.store().config().await.unwrap().mode
}

/// Why a relay with these settings does not start.
async fn refusal(place: &Place, settings: RelaySettings) -> String {
    let owners = place.store().stats().await.unwrap().owners;
    let error = relay(place, Listeners::new()).settings(settings).spawn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert_eq!(place.store().stats().await.unwrap().owners, owners, "it is not entered");
    error.to_string()
}

/// Also where events were written before, and where several start at once.
pub(crate) async fn the_first_relay_sets_the_mode(place: &Place) {
    place.commit(&Outbox::new(), vec![free(1), keyed("k", 2)]).await;
    let (listeners, mut hears) = Script::default().listeners();
    let one = relay(place, listeners).settings(by_rows());
    let (listeners, _hears) = Script::default().listeners();
    let idle = RelaySettings { poll: Duration::from_secs(3600), ..by_rows() };
    let two = relay(place, listeners).settings(idle);

    let (one, two) = tokio::join!(one.spawn(), two.spawn());

    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(mode(place).await, ROWS);
    place.commit(&Outbox::new(), vec![keyed("k", 3)]).await;
    wait_for(async || (place.store().stats().await.unwrap().new == 0).then_some(())).await;
    two.stop().await.unwrap();
    place.commit(&Outbox::new(), vec![keyed("k", 4)]).await;
    let last = wait_for(async || hears.recv().await.filter(|number| *number == 4)).await;
    assert_eq!(last, 4);
    one.stop().await.unwrap();
}

/// Whichever came first, while it lives and when it has left.
pub(crate) async fn two_modes_never_meet(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let shards = relay(place, listeners).spawn().await.unwrap();
    place.commit(&Outbox::new(), vec![free(1)]).await;
    next(&mut hears, 1).await;

    let message = refusal(place, by_rows()).await;
    assert!(message.contains("`claim = shards, order = key`"), "{message}");
    shards.stop().await.unwrap();
    refusal(place, by_rows()).await;

    place.store().configure(&ROWS).await.unwrap();
    let rows = relay(place, Listeners::new()).settings(by_rows()).spawn().await.unwrap();
    refusal(place, quick()).await;
    refusal(place, RelaySettings { order: Order::None, ..by_rows() }).await;
    rows.stop().await.unwrap();
    refusal(place, quick()).await;
    assert_eq!(mode(place).await, ROWS);
}

/// It says what to do instead.
pub(crate) async fn where_nobody_delivers_no_relay_starts(place: &Place) {
    let none = RelaySettings { claim: ClaimMode::None, ..quick() };

    let message = refusal(place, none).await;

    assert!(message.contains("claim = none") && message.contains("`Outbox` alone"), "{message}");
    assert_eq!(mode(place).await, DeliveryMode::default(), "it changes nothing");
    let writer_only = DeliveryMode { claim: ClaimMode::None, order: Order::Key };
    place.store().configure(&writer_only).await.unwrap();
    for settings in [quick(), by_rows()] {
        let message = refusal(place, settings).await;
        assert!(message.contains("`Outbox` alone"), "{message}");
    }
}

/// Relays that claim rows hold shards for this alone: the owner of the lowest one purges.
pub(crate) async fn the_owner_of_the_lowest_shard_purges(place: &Place) {
    let (listeners, _hears) = Script::default().listeners();
    let first = relay(place, listeners).settings(by_rows()).spawn().await.unwrap();
    let ids = place.commit(&Outbox::new(), vec![keyed("k", 1)]).await;
    place.event_with(&ids[0], Status::Done).await;
    first.stop().await.unwrap();
    let (store, other) = (place.store(), OwnerId::generate());
    let lease = Lease { owner: other.clone(), length: Duration::from_secs(3600), wants: 64 };
    store.join(&Join { lease, mode: ROWS }).await.unwrap();
    let take = AcquireShards { owner: other.clone(), most: 64, owned: vec![] };
    assert!(!store.acquire_shards(&take).await.unwrap().is_empty());
    let (probe, often) = (Probe::new(), Duration::from_millis(20));
    let retention_done = Duration::from_millis(1);
    let settings =
        RelaySettings { retention_done, purge_every: often, gauges_every: often, ..by_rows() };
    let relay = relay(place, Listeners::new()).settings(settings).observer(probe.clone());

    let handle = relay.spawn().await.unwrap();

    // Gauges come as often as purges, give or take a half: by the tenth, a purge had its turn.
    let counting = probe.wait_many(10, |seen| matches!(seen, RelayEvent::Counted(_)));
    tokio::time::timeout(LONGEST, counting).await.unwrap();
    assert!(store.event(&ids[0]).await.unwrap().is_some(), "it was not its turn");
    store.leave(&other).await.unwrap();
    soon(&probe, |seen| matches!(seen, RelayEvent::Purged { kind: "done", rows: 1 })).await;
    handle.stop().await.unwrap();
}

/// The second relay comes by its share of the shards, though no delivery depends on it.
pub(crate) async fn a_newcomer_is_given_shards(place: &Place) {
    let (lease, delivery_timeout) = (Duration::from_secs(6), Duration::from_secs(2));
    let settings = RelaySettings { lease, delivery_timeout, ..by_rows() };
    let store = place.store();
    let start = async || {
        let (listeners, hears) = Script::default().listeners();
        let relay = relay(place, listeners).settings(settings.clone());
        (relay.spawn().await.unwrap(), hears)
    };
    let (first, _hears) = start().await;
    let shards = store.config().await.unwrap().shards.get();
    let held = async || -> Vec<u16> {
        store.members().await.unwrap().iter().map(|member| member.owned).collect()
    };
    wait_for(async || (held().await == [shards]).then_some(())).await;

    let (second, _hears) = start().await;

    // A table with a single shard leaves it where it is.
    let least = if shards == 1 { 0 } else { 1 };
    let is_shared = async || {
        let held = held().await;
        let all: u16 = held.iter().sum();
        (held.len() == 2 && all == shards && held[1] >= least).then_some(())
    };
    wait_for(is_shared).await;
    first.stop().await.unwrap();
    second.stop().await.unwrap();
}

/// What one way of claiming has left, the other delivers.
pub(crate) async fn events_are_delivered_after_the_mode_was_changed(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let shards = relay(place, listeners).spawn().await.unwrap();
    place.commit(&Outbox::new(), vec![keyed("k", 1)]).await;
    next(&mut hears, 1).await;
    shards.stop().await.unwrap();
    let ids = place.commit(&Outbox::new(), vec![keyed("k", 2)]).await;

    place.store().configure(&ROWS).await.unwrap();

    let (listeners, mut hears) = Script::default().listeners();
    let rows = relay(place, listeners).settings(by_rows()).spawn().await.unwrap();
    assert_eq!(next(&mut hears, 1).await, [2]);
    place.event_with(&ids[0], Status::Done).await;
    rows.stop().await.unwrap();
}
