//! DeliveryMode: one way to claim and to order rows, for everyone at work on the tables.

use futures_util::future::join;
use pillarbox::store::{ClaimMode, DeliveryMode, Join, Order, Renewal};
use pillarbox::{Error, ErrorKind};

use crate::backend::Backend;
use crate::conformance::claimer::store_apart;
use crate::conformance::owner::Owner;

/// Until someone says otherwise, relays own shards and keys are in order.
pub async fn tables_begin_in_the_default_mode<B: Backend>(backend: &B) {
    assert_eq!(mode(backend).await, DeliveryMode::default());
}

/// The mode that was set is reported to everyone, also after another migration.
pub async fn the_configured_mode_is_reported<B: Backend>(backend: &B) {
    let store = backend.store();
    let before = store.config().await.unwrap();
    for mode in modes() {
        store.configure(&mode).await.unwrap();
        store.migrate().await.unwrap();

        let layout = store_apart(backend).await.config().await.unwrap();

        assert_eq!((layout.mode, layout.shards), (mode, before.shards));
    }
}

/// The mode does not change while there is an owner.
pub async fn the_mode_does_not_change_while_an_owner_is_alive<B: Backend>(backend: &B) {
    let store = backend.store();
    let owner = Owner::joined(backend).await;
    for mode in modes().into_iter().filter(|mode| *mode != DeliveryMode::default()) {
        refused(store.configure(&mode).await);
    }
    assert_eq!(self::mode(backend).await, DeliveryMode::default());

    store.leave(&owner.id).await.unwrap();

    store.configure(&rows()).await.unwrap();
    assert_eq!(mode(backend).await, rows());
}

/// An owner whose lease is over is in nobody's way, though nobody has removed it.
pub async fn a_lapsed_owner_does_not_keep_the_mode<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    backend.expire(&gone.id).await;

    backend.store().configure(&rows()).await.unwrap();

    assert_eq!(mode(backend).await, rows());
}

/// An owner whose lease was over when the mode changed does not come back to life in it.
pub async fn a_lapsed_owner_does_not_outlive_its_mode<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    backend.expire(&gone.id).await;
    backend.store().configure(&rows()).await.unwrap();

    assert_eq!(gone.renew().await, Renewal::Lost);
    assert_eq!(backend.store().stats().await.unwrap().owners, 0);
}

/// A lapsed owner that renews while the mode changes: one of the two sees the other.
pub async fn renewing_and_changing_the_mode_see_each_other<B: Backend>(backend: &B) {
    let (one, two) = join(store_apart(backend), store_apart(backend)).await;
    for _ in 0..40 {
        let owner = Owner::joined(backend).await;
        backend.expire(&owner.id).await;
        let (lease, wanted) = (owner.lease(), rows());

        let (renewed, changed) = join(one.renew(&lease), two.configure(&wanted)).await;

        let is_kept = renewed.unwrap() == Renewal::Kept;
        assert_ne!(is_kept, changed.is_ok(), "kept: {is_kept}, and {changed:?}");
        one.leave(&owner.id).await.unwrap();
        one.configure(&DeliveryMode::default()).await.unwrap();
    }
}

/// An owner that means to work otherwise is refused, and is not entered.
pub async fn an_owner_of_another_mode_cannot_join<B: Backend>(backend: &B) {
    let store = backend.store();
    for is in modes() {
        store.configure(&is).await.unwrap();
        for wanted in modes().into_iter().filter(|wanted| *wanted != is) {
            let owner = Owner::unknown(backend);

            refused(store.join(&entry(&owner, wanted)).await);

            assert_eq!(owner.renew().await, Renewal::Lost);
            assert_eq!(store.stats().await.unwrap().owners, 0);
        }
    }
}

/// An owner of the same mode is entered, whichever it is.
pub async fn an_owner_of_the_same_mode_can_join<B: Backend>(backend: &B) {
    let store = backend.store();
    for mode in modes() {
        store.configure(&mode).await.unwrap();
        let owner = Owner::unknown(backend);

        store.join(&entry(&owner, mode)).await.unwrap();

        assert_eq!(owner.renew().await, Renewal::Kept);
        store.leave(&owner.id).await.unwrap();
    }
}

/// An owner that joins again in another mode is refused, and its lease is not prolonged by it.
pub async fn an_owner_cannot_join_again_in_another_mode<B: Backend>(backend: &B) {
    let store = backend.store();
    let owner = Owner::joined(backend).await;
    backend.expire(&owner.id).await;

    refused(store.join(&entry(&owner, rows())).await);

    assert_eq!(store.stats().await.unwrap().owners, 0, "it is still lapsed");
}

/// An owner that joins while the mode changes: one of the two comes first, and the other sees it.
pub async fn joining_and_changing_the_mode_see_each_other<B: Backend>(backend: &B) {
    let (one, two) = join(store_apart(backend), store_apart(backend)).await;
    for _ in 0..40 {
        let owner = Owner::unknown(backend);
        let (entry, wanted) = (entry(&owner, DeliveryMode::default()), rows());

        let (entered, changed) = join(one.join(&entry), two.configure(&wanted)).await;

        let (is_entered, is_changed) = (entered.is_ok(), changed.is_ok());
        assert_ne!(is_entered, is_changed, "{entered:?} and {changed:?}");
        let expected = if is_changed { rows() } else { DeliveryMode::default() };
        assert_eq!(mode(backend).await, expected);
        assert_eq!(backend.store().stats().await.unwrap().owners, u64::from(is_entered));
        one.leave(&owner.id).await.unwrap();
        one.configure(&DeliveryMode::default()).await.unwrap();
    }
}

/// Every mode there is.
fn modes() -> Vec<DeliveryMode> {
    let claims = [ClaimMode::Rows, ClaimMode::None, ClaimMode::Shards];
    let of = |claim| [Order::None, Order::Key].map(|order| DeliveryMode { claim, order });
    claims.into_iter().flat_map(of).collect()
}

fn rows() -> DeliveryMode {
    DeliveryMode { claim: ClaimMode::Rows, order: Order::Key }
}

fn entry(owner: &Owner, mode: DeliveryMode) -> Join {
    Join { lease: owner.lease(), mode }
}

fn refused(result: Result<(), Error>) {
    assert_eq!(result.unwrap_err().kind(), ErrorKind::Configuration);
}

async fn mode<B: Backend>(backend: &B) -> DeliveryMode {
    backend.store().config().await.unwrap().mode
}
