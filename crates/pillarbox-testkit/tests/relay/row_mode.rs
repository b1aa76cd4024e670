//! All relays of the tables share one claim mode.

use std::time::Duration;

use pillarbox::store::{ClaimMode, DeliveryMode, Order, Status};
use pillarbox::{ErrorKind, Listeners, Outbox, RelaySettings};

use crate::fixture::{Script, TestDatabase, free, keyed, next, quick, relay, wait_for};
use crate::rows::by_rows;

const ROWS: DeliveryMode = DeliveryMode { claim: ClaimMode::Rows, order: Order::Key };

async fn mode(db: &TestDatabase) -> DeliveryMode {
    db.store().config().await.unwrap().mode
}

/// Why a relay with these settings does not start.
async fn refusal(db: &TestDatabase, settings: RelaySettings) -> String {
    let owners = db.store().stats().await.unwrap().owners;
    let error = relay(db, Listeners::new()).settings(settings).spawn().await.unwrap_err();
    assert_eq!(error.kind(), ErrorKind::Configuration);
    assert_eq!(db.store().stats().await.unwrap().owners, owners, "it is not entered");
    error.to_string()
}

/// Also where events were written before, and where several start at once.
pub(crate) async fn the_first_relay_sets_the_mode(db: &TestDatabase) {
    db.commit(&Outbox::new(), vec![free(1), keyed("k", 2)]).await;
    let (listeners, mut received) = Script::default().listeners();
    let one = relay(db, listeners).settings(by_rows());
    let (listeners, _received) = Script::default().listeners();
    let idle = RelaySettings { poll: Duration::from_secs(3600), ..by_rows() };
    let two = relay(db, listeners).settings(idle);

    let (one, two) = tokio::join!(one.spawn(), two.spawn());

    let (one, two) = (one.unwrap(), two.unwrap());
    assert_eq!(mode(db).await, ROWS);
    db.commit(&Outbox::new(), vec![keyed("k", 3)]).await;
    wait_for(async || (db.store().stats().await.unwrap().new == 0).then_some(())).await;
    two.stop().await.unwrap();
    db.commit(&Outbox::new(), vec![keyed("k", 4)]).await;
    let last = wait_for(async || received.recv().await.filter(|number| *number == 4)).await;
    assert_eq!(last, 4);
    one.stop().await.unwrap();
}

/// The first mode stays, while its relay is alive and after it has left.
pub(crate) async fn two_modes_never_meet(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let shards = relay(db, listeners).spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![free(1)]).await;
    next(&mut received, 1).await;

    let message = refusal(db, by_rows()).await;
    assert!(message.contains("`claim = shards, order = key`"), "{message}");
    shards.stop().await.unwrap();
    refusal(db, by_rows()).await;

    db.store().configure(&ROWS).await.unwrap();
    let rows = relay(db, Listeners::new()).settings(by_rows()).spawn().await.unwrap();
    refusal(db, quick()).await;
    refusal(db, RelaySettings { order: Order::None, ..by_rows() }).await;
    rows.stop().await.unwrap();
    refusal(db, quick()).await;
    assert_eq!(mode(db).await, ROWS);
}

/// The error says what to do instead.
pub(crate) async fn no_relay_starts_in_claim_mode_none(db: &TestDatabase) {
    let none = RelaySettings { claim: ClaimMode::None, ..quick() };

    let message = refusal(db, none).await;

    assert!(message.contains("claim = none") && message.contains("`Outbox` alone"), "{message}");
    assert_eq!(mode(db).await, DeliveryMode::default(), "it changes nothing");
    let writer_only = DeliveryMode { claim: ClaimMode::None, order: Order::Key };
    db.store().configure(&writer_only).await.unwrap();
    for settings in [quick(), by_rows()] {
        let message = refusal(db, settings).await;
        assert!(message.contains("`Outbox` alone"), "{message}");
    }
}

/// The second relay comes by its share of the shards, though no delivery depends on it.
pub(crate) async fn a_newcomer_is_given_shards(db: &TestDatabase) {
    let (lease, delivery_timeout) = (Duration::from_secs(6), Duration::from_secs(2));
    let settings = RelaySettings { lease, delivery_timeout, ..by_rows() };
    let store = db.store();
    let start = async || {
        let (listeners, received) = Script::default().listeners();
        let relay = relay(db, listeners).settings(settings.clone());
        (relay.spawn().await.unwrap(), received)
    };
    let (first, _received) = start().await;
    let shards = store.config().await.unwrap().shards.get();
    let held = async || -> Vec<u16> {
        store.members().await.unwrap().iter().map(|member| member.owned).collect()
    };
    wait_for(async || (held().await == [shards]).then_some(())).await;

    let (second, _received) = start().await;

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

/// One claim mode delivers the events that the other has left.
pub(crate) async fn events_are_delivered_after_the_mode_was_changed(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let shards = relay(db, listeners).spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![keyed("k", 1)]).await;
    next(&mut received, 1).await;
    shards.stop().await.unwrap();
    let ids = db.commit(&Outbox::new(), vec![keyed("k", 2)]).await;

    db.store().configure(&ROWS).await.unwrap();

    let (listeners, mut received) = Script::default().listeners();
    let rows = relay(db, listeners).settings(by_rows()).spawn().await.unwrap();
    assert_eq!(next(&mut received, 1).await, [2]);
    db.event_with(&ids[0], Status::Done).await;
    rows.stop().await.unwrap();
}
