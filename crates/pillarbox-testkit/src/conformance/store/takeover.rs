//! Takeover: how shards change their owner.

use pillarbox::Epoch;
use pillarbox::store::{OwnedShard, ShardOrigin};

use crate::backend::Backend;
use crate::conformance::owner::{Owner, shards, shards_of};

/// The first taker gets every shard once, free.
pub async fn free_shards_come_with_a_first_epoch<B: Backend>(backend: &B) {
    let mut owner = Owner::joined(backend).await;
    let all = shards(&*backend.store()).await;

    let taken = owner.acquire(u16::MAX).await;

    assert_eq!(taken.len(), all.len());
    assert_eq!(shards_of(&taken), all.into_iter().collect());
    assert!(taken.iter().all(|shard| shard.origin == ShardOrigin::Free));
    assert!(taken.iter().all(|shard| shard.epoch > Epoch(0)));
}

/// What a lapsed owner held goes to the taker, one epoch later, and says so.
pub async fn lapsed_shards_are_acquired_with_the_next_epoch<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    let mut successor = Owner::joined(backend).await;

    backend.expire(&gone.id).await;
    let taken = successor.acquire(u16::MAX).await;

    assert_eq!(shards_of(&taken), shards_of(&gone.owned));
    for shard in taken {
        assert_eq!(shard.origin, ShardOrigin::Lapsed);
        assert_eq!(shard.epoch, next(epoch_in(&gone.owned, &shard)));
    }
}

/// A living owner's shards are not taken, also while another's lease lapses.
pub async fn a_living_owner_keeps_its_shards<B: Backend>(backend: &B) {
    let living = Owner::of_all(backend).await;
    let lapsed = Owner::joined(backend).await;
    let mut other = Owner::joined(backend).await;
    backend.expire(&lapsed.id).await;

    assert!(other.acquire(u16::MAX).await.is_empty());

    assert_eq!(living.release(&living.owned).await, living.owned.len() as u64);
}

/// A released shard is free for the next taker, one epoch later.
pub async fn released_shards_are_free_at_once<B: Backend>(backend: &B) {
    let first = Owner::of_all(backend).await;
    let mut next_one = Owner::joined(backend).await;
    let given = &first.owned[..1];

    assert_eq!(first.release(given).await, 1);
    let taken = next_one.acquire(u16::MAX).await;

    let epoch = next(given[0].epoch);
    assert_eq!(taken, [OwnedShard { shard: given[0].shard, epoch, origin: ShardOrigin::Free }]);
    assert_eq!(first.release(given).await, 0, "it was another's by then");
}

/// An owner that leaves frees everything, without a lapse.
pub async fn leaving_frees_every_shard<B: Backend>(backend: &B) {
    let leaver = Owner::of_all(backend).await;
    let mut successor = Owner::joined(backend).await;

    leaver.store.leave(&leaver.id).await.unwrap();
    let taken = successor.acquire(u16::MAX).await;

    assert_eq!(shards_of(&taken), shards_of(&leaver.owned));
    assert!(taken.iter().all(|shard| shard.origin == ShardOrigin::Free));
}

/// `most` is a limit, for free and for lapsed shards.
pub async fn no_more_shards_are_acquired_than_requested<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    let half = u16::try_from(all.div_ceil(2)).unwrap();
    let mut owner = Owner::joined(backend).await;

    assert!(owner.acquire(0).await.is_empty());
    assert_eq!(owner.acquire(half).await.len(), usize::from(half));
    assert_eq!(owner.acquire(u16::MAX).await.len(), all - usize::from(half));

    backend.expire(&owner.id).await;
    let mut successor = Owner::joined(backend).await;
    assert_eq!(successor.acquire(half).await.len(), usize::from(half));
    let rest = successor.acquire(u16::MAX).await;
    assert_eq!(rest.len(), all - usize::from(half));
    assert!(rest.iter().all(|shard| shard.origin == ShardOrigin::Lapsed), "lapsed stays lapsed");
}

/// Another acquire returns only new shards, and keeps the epochs of the owned ones.
pub async fn owned_shards_are_not_acquired_again<B: Backend>(backend: &B) {
    let mut owner = Owner::of_all(backend).await;
    let before = owner.owned.clone();

    assert!(owner.acquire(u16::MAX).await.is_empty());

    assert_eq!(owner.release(&before).await, before.len() as u64, "the epochs have not moved");
}

/// An owner that does not know what it holds gets it again, with the next epoch.
pub async fn shards_acquired_without_an_answer_are_acquired_again<B: Backend>(backend: &B) {
    let mut owner = Owner::of_all(backend).await;
    let unanswered = std::mem::take(&mut owner.owned);

    let again = owner.acquire(u16::MAX).await;

    assert_eq!(again.len(), unanswered.len());
    for shard in &again {
        assert_eq!(shard.epoch, next(epoch_in(&unanswered, shard)));
        assert_eq!(shard.origin, ShardOrigin::Free, "nobody died");
    }
}

/// A release with an epoch of the past does not free what came after.
pub async fn a_release_of_an_old_epoch_frees_nothing<B: Backend>(backend: &B) {
    let mut owner = Owner::of_all(backend).await;
    let old = owner.owned.clone();
    owner.release(&old).await;
    let again = owner.acquire(u16::MAX).await;

    assert_eq!(owner.release(&old).await, 0);

    let mut other = Owner::joined(backend).await;
    assert!(other.acquire(u16::MAX).await.is_empty());
    assert_eq!(owner.release(&again).await, again.len() as u64);
}

fn epoch_in(owned: &[OwnedShard], like: &OwnedShard) -> Epoch {
    owned.iter().find(|shard| shard.shard == like.shard).unwrap().epoch
}

fn next(epoch: Epoch) -> Epoch {
    Epoch(epoch.0 + 1)
}
