//! The database goes wrong under a relay that claims rows.

use std::time::Duration;

use pillarbox::{Backoff, Listeners, Outbox, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};

use crate::fixture::{Place, Script, free, keyed, next, wait_for};
use crate::rows::by_rows;

fn relay(store: &FaultyStore, listeners: Listeners, settings: RelaySettings) -> Relay {
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5));
    Relay::new(store.clone(), listeners).settings(settings).retry(backoff)
}

/// A lease that is soon over.
fn short() -> RelaySettings {
    let (lease, delivery_timeout) = (Duration::from_secs(6), Duration::from_secs(2));
    RelaySettings { lease, delivery_timeout, ..by_rows() }
}

async fn all_settled(place: &Place) {
    let store = place.store();
    let is_settled = async || {
        let stats = store.stats().await.unwrap();
        (stats.new + stats.waiting == 0).then_some(())
    };
    wait_for(is_settled).await;
}

/// The rows are leased and nobody told us: they come when the lease is over.
pub(crate) async fn a_claim_whose_answer_is_lost_strands_nothing(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::Read, Fault::LoseAnswer);
    place.commit(&Outbox::new(), vec![keyed("k", 1), keyed("k", 2), free(3)]).await;
    let (listeners, mut hears) = Script::default().listeners();

    let handle = relay(&store, listeners, short()).spawn().await.unwrap();

    let heard = next(&mut hears, 3).await;
    assert!(store.is_spent());
    assert!(heard.iter().filter(|number| **number < 3).is_sorted());
    handle.stop().await.unwrap();
}

/// Repeated, it applies to nothing: written before, and none comes twice because of that.
pub(crate) async fn a_settle_whose_answer_is_lost_delivers_nothing_twice(place: &Place) {
    let store = FaultyStore::new(place.store());
    (0..4).for_each(|_| store.next(Call::Settle, Fault::LoseAnswer));
    let (listeners, mut hears) = Script::default().fail(3, 2).fail(7, 1).listeners();
    let relay = relay(&store, listeners, by_rows());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 0..20 {
        place.commit(&outbox, vec![keyed("k", number)]).await;
    }

    assert_eq!(next(&mut hears, 20).await, (0..20).collect::<Vec<_>>());
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "the answer was lost, not the verdict: none comes twice");
}

/// The batch is split until the one that cannot be written stands alone.
pub(crate) async fn a_verdict_that_is_refused_keeps_no_other_from_being_written(place: &Place) {
    let store = FaultyStore::new(place.store());
    (0..3).for_each(|_| store.next(Call::Settle, Fault::Refuse));
    let (listeners, mut hears) = Script::default().listeners();
    place.commit(&Outbox::new(), (0..40).map(free).collect()).await;

    let handle = relay(&store, listeners, by_rows()).spawn().await.unwrap();

    next(&mut hears, 40).await;
    all_settled(place).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "none comes twice");
}

/// Wherever the driver panics, the relay goes on.
pub(crate) async fn a_store_that_panics_is_asked_again(place: &Place) {
    let store = FaultyStore::new(place.store());
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners, short()).spawn().await.unwrap();

    for (number, call) in (1..).zip([Call::Renew, Call::Read, Call::Settle, Call::Renew]) {
        store.next(call, Fault::Panic);
        place.commit(&Outbox::new(), vec![keyed("k", number)]).await;
        assert_eq!(next(&mut hears, 1).await, [number]);
        wait_for(async || store.is_spent().then_some(())).await;
    }

    place.commit(&Outbox::new(), vec![keyed("k", 9)]).await;
    assert_eq!(next(&mut hears, 1).await, [9]);
    handle.stop().await.unwrap();
}

/// Calls of every kind fail for a while.
pub(crate) async fn an_outage_is_survived(place: &Place) {
    let store = FaultyStore::new(place.store());
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners, by_rows()).spawn().await.unwrap();
    for call in [Call::Renew, Call::AcquireShards, Call::Read, Call::Settle] {
        (0..4).for_each(|_| store.next(call, Fault::Fail));
    }

    place.commit(&Outbox::new(), (0..10).map(|n| keyed("k", n)).collect()).await;

    assert_eq!(next(&mut hears, 10).await, (0..10).collect::<Vec<_>>());
    all_settled(place).await;
    handle.stop().await.unwrap();
}
