//! Events with a key from memory: the first of a key at once, and never out of its order.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox::store::Status;
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Listeners, Outbox, RelayHandle, RelaySettings};

use crate::fixture::{Script, TestDatabase, free, keyed, next, quick, relay, wait_for};
use crate::telemetry::soon;

/// A relay that holds every shard, and whose poll finds nothing by chance.
async fn settled_in(db: &TestDatabase, listeners: Listeners) -> (Outbox, Probe, RelayHandle) {
    let hour = Duration::from_secs(3600);
    let probe = Probe::new();
    let settings = RelaySettings { poll: hour, sweep: hour, ..quick() };
    let relay = relay(db, listeners).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    soon(&probe, |seen| matches!(seen, RelayEvent::ShardsTaken { .. })).await;
    (outbox, probe, handle)
}

fn hot(probe: &Probe) -> usize {
    probe.count(|seen| matches!(seen, RelayEvent::FromLocalQueue { .. }))
}

/// Where an insert can tell what is before its event.
fn goes_hot(db: &TestDatabase) -> bool {
    !matches!(db, TestDatabase::Mysql(_))
}

/// The first event of a key comes from memory, is settled like any other, and so is the next once
/// nothing is before it.
pub(crate) async fn the_first_event_of_a_key_comes_from_the_queue(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let (outbox, probe, handle) = settled_in(db, listeners).await;

    for round in 0..5 {
        let ids = db.commit(&outbox, vec![keyed("a", round)]).await;
        assert_eq!(next(&mut received, 1).await, [round]);
        assert_eq!(db.event_with(&ids[0], Status::Done).await.attempts, 0);
    }

    assert_eq!(hot(&probe), if goes_hot(db) { 5 } else { 0 });
    handle.stop().await.unwrap();
}

/// Those of one transaction come in their order, whether from memory or from the table.
pub(crate) async fn a_transaction_keeps_its_order(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().fail(3, 2).listeners();
    let (outbox, _, handle) = settled_in(db, listeners).await;

    let events = (0..20).map(|number| keyed("a", number));
    db.commit(&outbox, events.chain([free(100)]).collect()).await;

    let mut numbers = next(&mut received, 21).await;
    numbers.retain(|number| *number < 100);
    assert_eq!(numbers, (0..20).collect::<Vec<_>>());
    handle.stop().await.unwrap();
}

/// While an event is tried again, later ones of its key wait in the table.
pub(crate) async fn an_event_that_fails_holds_back_its_key(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().fail(1, 2).listeners();
    let (outbox, _, handle) = settled_in(db, listeners).await;

    for number in 1..=4 {
        db.commit(&outbox, vec![keyed("a", number)]).await;
    }

    assert_eq!(next(&mut received, 4).await, [1, 2, 3, 4]);
    handle.stop().await.unwrap();
}

/// Writers of many keys at once, each event once and each key in order, on two relays between
/// which the shards move, with and without the path through memory.
pub(crate) async fn many_writers_keep_every_key_in_order(db: &TestDatabase) {
    let (sender, mut received) = tokio::sync::mpsc::unbounded_channel();
    let script = Script::default();
    let (outbox, probe, handle) = settled_in(db, script.sending(sender.clone())).await;
    let other = relay(db, script.sending(sender)).spawn().await.unwrap();

    let writers = (0..8_i64).map(|writer| {
        let outbox = &outbox;
        async move {
            for round in 0..25 {
                let number = writer * 1000 + round;
                db.commit(outbox, vec![keyed(&format!("k{writer}"), number)]).await;
            }
        }
    });
    futures_util::future::join_all(writers).await;

    let numbers = next(&mut received, 200).await;
    let pending = async || (db.store().stats().await.unwrap().new == 0).then_some(());
    wait_for(pending).await;
    handle.stop().await.unwrap();
    other.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "one came twice");
    let mut keys: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    numbers.iter().for_each(|number| keys.entry(number / 1000).or_default().push(number % 1000));
    let in_order: Vec<i64> = (0..25).collect();
    assert!(keys.values().all(|numbers| *numbers == in_order), "{keys:?}");
    assert!(hot(&probe) > 0 || !goes_hot(db));
}

/// A rolled back event was never in anybody's hands, and its key goes on.
pub(crate) async fn a_rolled_back_event_leaves_its_key_alone(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let (outbox, _, handle) = settled_in(db, listeners).await;

    db.roll_back(&outbox, vec![keyed("a", 1)]).await;
    db.commit(&outbox, vec![keyed("a", 2)]).await;

    assert_eq!(next(&mut received, 1).await, [2]);
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err());
}
