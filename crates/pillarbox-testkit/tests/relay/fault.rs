//! The database goes wrong under a relay.

use std::time::Duration;

use pillarbox::store::ClaimMode;
use pillarbox::{Backoff, ErrorKind, Listeners, Outbox, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};

use crate::fixture::{Place, Script, free, keyed, next, quick, wait_for};

/// The database says that the shards are ours, and nobody told us.
pub(crate) async fn a_take_whose_answer_is_lost_strands_nothing(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::AcquireShards, Fault::LoseAnswer);
    store.next(Call::AcquireShards, Fault::LoseAnswer);
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners, ClaimMode::Shards).spawn().await.unwrap();

    place.commit(&Outbox::new(), vec![keyed("k", 1), free(2)]).await;

    next(&mut hears, 2).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
}

/// The rows are leased and nobody told us: they come when the lease is over.
pub(crate) async fn a_claim_whose_answer_is_lost_strands_nothing(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::Read, Fault::LoseAnswer);
    place.commit(&Outbox::new(), vec![keyed("k", 1), keyed("k", 2), free(3)]).await;
    let (listeners, mut hears) = Script::default().listeners();

    let handle = relay(&store, listeners, ClaimMode::Rows).spawn().await.unwrap();

    let heard = next(&mut hears, 3).await;
    assert!(store.is_spent());
    assert!(heard.iter().filter(|number| **number < 3).is_sorted());
    handle.stop().await.unwrap();
}

/// Repeated, it applies to nothing: written before, and nothing may overtake because of that.
pub(crate) async fn a_settle_whose_answer_is_lost_keeps_the_order(place: &Place, claim: ClaimMode) {
    let store = FaultyStore::new(place.store());
    for _ in 0..4 {
        store.next(Call::Settle, Fault::LoseAnswer);
    }
    let script = Script::default().fail(3, 2).fail(7, 1).fail(11, 2);
    let (listeners, mut hears) = script.listeners();
    let relay = relay(&store, listeners, claim);
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
pub(crate) async fn a_verdict_that_is_refused_keeps_no_other_from_being_written(
    place: &Place,
    claim: ClaimMode,
) {
    let store = FaultyStore::new(place.store());
    for _ in 0..3 {
        store.next(Call::Settle, Fault::Refuse);
    }
    let (listeners, mut hears) = Script::default().listeners();
    place.commit(&Outbox::new(), (0..40).map(free).collect()).await;

    let handle = relay(&store, listeners, claim).spawn().await.unwrap();

    next(&mut hears, 40).await;
    all_settled(place).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "none comes twice");
}

/// Wherever the driver panics, the relay goes on.
pub(crate) async fn a_store_that_panics_is_asked_again(place: &Place, claim: ClaimMode) {
    let store = FaultyStore::new(place.store());
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners, claim).spawn().await.unwrap();

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
pub(crate) async fn an_outage_is_survived(place: &Place, claim: ClaimMode) {
    let store = FaultyStore::new(place.store());
    let (listeners, mut hears) = Script::default().listeners();
    let handle = relay(&store, listeners, claim).spawn().await.unwrap();
    for call in [Call::Renew, Call::AcquireShards, Call::Read, Call::Settle] {
        (0..4).for_each(|_| store.next(call, Fault::Fail));
    }

    place.commit(&Outbox::new(), (0..10).map(|n| keyed("k", n)).collect()).await;

    assert_eq!(next(&mut hears, 10).await, (0..10).collect::<Vec<_>>());
    all_settled(place).await;
    handle.stop().await.unwrap();
}

/// Not by a relay that ends in silence.
pub(crate) async fn a_start_that_fails_is_told_at_once(place: &Place) {
    let store = FaultyStore::new(place.store());
    store.next(Call::Join, Fault::Fail);

    let error = relay(&store, Listeners::new(), ClaimMode::Shards).spawn().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

async fn all_settled(place: &Place) {
    let store = place.store();
    let is_settled = async || {
        let stats = store.stats().await.unwrap();
        (stats.new + stats.waiting == 0).then_some(())
    };
    wait_for(is_settled).await;
}

/// The lease is short, so that it is renewed soon.
fn relay(store: &FaultyStore, listeners: Listeners, claim: ClaimMode) -> Relay {
    let backoff = Backoff::new(Duration::from_millis(1), Duration::from_millis(5));
    let lease = Duration::from_secs(if claim == ClaimMode::Rows { 6 } else { 3 });
    let settings =
        RelaySettings { claim, lease, delivery_timeout: Duration::from_secs(2), ..quick() };
    Relay::new(store.clone(), listeners).settings(settings).retry(backoff)
}
