//! The database goes wrong under a relay.

use std::time::Duration;

use pillarbox::{Backoff, ErrorKind, Listeners, Outbox, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};

use crate::fixture::{Place, Script, free, keyed, next, quick, wait_for};

/// The database says that the shards are ours, and nobody told us.
pub(crate) async fn a_take_whose_answer_is_lost_strands_nothing(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::AcquireShards, Fault::LoseAnswer);
    store.next(Call::AcquireShards, Fault::LoseAnswer);
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners).spawn().await.unwrap();

    place.commit(&Outbox::new(), vec![keyed("k", 1), free(2)]).await;

    next(&mut hears, 2).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
}

/// Repeated, it applies to nothing: written before, and nothing may overtake because of that.
pub(crate) async fn a_settle_whose_answer_is_lost_keeps_the_order(place: &Place) {
    let store = FaultyStore::new(place.store());
    for _ in 0..4 {
        store.next(Call::Settle, Fault::LoseAnswer);
    }
    let script = Script::default().fail(3, 2).fail(7, 1).fail(11, 2);
    let (listeners, mut hears) = script.listeners();
    let relay = relay(&store, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 0..30 {
        place.commit(&outbox, vec![keyed("k", number)]).await;
    }

    assert_eq!(next(&mut hears, 30).await, (0..30).collect::<Vec<_>>());
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "the answer was lost, not the verdict: none comes twice");
}

/// The batch is split until the one that cannot be written stands alone.
pub(crate) async fn a_verdict_that_is_refused_keeps_no_other_from_being_written(place: &Place) {
    let store = FaultyStore::new(place.store());
    for _ in 0..3 {
        store.next(Call::Settle, Fault::Refuse);
    }
    let (listeners, mut hears) = Script::default().listeners();
    place.commit(&Outbox::new(), (0..40).map(free).collect()).await;

    let handle = relay(&store, listeners).spawn().await.unwrap();

    next(&mut hears, 40).await;
    let inner = place.store();
    wait_for(async || (inner.stats().await.unwrap().new == 0).then_some(())).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "none comes twice");
}

/// Wherever the driver panics, the relay goes on.
pub(crate) async fn a_store_that_panics_is_asked_again(place: &Place) {
    let store = FaultyStore::new(place.store());
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners).spawn().await.unwrap();

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
    let handle = relay(&store, listeners).spawn().await.unwrap();
    for call in [Call::Renew, Call::AcquireShards, Call::Read, Call::Settle] {
        (0..4).for_each(|_| store.next(call, Fault::Fail));
    }

    place.commit(&Outbox::new(), (0..10).map(|n| keyed("k", n)).collect()).await;

    assert_eq!(next(&mut hears, 10).await, (0..10).collect::<Vec<_>>());
    let inner = place.store();
    wait_for(async || (inner.stats().await.unwrap().new == 0).then_some(())).await;
    handle.stop().await.unwrap();
}

/// Not by a relay that ends in silence.
pub(crate) async fn a_start_that_fails_is_told_at_once(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::Join, Fault::Fail);

    let error = relay(&store, Listeners::new()).spawn().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

/// A lease that is renewed soon, and that nobody else could take.
fn relay(store: &FaultyStore, listeners: Listeners) -> Relay {
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5));
    let (lease, delivery_timeout) = (Duration::from_secs(3), Duration::from_secs(2));
    let settings = RelaySettings { lease, delivery_timeout, ..quick() };
    Relay::new(store.clone(), listeners).settings(settings).retry(backoff)
}
