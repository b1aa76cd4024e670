//! Ahead: leases that were written by a database clock that was ahead, and is right again.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use pillarbox::store::{Budget, Claim, DeliveryMode, Order, Pending, Renewal, ShardOrigin};
use pillarbox::tx::{Begin as _, Insert, LocalLease, OpenTx as _};
use pillarbox::{ErrorKind, EventId, Tables};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::owner::{
    ALL, LEASE, Owner, emit_one, find, free, id_of, keyed, shards, shards_of,
};
use crate::run::lacks;

/// More than twice as long as any lease of these cases.
const AHEAD: Duration = Duration::from_secs(3 * 86_400);

/// The shards of such an owner go to the next one that takes.
pub async fn shards_are_taken_over<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    backend.clock_was_ahead(AHEAD).await;
    let mut successor = Owner::joined(backend).await;

    let taken = successor.acquire(u16::MAX).await;

    assert_eq!(shards_of(&taken), shards_of(&gone.owned));
    assert!(taken.iter().all(|shard| shard.origin == ShardOrigin::Lapsed));
    assert_eq!(gone.renew().await, Renewal::Lost);
}

/// Such an owner is no member, and is not counted as living.
pub async fn the_owner_is_not_alive<B: Backend>(backend: &B) {
    Owner::of_all(backend).await;
    backend.clock_was_ahead(AHEAD).await;

    assert!(backend.store().members().await.unwrap().is_empty());
    let stats = backend.store().stats().await.unwrap();
    assert_eq!((stats.owners, stats.owned_shards), (0, 0));
}

/// Such an owner does not keep the mode as it is.
pub async fn the_mode_can_be_changed<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    let rows = DeliveryMode { order: Order::None, ..DeliveryMode::default() };
    let refused = backend.store().configure(&rows).await.unwrap_err();
    assert_eq!(refused.kind(), ErrorKind::Configuration);
    backend.clock_was_ahead(AHEAD).await;

    backend.store().configure(&rows).await.unwrap();

    assert_eq!(gone.renew().await, Renewal::Lost);
}

/// An owner that lives on renews, and is alive again.
pub async fn a_renewal_corrects_the_lease<B: Backend>(backend: &B) {
    let owner = Owner::of_all(backend).await;
    let mut other = Owner::joined(backend).await;
    backend.clock_was_ahead(AHEAD).await;

    assert_eq!(owner.renew().await, Renewal::Kept);
    assert_eq!(other.renew().await, Renewal::Kept);

    assert!(other.acquire(u16::MAX).await.is_empty());
    assert_eq!(backend.store().stats().await.unwrap().owners, 2);
}

/// A clock that was set back by less than a lease costs nobody the lease.
pub async fn a_small_step_back_changes_nothing<B: Backend>(backend: &B) {
    let owner = Owner::of_all(backend).await;
    backend.clock_was_ahead(LEASE - Duration::from_secs(60)).await;
    let mut other = Owner::joined(backend).await;

    assert!(other.acquire(u16::MAX).await.is_empty());

    assert_eq!(owner.renew().await, Renewal::Kept);
}

/// Rows that such an owner has claimed can be claimed as soon as its shards were taken.
pub async fn claimed_rows_are_due_after_the_takeover<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    // Written by a clock that was right: the event itself is due.
    backend.age(&id, AHEAD).await;
    let gone = Owner::of_all(backend).await;
    assert_eq!(claim(&gone).await.len(), 1);
    backend.clock_was_ahead(AHEAD).await;
    let mut successor = Owner::joined(backend).await;

    successor.acquire(u16::MAX).await;

    let rows = claim(&successor).await;
    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), [&id]);
    assert!(rows[0].lapsed);
}

/// A row that somebody has locked keeps its lease, and nobody waits for it.
pub async fn a_locked_row_does_not_delay_the_takeover<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    let ids = [emit_one(backend, keyed("a")).await, emit_one(backend, keyed("b")).await];
    // Written by a clock that was right: the events themselves are due.
    for id in &ids {
        backend.age(id, AHEAD).await;
    }
    let gone = Owner::of_all(backend).await;
    let rows = claim(&gone).await;
    assert_eq!(rows.len(), 2);
    backend.clock_was_ahead(AHEAD).await;
    let mut successor = Owner::joined(backend).await;
    let lock = backend.hold(Hold::Event(find(&rows, &ids[0]).unwrap().seq)).await;

    match select(pin!(successor.acquire(u16::MAX)), pin!(backend.blocked(1))).await {
        Either::Left((taken, _)) => assert_eq!(shards_of(&taken), shards_of(&gone.owned)),
        Either::Right(_) => panic!("the takeover waits for a row that it could pass"),
    }

    lock.commit().await;
    assert_eq!(claim(&successor).await.iter().map(id_of).collect::<Vec<_>>(), [&ids[1]]);
}

/// Rows that were born under such a lease are read as lapsed by the new owner of their shard.
pub async fn rows_born_leased_are_due_after_the_takeover<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    let id = write_hot(backend, &gone).await;
    backend.clock_was_ahead(AHEAD).await;
    let mut successor = Owner::joined(backend).await;

    successor.acquire(u16::MAX).await;

    let rows = successor.read().await;
    let row = find(&rows, &id).unwrap();
    assert!(row.lapsed, "{row:?}");
    assert_eq!(backend.store().reclaim(&[row.into()]).await.unwrap(), 1);
}

/// The leases that living owners have on rows stay as they are.
pub async fn rows_of_the_living_stay_leased<B: Backend>(backend: &B) {
    Owner::of_all(backend).await;
    backend.clock_was_ahead(AHEAD).await;
    let id = emit_one(backend, keyed("a")).await;
    let mut living = Owner::joined(backend).await;
    assert_eq!(claim(&living).await.len(), 1);

    living.acquire(u16::MAX).await;

    let rows = living.read().await;
    assert!(!find(&rows, &id).unwrap().due_in.is_zero());
    assert!(claim(&Owner::joined(backend).await).await.is_empty());
}

async fn claim(owner: &Owner) -> Vec<Pending> {
    let shards = shards(&*owner.store).await;
    let (owner_id, order) = (owner.id.clone(), Order::Key);
    let budget = Budget::unlimited();
    let claim =
        Claim { owner: owner_id, length: LEASE, shards, after: None, limit: ALL, order, budget };
    owner.store.claim(&claim).await.unwrap()
}

async fn write_hot<B: Backend>(backend: &B, owner: &Owner) -> EventId {
    let (tables, envelopes) = (Tables::default(), [free()]);
    let hot = Some(LocalLease { owner: &owner.id, length: LEASE, keyed: false });
    let mut tx = backend.pool().begin().await.unwrap();
    tx.insert(&Insert { tables: &tables, envelopes: &envelopes, locks: &[], hot }).await.unwrap();
    tx.commit().await.unwrap();
    envelopes[0].event_id().clone()
}
