//! Wakes across processes, where the database can tell.

use std::time::Duration;

use pillarbox::{Relay, RelayHandle, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
use tokio::sync::mpsc::UnboundedReceiver;

use crate::fixture::{Script, TestDatabase, free, keyed, next, quick, relay, wait_for};

/// A relay without polls is notified of a commit in another process.
pub(crate) async fn a_commit_in_another_process_wakes_the_relay(db: &TestDatabase) {
    let TestDatabase::Postgres(_) = db else { return };
    let (handle, mut received) = never_looks(db).await;
    // The shards are the first relay's: this one stands for another process that writes.
    let (listeners, _) = Script::default().listeners();
    let writer = relay(db, listeners).settings(patient());
    let outbox = writer.outbox();
    let writer = writer.spawn().await.unwrap();

    for number in 0..10 {
        db.commit(&outbox, vec![keyed("k", number)]).await;
        assert_eq!(next(&mut received, 1).await, [number]);
    }

    writer.stop().await.unwrap();
    handle.stop().await.unwrap();
}

/// Nobody sees the end of the caller's own transaction: the relay reads again after a while.
pub(crate) async fn a_transaction_of_the_callers_own_triggers_a_read(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners).settings(patient());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 0..3 {
        db.commit_unseen(&outbox, keyed("k", number)).await;
        assert_eq!(next(&mut received, 1).await, [number]);
    }

    handle.stop().await.unwrap();
}

/// The same from a process that delivers nothing, with a key and without.
pub(crate) async fn a_process_that_only_writes_wakes_the_relay(db: &TestDatabase) {
    let TestDatabase::Postgres(_) = db else { return };
    let (handle, mut received) = never_looks(db).await;
    let writer = Relay::writer_only(db.store());
    let outbox = writer.outbox();
    let writer = writer.spawn().await.unwrap();

    for number in 0..10 {
        let event = if number % 2 == 0 { keyed("k", number) } else { free(number) };
        db.commit(&outbox, vec![event]).await;
        assert_eq!(next(&mut received, 1).await, [number]);
    }

    writer.stop().await.unwrap();
    handle.stop().await.unwrap();
}

/// A stop may cut a ring short, so it rings once more; a bell that is out of order fails no stop.
pub(crate) async fn a_writer_notifies_when_it_stops(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    store.next(Call::Notify, Fault::Fail);
    let writer = Relay::writer_only(store.clone()).spawn().await.unwrap();

    writer.stop().await.unwrap();

    assert!(store.is_spent(), "it rang, though nothing was committed");
}

/// What a writer commits takes no lease and is an ordinary row, delivered by a relay's first look.
pub(crate) async fn a_process_that_only_writes_owns_nothing(db: &TestDatabase) {
    let writer = Relay::writer_only(db.store());
    let outbox = writer.outbox();
    let writer = writer.spawn().await.unwrap();

    db.commit(&outbox, vec![free(1), keyed("k", 2)]).await;

    let stats = db.store().stats().await.unwrap();
    assert_eq!((stats.new, stats.owners, stats.owned_shards), (2, 0, 0));
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(db, listeners).settings(patient()).spawn().await.unwrap();
    let mut numbers = next(&mut received, 2).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [1, 2]);
    writer.stop().await.unwrap();
    handle.stop().await.unwrap();
}

fn patient() -> RelaySettings {
    let hour = Duration::from_secs(3600);
    RelaySettings { poll: hour, sweep: hour, ..quick() }
}

/// A relay that holds everything and looks only when it is told to.
async fn never_looks(db: &TestDatabase) -> (RelayHandle, UnboundedReceiver<i64>) {
    let (listeners, received) = Script::default().listeners();
    let handle = relay(db, listeners).settings(patient()).spawn().await.unwrap();
    let store = db.store();
    wait_for(async || (store.stats().await.unwrap().owned_shards == 64).then_some(())).await;
    (handle, received)
}
