//! Leases: who is alive.

use pillarbox::store::Renewal;

use crate::backend::Backend;
use crate::conformance::owner::Owner;

/// A renewal by an owner that joined is kept.
pub async fn a_lease_is_renewed<B: Backend>(backend: &B) {
    let owner = Owner::joined(backend).await;

    assert_eq!(owner.renew().await, Renewal::Kept);
    assert_eq!(owner.renew().await, Renewal::Kept);
}

/// A renewal after `leave` is lost.
pub async fn an_owner_that_left_has_lost_its_lease<B: Backend>(backend: &B) {
    let owner = Owner::joined(backend).await;

    owner.store.leave(&owner.id).await.unwrap();

    assert_eq!(owner.renew().await, Renewal::Lost);
    assert_eq!(backend.store().stats().await.unwrap().owners, 0);
}

/// A renewal after another owner's takeover is lost, and stays lost.
pub async fn an_owner_that_was_removed_has_lost_its_lease<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    let mut successor = Owner::joined(backend).await;

    backend.expire(&gone.id).await;
    successor.acquire(u16::MAX).await;

    assert_eq!(gone.renew().await, Renewal::Lost);
    assert_eq!(gone.renew().await, Renewal::Lost);
    assert_eq!(successor.renew().await, Renewal::Kept);
}

/// A lapsed lease that nobody took over is renewed, and protects its shards again.
pub async fn a_lapsed_lease_is_renewed_until_it_is_taken_over<B: Backend>(backend: &B) {
    let late = Owner::of_all(backend).await;
    let mut other = Owner::joined(backend).await;
    backend.expire(&late.id).await;

    assert_eq!(late.renew().await, Renewal::Kept);

    assert!(other.acquire(u16::MAX).await.is_empty(), "the renewed owner's shards were taken");
}

/// An owner that never joined takes nothing.
pub async fn an_unknown_owner_acquires_nothing<B: Backend>(backend: &B) {
    let mut unknown = Owner::unknown(backend);

    assert!(unknown.acquire(u16::MAX).await.is_empty());
    assert_eq!(unknown.renew().await, Renewal::Lost);
    assert!(!Owner::of_all(backend).await.owned.is_empty(), "the shards are still free");
}

/// An owner whose own lease lapsed and was removed takes nothing until it joins again.
pub async fn a_removed_owner_acquires_nothing<B: Backend>(backend: &B) {
    let mut gone = Owner::of_all(backend).await;
    let mut successor = Owner::joined(backend).await;
    backend.expire(&gone.id).await;
    let taken = successor.acquire(u16::MAX).await;
    successor.release(&taken).await;

    assert!(gone.acquire(u16::MAX).await.is_empty());
}
