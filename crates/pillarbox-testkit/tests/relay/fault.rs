//! Database faults under a running relay.

use std::time::Duration;

use pillarbox::store::ClaimMode;
use pillarbox::{Backoff, ErrorKind, Listeners, Outbox, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};

use crate::fixture::{Script, TestDatabase, free, keyed, next, quick, wait_for};

/// The database has assigned the shards, and the relay does not know it.
pub(crate) async fn a_lost_answer_to_an_acquire_strands_no_shard(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    store.next(Call::AcquireShards, Fault::LoseAnswer);
    store.next(Call::AcquireShards, Fault::LoseAnswer);
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(&store, listeners, ClaimMode::Shards).spawn().await.unwrap();

    db.commit(&Outbox::new(), vec![keyed("k", 1), free(2)]).await;

    next(&mut received, 2).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
}

/// The rows are leased and the relay does not know it: they are delivered after the lease.
pub(crate) async fn a_lost_answer_to_a_claim_strands_no_event(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    store.next(Call::Read, Fault::LoseAnswer);
    db.commit(&Outbox::new(), vec![keyed("k", 1), keyed("k", 2), free(3)]).await;
    let (listeners, mut received) = Script::default().listeners();

    let handle = relay(&store, listeners, ClaimMode::Rows).spawn().await.unwrap();

    let numbers = next(&mut received, 3).await;
    assert!(store.is_spent());
    assert!(numbers.iter().filter(|number| **number < 3).is_sorted());
    handle.stop().await.unwrap();
}

/// The repeated settle changes nothing, and no event overtakes another because of it.
pub(crate) async fn a_lost_answer_to_a_settle_keeps_the_order(db: &TestDatabase, claim: ClaimMode) {
    let store = FaultyStore::new(db.store());
    for _ in 0..4 {
        store.next(Call::Settle, Fault::LoseAnswer);
    }
    let script = Script::default().fail(3, 2).fail(7, 1).fail(11, 2);
    let (listeners, mut received) = script.listeners();
    let relay = relay(&store, listeners, claim);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 0..30 {
        db.commit(&outbox, vec![keyed("k", number)]).await;
    }

    assert_eq!(next(&mut received, 30).await, (0..30).collect::<Vec<_>>());
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "the answer was lost, not the verdict: none comes twice");
}

/// The batch is split until the one that cannot be written stands alone.
pub(crate) async fn a_refused_verdict_does_not_block_the_others(
    db: &TestDatabase,
    claim: ClaimMode,
) {
    let store = FaultyStore::new(db.store());
    for _ in 0..3 {
        store.next(Call::Settle, Fault::Refuse);
    }
    let (listeners, mut received) = Script::default().listeners();
    db.commit(&Outbox::new(), (0..40).map(free).collect()).await;

    let handle = relay(&store, listeners, claim).spawn().await.unwrap();

    next(&mut received, 40).await;
    all_settled(db).await;
    assert!(store.is_spent());
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err(), "none comes twice");
}

/// The relay goes on wherever the driver panics.
pub(crate) async fn a_panicking_store_is_called_again(db: &TestDatabase, claim: ClaimMode) {
    let store = FaultyStore::new(db.store());
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(&store, listeners, claim).spawn().await.unwrap();

    for (number, call) in (1..).zip([Call::Renew, Call::Read, Call::Settle, Call::Renew]) {
        store.next(call, Fault::Panic);
        db.commit(&Outbox::new(), vec![keyed("k", number)]).await;
        assert_eq!(next(&mut received, 1).await, [number]);
        wait_for(async || store.is_spent().then_some(())).await;
    }

    db.commit(&Outbox::new(), vec![keyed("k", 9)]).await;
    assert_eq!(next(&mut received, 1).await, [9]);
    handle.stop().await.unwrap();
}

/// Calls of every kind fail for a while.
pub(crate) async fn an_outage_is_survived(db: &TestDatabase, claim: ClaimMode) {
    let store = FaultyStore::new(db.store());
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(&store, listeners, claim).spawn().await.unwrap();
    for call in [Call::Renew, Call::AcquireShards, Call::Read, Call::Settle] {
        (0..4).for_each(|_| store.next(call, Fault::Fail));
    }

    db.commit(&Outbox::new(), (0..10).map(|n| keyed("k", n)).collect()).await;

    assert_eq!(next(&mut received, 10).await, (0..10).collect::<Vec<_>>());
    all_settled(db).await;
    handle.stop().await.unwrap();
}

/// The spawn fails, instead of the relay later.
pub(crate) async fn a_failed_start_is_reported_at_once(db: &TestDatabase) {
    let store = FaultyStore::new(db.store());
    store.next(Call::Join, Fault::Fail);

    let error = relay(&store, Listeners::new(), ClaimMode::Shards).spawn().await.unwrap_err();

    assert_eq!(error.kind(), ErrorKind::Unavailable);
}

async fn all_settled(db: &TestDatabase) {
    let store = db.store();
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
