//! An operator's replay beside a settle whose answer was lost.

use pillarbox::Failure;
use pillarbox::store::{Operation, Status};
use pillarbox_testkit::Backend;
use pillarbox_testkit::fake::{Call, Fault, FaultyStore, Side};

use super::fixture::{ControlledRelay, Deliveries, commit, event_with};
use crate::fixture::{free, keyed};

/// H9: a verdict of death is written and its answer lost; an operator replays; the settle is
/// repeated by the same owner at the same epoch. R9: it carries the token as it was read, and the
/// replay has moved that on.
pub(crate) async fn a_repeated_settle_does_not_swallow_a_replay<B: Backend>(backend: &B) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let store = FaultyStore::new(backend.store());
    store.next(Call::Settle, Fault::LoseAnswer);
    let mut settle = store.hold(Call::Settle, Side::After);
    let relay = ControlledRelay::start_on(store, listeners, |relay| relay).await;
    let ids = commit(backend, &relay.outbox, [keyed("k", 1), keyed("k", 2)]).await;
    deliveries.answer(1, Err(Failure::dead("no such customer")));
    settle.reached().await;
    event_with(backend, &ids[0], Status::Held).await;

    backend.store().operate(&Operation::replay([ids[0].clone()])).await.unwrap();
    settle.release();

    assert_eq!(deliveries.next(3).await, [1, 1, 2], "dead, and replayed");
    event_with(backend, &ids[0], Status::Done).await;
    relay.leave().await;
}

/// H9: the same with a row that was born under its writer's lease, whose settle has no epoch at all.
pub(crate) async fn a_repeated_settle_of_a_leased_row_does_not_swallow_a_replay<B: Backend>(
    backend: &B,
) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let store = FaultyStore::new(backend.store());
    store.next(Call::Settle, Fault::LoseAnswer);
    let mut settle = store.hold(Call::Settle, Side::After);
    let relay = ControlledRelay::start_on(store, listeners, |relay| relay).await;
    let ids = commit(backend, &relay.outbox, [free(1)]).await;
    deliveries.answer(1, Err(Failure::dead("no such customer")));
    settle.reached().await;
    event_with(backend, &ids[0], Status::Dead).await;

    backend.store().operate(&Operation::replay([ids[0].clone()])).await.unwrap();
    settle.release();
    relay.is_fenced().await;
    relay.handle.wake();

    assert_eq!(deliveries.next(2).await, [1, 1], "dead, and replayed");
    event_with(backend, &ids[0], Status::Done).await;
    relay.leave().await;
}
