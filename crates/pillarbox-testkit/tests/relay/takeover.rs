//! Takeovers between relays.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{AcquireShards, DeliveryMode, Join, Lease, Status};
use pillarbox::{Cx, Envelope, Failure, Listeners, Outbox, OwnerId, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, FaultyStore, ManualClock, Side};
use tokio::sync::{Notify, mpsc};

use crate::fixture::{Script, TestDatabase, free, keyed, next, relay};

/// The second relay has the shards long before the lease of the first would have run out.
pub(crate) async fn a_stop_finishes_deliveries_and_hands_over_at_once(db: &TestDatabase) {
    let (started, go) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (sender, mut received) = mpsc::unbounded_channel();
    let (starts, goes) = (Arc::clone(&started), Arc::clone(&go));
    let listeners = Listeners::new().fallback(move |_: Envelope, _: Cx| {
        let (starts, goes, sender) = (Arc::clone(&starts), Arc::clone(&goes), sender.clone());
        async move {
            starts.notify_one();
            goes.notified().await;
            sender.send(1).ok();
            Ok::<_, Failure>(())
        }
    });
    let first = relay(db, listeners);
    let outbox = first.outbox();
    let first = first.spawn().await.unwrap();
    db.commit(&outbox, vec![keyed("k", 1)]).await;
    started.notified().await;

    let stopping = tokio::spawn(first.stop());
    go.notify_one();
    stopping.await.unwrap().unwrap();

    assert_eq!(next(&mut received, 1).await, [1]);
    let stats = db.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.owners, stats.owned_shards), (0, 0, 0), "settled and given back");
    let (listeners, mut received) = Script::default().listeners();
    let second = relay(db, listeners).spawn().await.unwrap();
    db.commit(&outbox, vec![keyed("k", 2)]).await;
    assert_eq!(next(&mut received, 1).await, [2]);
    second.stop().await.unwrap();
}

/// As after a stall: the lease has run out here, and nobody took over. What came meanwhile does not
/// start, and does not wait for the next poll either, which is an hour away.
pub(crate) async fn a_lease_that_is_renewed_too_late_goes_on_at_once(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    let (clock, gate) = (ManualClock::new(), Arc::new(Notify::new()));
    let (sender, mut received) = mpsc::unbounded_channel();
    let opens = Arc::clone(&gate);
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number: i64 = event.payload().as_json().unwrap().parse().unwrap();
        sender.send(number).ok();
        let opens = Arc::clone(&opens);
        async move {
            if number == 9 {
                opens.notified().await;
            }
            Ok::<_, Failure>(())
        }
    });
    let hour = Duration::from_secs(3600);
    let settings = RelaySettings {
        lease: Duration::from_secs(12),
        delivery_timeout: Duration::from_secs(10),
        poll: hour,
        sweep: hour,
        ..RelaySettings::default()
    };
    let relay = Relay::new(store.clone(), listeners).settings(settings);
    let relay = relay.clock(clock.clone());
    let outbox = relay.outbox();
    let mut renewal = store.hold(Call::Renew, Side::Before);
    let handle = relay.spawn().await.unwrap();
    db.commit(&outbox, vec![keyed("k", 1)]).await;
    assert_eq!(next(&mut received, 1).await, [1], "everything is held, and was looked at");
    renewal.reached().await;
    let before = db.commit(&outbox, vec![keyed("other", 9)]).await;
    assert_eq!(next(&mut received, 1).await, [9]);

    clock.advance(Duration::from_secs(13));
    db.commit(&outbox, vec![keyed("k", 2)]).await;
    handle.wake();
    // The relay goes on with what it has begun, and would start the other one.
    gate.notify_one();
    db.event_with(&before[0], Status::Done).await;
    assert!(received.try_recv().is_err(), "not without a lease");
    renewal.release();

    assert_eq!(next(&mut received, 1).await, [2]);
    handle.stop().await.unwrap();
}

/// As after a kill: the next relay delivers its events.
pub(crate) async fn a_lapsed_owners_events_are_taken_over(db: &TestDatabase) {
    let store = db.store();
    let gone = OwnerId::generate();
    let length = Duration::from_millis(200);
    let lease = Lease { owner: gone.clone(), length, wants: 64 };
    store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
    let taken = store
        .acquire_shards(&AcquireShards { owner: gone, most: 64, owned: vec![] })
        .await
        .unwrap();
    assert!(!taken.is_empty());
    db.commit(&Outbox::new(), vec![keyed("k", 1), free(2)]).await;

    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(db, listeners).spawn().await.unwrap();

    let mut numbers = next(&mut received, 2).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    handle.stop().await.unwrap();
}
