//! Reads beside commits and settles: nothing is overtaken, nothing comes twice.

use std::iter;

use pillarbox::store::{Operation, Status};
use pillarbox::{Failure, Outbox, RelaySettings};
use pillarbox_testkit::fake::{Call, Side};
use pillarbox_testkit::{Backend, Need, OwnTx as _};

use super::fixture::{
    AGES, ControlledRelay, Deliveries, commit, count, event_with, keys_of_one_shard, lacks, still,
};
use crate::fixture::keyed;

/// H1: a low db that is committed late lies below the floor; the next of its key must not come
/// first. R1: a row above the floor counts only if nothing of its key waits at or below it.
pub(crate) async fn a_commit_below_the_floor_is_not_overtaken_by_its_key<B: Backend>(backend: &B) {
    if lacks(backend, Need::ConcurrentWriters) {
        return;
    }
    let [late, crowd, other] = keys_of_one_shard(backend).await;
    let (mut deliveries, listeners) = Deliveries::new([]);
    let small = RelaySettings { batch: count(32), ..still() };
    let relay = ControlledRelay::start(backend, listeners, |relay| relay.settings(small)).await;
    let mut slow = backend.own().await;
    slow.emit(&Outbox::new(), keyed(&late, 1)).await.unwrap();
    // More than two pages of rows that wait behind their head: the floor rises above them.
    let head = keyed(&crowd, 10).deliver_after(AGES);
    let tail = (11..110).map(|number| keyed(&crowd, number));
    commit(backend, &Outbox::new(), iter::once(head).chain(tail)).await;
    commit(backend, &relay.outbox, [keyed(&other, 2)]).await;
    assert_eq!(deliveries.next(1).await, [2], "it is behind the others, and so is the floor");

    slow.commit().await.unwrap();
    commit(backend, &relay.outbox, [keyed(&late, 3)]).await;

    assert_eq!(deliveries.next(2).await, [1, 3]);
    relay.leave().await;
}

/// A `seq` is assigned at the insert, and commits come in any order: a relay that went on above what it
/// has seen would never find one that commits late.
pub(crate) async fn a_late_commit_is_found<B: Backend>(backend: &B) {
    if lacks(backend, Need::ConcurrentWriters) {
        return;
    }
    let [late, other, _] = keys_of_one_shard(backend).await;
    let (mut deliveries, listeners) = Deliveries::new([]);
    let relay = ControlledRelay::start(backend, listeners, |relay| relay).await.with_shards().await;
    let mut slow = backend.own().await;
    slow.emit(&Outbox::new(), keyed(&late, 1)).await.unwrap();
    for number in [2, 3] {
        let ids = commit(backend, &Outbox::new(), [keyed(&other, number)]).await;
        relay.handle.wake();
        assert_eq!(deliveries.next(1).await, [number]);
        event_with(backend, &ids[0], Status::Done).await;
    }

    slow.commit().await.unwrap();
    relay.handle.wake();

    assert_eq!(deliveries.next(1).await, [1]);
    relay.leave().await;
}

/// H1: an owner that reads only new and retried rows does not see a held head, and starts what
/// is behind it. R2: held is data, a pending row like any other.
pub(crate) async fn a_new_owner_leaves_a_held_key_waiting<B: Backend>(backend: &B) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let first = ControlledRelay::start(backend, listeners, |relay| relay).await;
    let ids = commit(backend, &first.outbox, [keyed("k", 1), keyed("k", 2)]).await;
    assert_eq!(deliveries.next(1).await, [1]);
    deliveries.answer(1, Err(Failure::dead("no such customer")));
    event_with(backend, &ids[0], Status::Held).await;
    first.leave().await;

    let (mut deliveries, listeners) = Deliveries::new([]);
    let successor =
        ControlledRelay::start(backend, listeners, |relay| relay).await.with_shards().await;
    commit(backend, &successor.outbox, [keyed("other", 9)]).await;
    assert_eq!(deliveries.next(1).await, [9], "the held key waits");

    backend.store().operate(&Operation::replay([ids[0].clone()])).await.unwrap();
    successor.handle.wake();
    assert_eq!(deliveries.next(2).await, [1, 2]);
    successor.leave().await;
}

/// H2: a read has seen the row, its delivery is settled, and only then the read is taken in. R3: a
/// row stays in memory until every read that began before its settle has been taken in.
pub(crate) async fn a_read_that_overlaps_a_settle_starts_nothing_twice<B: Backend>(backend: &B) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let relay = ControlledRelay::start(backend, listeners, |relay| relay).await;
    let ids = commit(backend, &relay.outbox, [keyed("k", 1)]).await;
    assert_eq!(deliveries.next(1).await, [1]);
    let mut read = relay.store.hold(Call::Read, Side::After);
    relay.handle.wake();
    read.reached().await;

    deliveries.answer(1, Ok(()));
    event_with(backend, &ids[0], Status::Done).await;
    relay.catches_up(backend, &mut deliveries).await;
    read.release();

    commit(backend, &relay.outbox, [keyed("k", 2)]).await;
    assert_eq!(deliveries.next(1).await, [2]);
    relay.leave().await;
    assert!(deliveries.is_idle());
}

/// H2: a read has seen the head and what is behind it; the head dies and is replayed, and only then
/// the read is taken in. R3: a verdict of death discards the reads under way for its key.
pub(crate) async fn a_read_that_overlaps_a_death_starts_nothing_before_the_replay<B: Backend>(
    backend: &B,
) {
    let (mut deliveries, listeners) = Deliveries::new([1]);
    let relay = ControlledRelay::start(backend, listeners, |relay| relay).await;
    let ids = commit(backend, &relay.outbox, [keyed("k", 1)]).await;
    assert_eq!(deliveries.next(1).await, [1]);
    let mut request = relay.store.hold(Call::Read, Side::Before);
    relay.handle.wake();
    request.reached().await;
    commit(backend, &Outbox::new(), [keyed("k", 2)]).await;
    let mut answer = relay.store.hold(Call::Read, Side::After);
    request.release();
    answer.reached().await;

    deliveries.answer(1, Err(Failure::dead("no such customer")));
    event_with(backend, &ids[0], Status::Held).await;
    relay.catches_up(backend, &mut deliveries).await;
    backend.store().operate(&Operation::replay([ids[0].clone()])).await.unwrap();
    answer.release();

    relay.handle.wake();
    assert_eq!(deliveries.next(2).await, [1, 2]);
    relay.leave().await;
}
