//! Takeover: how shards change hands.

use pillarbox::Epoch;
use pillarbox::store::{OwnedShard, ShardOrigin};

use crate::backend::Backend;
use crate::conformance::owner::{Owner, shards, shards_of};

/// The first taker gets every shard once, free.
pub async fn free_shards_come_with_a_first_epoch<B: Backend>(backend: &B) {
    let mut owner = Owner::joined(backend).await;
    let all = shards(&*backend.store()).await;

    let taken = owner.take(u16::MAX).await;

    assert_eq!(taken.len(), all.len());
    assert_eq!(shards_of(&taken), all.into_iter().collect());
    assert!(taken.iter().all(|holding| holding.origin == ShardOrigin::Free));
    assert!(taken.iter().all(|holding| holding.epoch > Epoch(0)));
}

/// What a lapsed owner held goes to the taker, one epoch later, and says so.
pub async fn lapsed_shards_go_to_the_taker_with_the_next_epoch<B: Backend>(backend: &B) {
    let gone = Owner::of_all(backend).await;
    let mut heir = Owner::joined(backend).await;

    backend.expire(&gone.id).await;
    let taken = heir.take(u16::MAX).await;

    assert_eq!(shards_of(&taken), shards_of(&gone.holdings));
    for holding in taken {
        assert_eq!(holding.origin, ShardOrigin::Lapsed);
        assert_eq!(holding.epoch, next(epoch_in(&gone.holdings, &holding)));
    }
}

/// A living owner's shards are not taken, also while another's lease lapses.
pub async fn a_living_owner_keeps_its_shards<B: Backend>(backend: &B) {
    let living = Owner::of_all(backend).await;
    let lapsed = Owner::joined(backend).await;
    let mut other = Owner::joined(backend).await;
    backend.expire(&lapsed.id).await;

    assert!(other.take(u16::MAX).await.is_empty());

    assert_eq!(living.release(&living.holdings).await, living.holdings.len() as u64);
}

/// A released shard is free for the next taker, one epoch later.
pub async fn released_shards_are_free_at_once<B: Backend>(backend: &B) {
    let first = Owner::of_all(backend).await;
    let mut next_one = Owner::joined(backend).await;
    let given = &first.holdings[..1];

    assert_eq!(first.release(given).await, 1);
    let taken = next_one.take(u16::MAX).await;

    let epoch = next(given[0].epoch);
    assert_eq!(taken, [OwnedShard { shard: given[0].shard, epoch, origin: ShardOrigin::Free }]);
    assert_eq!(first.release(given).await, 0, "it was another's by then");
}

/// An owner that leaves frees everything, without a lapse.
pub async fn leaving_frees_every_shard<B: Backend>(backend: &B) {
    let leaver = Owner::of_all(backend).await;
    let mut heir = Owner::joined(backend).await;

    leaver.store.leave(&leaver.id).await.unwrap();
    let taken = heir.take(u16::MAX).await;

    assert_eq!(shards_of(&taken), shards_of(&leaver.holdings));
    assert!(taken.iter().all(|holding| holding.origin == ShardOrigin::Free));
}

/// `most` is a limit, for free and for lapsed shards.
pub async fn no_more_is_taken_than_was_asked_for<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    let half = u16::try_from(all.div_ceil(2)).unwrap();
    let mut owner = Owner::joined(backend).await;

    assert!(owner.take(0).await.is_empty());
    assert_eq!(owner.take(half).await.len(), usize::from(half));
    assert_eq!(owner.take(u16::MAX).await.len(), all - usize::from(half));

    backend.expire(&owner.id).await;
    let mut heir = Owner::joined(backend).await;
    assert_eq!(heir.take(half).await.len(), usize::from(half));
    let rest = heir.take(u16::MAX).await;
    assert_eq!(rest.len(), all - usize::from(half));
    assert!(
        rest.iter().all(|holding| holding.origin == ShardOrigin::Lapsed),
        "lapsed stays lapsed"
    );
}

/// Taking again gives only what is new, and leaves the epochs in hand alone.
pub async fn shards_in_hand_are_not_taken_again<B: Backend>(backend: &B) {
    let mut owner = Owner::of_all(backend).await;
    let before = owner.holdings.clone();

    assert!(owner.take(u16::MAX).await.is_empty());

    assert_eq!(owner.release(&before).await, before.len() as u64, "the epochs have not moved");
}

/// An owner that does not know what it holds gets it again, with the next epoch.
pub async fn shards_whose_take_was_not_answered_are_taken_again<B: Backend>(backend: &B) {
    let mut owner = Owner::of_all(backend).await;
    let unanswered = std::mem::take(&mut owner.holdings);

    let again = owner.take(u16::MAX).await;

    assert_eq!(again.len(), unanswered.len());
    for holding in &again {
        assert_eq!(holding.epoch, next(epoch_in(&unanswered, holding)));
        assert_eq!(holding.origin, ShardOrigin::Free, "nobody died");
    }
}

/// A release with an epoch of the past does not free what came after.
pub async fn a_release_of_an_old_epoch_frees_nothing<B: Backend>(backend: &B) {
    let mut owner = Owner::of_all(backend).await;
    let old = owner.holdings.clone();
    owner.release(&old).await;
    let again = owner.take(u16::MAX).await;

    assert_eq!(owner.release(&old).await, 0);

    let mut other = Owner::joined(backend).await;
    assert!(other.take(u16::MAX).await.is_empty());
    assert_eq!(owner.release(&again).await, again.len() as u64);
}

fn epoch_in(holdings: &[OwnedShard], like: &OwnedShard) -> Epoch {
    holdings.iter().find(|holding| holding.shard == like.shard).unwrap().epoch
}

fn next(epoch: Epoch) -> Epoch {
    Epoch(epoch.0 + 1)
}
