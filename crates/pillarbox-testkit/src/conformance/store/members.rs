//! Members: the living owners that want shards.

use pillarbox::Store;
use pillarbox::store::{Lease, Member};

use crate::backend::Backend;
use crate::conformance::owner::{Owner, shards};

/// Without owners there are no members.
pub async fn nobody_is_a_member_of_an_empty_store<B: Backend>(backend: &B) {
    assert_eq!(backend.store().members().await.unwrap(), []);
}

/// Each is listed with what it wants and holds, those that hold most first.
pub async fn live_owners_are_members_with_their_shard_counts<B: Backend>(backend: &B) {
    let all = u16::try_from(shards(&*backend.store()).await.len()).unwrap();
    let idle = entered(backend, 7).await;
    let mut holder = entered(backend, 9).await;
    holder.acquire(u16::MAX).await;

    let members = backend.store().members().await.unwrap();

    let holder = Member { owner: holder.id, wants: 9, owned: all };
    assert_eq!(members, [holder, Member { owner: idle.id, wants: 7, owned: 0 }]);
}

/// One that only writes, or is about to leave, takes part in nothing, whatever it still holds.
pub async fn an_owner_that_wants_no_shards_is_not_a_member<B: Backend>(backend: &B) {
    entered(backend, 0).await;
    let leaver = Owner::of_all(backend).await;
    assert_eq!(owners(&*backend.store()).await, [leaver.id.as_str()]);

    renew(&leaver, 0).await;

    assert_eq!(owners(&*backend.store()).await, [""; 0]);
}

/// The last renewal sets how many shards an owner wants.
pub async fn a_renewal_changes_the_wanted_shards<B: Backend>(backend: &B) {
    let owner = entered(backend, 1).await;

    renew(&owner, 2).await;

    assert_eq!(backend.store().members().await.unwrap()[0].wants, 2);
}

/// One whose lease is over is none, even before its shards are taken.
pub async fn a_lapsed_owner_is_not_a_member<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    let other = Owner::joined(backend).await;

    backend.expire(&gone.id).await;

    assert_eq!(owners(&*backend.store()).await, [other.id.as_str()]);
}

/// One that gave everything back is gone at once.
pub async fn an_owner_that_left_is_not_a_member<B: Backend>(backend: &B) {
    let leaver = Owner::of_all(backend).await;

    leaver.store.leave(&leaver.id).await.unwrap();

    assert_eq!(backend.store().members().await.unwrap(), []);
}

async fn entered<B: Backend>(backend: &B, wants: u16) -> Owner {
    let owner = Owner::joined(backend).await;
    renew(&owner, wants).await;
    owner
}

async fn renew(owner: &Owner, wants: u16) {
    owner.store.renew(&Lease { wants, ..owner.lease() }).await.unwrap();
}

async fn owners(store: &dyn Store) -> Vec<String> {
    let members = store.members().await.unwrap();
    members.into_iter().map(|member| member.owner.to_string()).collect()
}
