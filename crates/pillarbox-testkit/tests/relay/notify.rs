//! Wakes across processes, where the database can tell.

use std::time::Duration;

use pillarbox::{Relay, RelayHandle, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::fixture::{Place, Script, free, keyed, next, quick, relay, wait_for};

/// A relay that never looks by itself hears of what another process committed.
pub(crate) async fn a_commit_elsewhere_is_heard(place: &Place) {
    let Place::Postgres(_) = place else { return };
    let (handle, mut hears) = never_looks(place).await;
    // The shards are the first relay's: this one stands for another process that writes.
    let (listeners, _) = Script::default().listeners();
    let writer = relay(place, listeners).settings(patient());
    let outbox = writer.outbox();
    let writer = writer.spawn().await.unwrap();

    for number in 0..10 {
        place.commit(&outbox, vec![keyed("k", number)]).await;
        assert_eq!(next(&mut hears, 1).await, [number]);
    }

    writer.stop().await.unwrap();
    handle.stop().await.unwrap();
}

/// The end of a transaction of the caller's own is seen by nobody: the relay looks again by itself.
pub(crate) async fn a_transaction_of_the_callers_own_is_looked_for(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners).settings(patient());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 0..3 {
        place.commit_unseen(&outbox, keyed("k", number)).await;
        assert_eq!(next(&mut hears, 1).await, [number]);
    }

    handle.stop().await.unwrap();
}

/// The same from a process that delivers nothing, with a key and without.
pub(crate) async fn a_process_that_only_writes_is_heard(place: &Place) {
    let Place::Postgres(_) = place else { return };
    let (handle, mut hears) = never_looks(place).await;
    let writer = Relay::writer_only(place.store());
    let outbox = writer.outbox();
    let writer = writer.spawn().await.unwrap();

    for number in 0..10 {
        let event = if number % 2 == 0 { keyed("k", number) } else { free(number) };
        place.commit(&outbox, vec![event]).await;
        assert_eq!(next(&mut hears, 1).await, [number]);
    }

    writer.stop().await.unwrap();
    handle.stop().await.unwrap();
}

/// A stop may cut a ring short, so it rings once more; a bell that is out of order fails no stop.
pub(crate) async fn a_writer_rings_when_it_stops(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::Notify, Fault::Fail);
    let writer = Relay::writer_only(store.clone()).spawn().await.unwrap();

    writer.stop().await.unwrap();

    assert!(store.is_spent(), "it rang, though nothing was committed");
}

/// What a writer commits takes no lease and is an ordinary row, delivered by a relay's first look.
pub(crate) async fn a_process_that_only_writes_owns_nothing(place: &Place) {
    let writer = Relay::writer_only(place.store());
    let outbox = writer.outbox();
    let writer = writer.spawn().await.unwrap();

    place.commit(&outbox, vec![free(1), keyed("k", 2)]).await;

    let stats = place.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.owners, stats.owned_shards), (2, 0, 0));
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(place, listeners).settings(patient()).spawn().await.unwrap();
    let mut heard = next(&mut hears, 2).await;
    heard.sort_unstable();
    assert_eq!(heard, [1, 2]);
    writer.stop().await.unwrap();
    handle.stop().await.unwrap();
}

fn patient() -> RelaySettings {
    let hour = Duration::from_secs(3600);
    RelaySettings { poll: hour, sweep: hour, ..quick() }
}

/// A relay that holds everything and looks only when it is told to.
async fn never_looks(place: &Place) -> (RelayHandle, UnboundedReceiver<i64>) {
    let (listeners, hears) = Script::default().listeners();
    let handle = relay(place, listeners).settings(patient()).spawn().await.unwrap();
    let store = place.store();
    wait_for(async || (store.stats().await.unwrap().owned_shards == 64).then_some(())).await;
    (handle, hears)
}
