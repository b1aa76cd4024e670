//! Events with a key from memory: the first of a key at once, and never out of its order.

use std::collections::BTreeMap;
use std::time::Duration;

use pillarbox::store::Status;
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{Listeners, Outbox, RelayHandle, RelaySettings};

use crate::fixture::{Place, Script, free, keyed, next, quick, relay, wait_for};
use crate::telemetry::soon;

/// A relay that holds every shard, and whose poll finds nothing by chance.
async fn settled_in(place: &Place, listeners: Listeners) -> (Outbox, Probe, RelayHandle) {
    let hour = Duration::from_secs(3600);
    let probe = Probe::new();
    let settings = RelaySettings { poll: hour, sweep: hour, ..quick() };
    let relay = relay(place, listeners).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    soon(&probe, |seen| matches!(seen, RelayEvent::ShardsTaken { .. })).await;
    (outbox, probe, handle)
}

fn hot(probe: &Probe) -> usize {
    probe.count(|seen| matches!(seen, RelayEvent::FromLocalQueue { .. }))
}

/// Where an insert can tell what is before its event.
fn goes_hot(place: &Place) -> bool {
    !matches!(place, Place::Mysql(_))
}

/// The first event of a key comes from memory, is settled like any other, and so is the next once
/// nothing is before it.
pub(crate) async fn the_first_of_a_key_comes_from_memory(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let (outbox, probe, handle) = settled_in(place, listeners).await;

    for round in 0..5 {
        let ids = place.commit(&outbox, vec![keyed("a", round)]).await;
        assert_eq!(next(&mut hears, 1).await, [round]);
        assert_eq!(place.event_with(&ids[0], Status::Done).await.attempts, 0);
    }

    assert_eq!(hot(&probe), if goes_hot(place) { 5 } else { 0 });
    handle.stop().await.unwrap();
}

/// Those of one transaction come in their order, whether from memory or from the table.
pub(crate) async fn a_transaction_keeps_its_order(place: &Place) {
    let (listeners, mut hears) = Script::default().fail(3, 2).listeners();
    let (outbox, _, handle) = settled_in(place, listeners).await;

    let events = (0..20).map(|number| keyed("a", number));
    place.commit(&outbox, events.chain([free(100)]).collect()).await;

    let mut heard = next(&mut hears, 21).await;
    heard.retain(|number| *number < 100);
    assert_eq!(heard, (0..20).collect::<Vec<_>>());
    handle.stop().await.unwrap();
}

/// While an event is tried again, later ones of its key wait in the table.
pub(crate) async fn an_event_that_fails_holds_back_its_key(place: &Place) {
    let (listeners, mut hears) = Script::default().fail(1, 2).listeners();
    let (outbox, _, handle) = settled_in(place, listeners).await;

    for number in 1..=4 {
        place.commit(&outbox, vec![keyed("a", number)]).await;
    }

    assert_eq!(next(&mut hears, 4).await, [1, 2, 3, 4]);
    handle.stop().await.unwrap();
}

/// Writers of many keys at once, each event once and each key in order, on two relays between
/// which the shards move, with and without the path through memory.
pub(crate) async fn many_writers_keep_every_key_in_order(place: &Place) {
    let (heard, mut hears) = tokio::sync::mpsc::unbounded_channel();
    let script = Script::default();
    let (outbox, probe, handle) = settled_in(place, script.telling(heard.clone())).await;
    let other = relay(place, script.telling(heard)).spawn().await.unwrap();

    let writers = (0..8_i64).map(|writer| {
        let outbox = &outbox;
        async move {
            for round in 0..25 {
                let number = writer * 1000 + round;
                place.commit(outbox, vec![keyed(&format!("k{writer}"), number)]).await;
            }
        }
    });
    futures_util::future::join_all(writers).await;

    let heard = next(&mut hears, 200).await;
    let pending = async || (place.store().stats().await.unwrap().new == 0).then_some(());
    wait_for(pending).await;
    handle.stop().await.unwrap();
    other.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "one came twice");
    let mut keys: BTreeMap<i64, Vec<i64>> = BTreeMap::new();
    heard.iter().for_each(|number| keys.entry(number / 1000).or_default().push(number % 1000));
    let in_order: Vec<i64> = (0..25).collect();
    assert!(keys.values().all(|numbers| *numbers == in_order), "{keys:?}");
    assert!(hot(&probe) > 0 || !goes_hot(place));
}

/// A rolled back event was never in anybody's hands, and its key goes on.
pub(crate) async fn a_rolled_back_event_leaves_its_key_alone(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let (outbox, _, handle) = settled_in(place, listeners).await;

    place.roll_back(&outbox, vec![keyed("a", 1)]).await;
    place.commit(&outbox, vec![keyed("a", 2)]).await;

    assert_eq!(next(&mut hears, 1).await, [2]);
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err());
}
