//! Owners and their fences: what a relay may still do when its shards are another's.

use std::num::NonZeroU32;
use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use pillarbox::store::{ClaimMode, DeliveryMode, Lease, Order, Renewal, Status};
use pillarbox::telemetry::RelayEvent;
use pillarbox::{ErrorKind, Listeners, Outbox, Relay, RelaySettings, Verdict};
use pillarbox_testkit::fake::{Call, Side};
use pillarbox_testkit::{Backend, Hold, Need};

use super::fixture::{
    AGES, ControlledRelay, Deliveries, Owner, commit, event, event_with, keys_of_one_shard, lacks,
    still,
};
use crate::fixture::{free, keyed};
use crate::telemetry::soon;

/// H3: a verdict of a relay that was taken over from must change nothing, and nothing more of the
/// shard is started after it. R4: the fence is a lock; the first refused settle drops the shard.
pub(crate) async fn after_a_refused_settle_nothing_starts_in_the_shard<B: Backend>(backend: &B) {
    let [one, two, _] = keys_of_one_shard(backend).await;
    let (mut deliveries, listeners) = Deliveries::new([1]);
    // The second of the shard is in memory, and cannot start before the first is settled.
    let alone =
        RelaySettings { workers: NonZeroU32::MIN, max_unsettled: NonZeroU32::MIN, ..still() };
    let ids = commit(backend, &Outbox::new(), [keyed(&one, 1), keyed(&two, 2)]).await;
    let stale = ControlledRelay::start(backend, listeners, |relay| relay.settings(alone)).await;
    assert_eq!(deliveries.next(1).await, [1]);

    let successor = Owner::overtake(backend, &stale.owner).await;
    deliveries.answer(1, Ok(()));
    stale.is_fenced().await;

    // It needs no shard, and comes after the settle has been taken in.
    commit(backend, &stale.outbox, [free(3)]).await;
    assert_eq!(deliveries.next(1).await, [3]);
    stale.leave().await;
    assert!(deliveries.is_idle(), "the other event of the shard is the successor's");
    assert_eq!(event(backend, &ids[0]).await.status, Status::New);
    assert_eq!(successor.settle(&successor.read().await, &Verdict::Done).await, 2);
}

/// H14: a settle is stuck behind a lock, and the lease of a healthy relay runs out. R14: the lease
/// is a row of its own, which no settle locks.
pub(crate) async fn a_settle_that_waits_for_a_row_does_not_keep_the_lease_from_being_renewed<
    B: Backend,
>(
    backend: &B,
) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let relay = ControlledRelay::start(backend, listeners, |relay| relay).await;
    let ids = commit(backend, &relay.outbox, [keyed("k", 1)]).await;
    assert_eq!(deliveries.next(1).await, [1]);
    let lock = backend.hold(Hold::Event(event(backend, &ids[0]).await.seq)).await;
    deliveries.answer(1, Ok(()));
    backend.blocked(1).await;

    let store = backend.store();
    let lease = Lease { owner: relay.owner.clone(), length: AGES, wants: 64 };
    let renewed = match select(pin!(store.renew(&lease)), pin!(backend.blocked(2))).await {
        Either::Left((renewed, _)) => renewed.unwrap(),
        Either::Right(_) => panic!("the renewal waits for the settle"),
    };

    assert_eq!(renewed, Renewal::Kept);
    lock.commit().await;
    event_with(backend, &ids[0], Status::Done).await;
    relay.leave().await;
}

/// H13: an owner of shards writes no claim, and a claimer reads no shard: both would deliver.
/// R13: the tables say how they are claimed, and a relay that means otherwise does not start.
pub(crate) async fn a_relay_refuses_tables_that_are_claimed_otherwise<B: Backend>(backend: &B) {
    let rows = DeliveryMode { claim: ClaimMode::Rows, order: Order::Key };
    backend.store().configure(&rows).await.unwrap();

    let refused = Relay::new(backend.store(), Listeners::new()).spawn().await.unwrap_err();

    assert_eq!(refused.kind(), ErrorKind::Configuration);
    assert_eq!(backend.store().stats().await.unwrap().owners, 0);
}

/// R15: a relay that loses a shard and takes it again finds its own old delivery under way. It waits
/// for that, and delivers once more only because the verdict of the old one does not count.
pub(crate) async fn a_relay_that_takes_its_shard_again_waits_for_its_own_old_delivery<
    B: Backend,
>(
    backend: &B,
) {
    if backend.store().config().await.unwrap().shards.get() == 1 {
        return pillarbox_testkit::skip("there is one shard, and nobody else can hold another");
    }
    let [one, two, _] = keys_of_one_shard(backend).await;
    // A relay that does not own all shards checks at every poll whether it is still a member.
    let _keeper = Owner::join_for(backend, 1).await;
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let restless = RelaySettings { poll: Duration::from_millis(20), ..still() };
    let relay = ControlledRelay::start(backend, listeners, |relay| relay.settings(restless)).await;
    let ids = commit(backend, &relay.outbox, [keyed(&one, 1)]).await;
    assert_eq!(deliveries.next(1).await, [1]);

    let mut renewal = relay.store.hold(Call::Renew, Side::Before);
    backend.expire(&relay.owner).await;
    renewal.reached().await;
    Owner::join(backend).await.leave().await;
    renewal.release();
    soon(&relay.probe, |seen| matches!(seen, RelayEvent::LeaseLost { .. })).await;
    commit(backend, &relay.outbox, [keyed(&two, 2)]).await;

    assert_eq!(
        deliveries.next(1).await,
        [2],
        "the shard is held again, and the first is under way"
    );
    relay.catches_up(backend, &mut deliveries).await;
    deliveries.answer(1, Ok(()));
    assert_eq!(deliveries.next(1).await, [1], "its verdict was of another epoch");
    event_with(backend, &ids[0], Status::Done).await;
    relay.leave().await;
    assert!(deliveries.is_idle());
}
