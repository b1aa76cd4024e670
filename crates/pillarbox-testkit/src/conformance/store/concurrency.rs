//! Concurrency: many owners at once, and none of them holds what another does.

use std::{collections::HashSet, sync::Mutex};

use futures_util::future::{join, join_all};
use pillarbox::store::{OwnedShard, Renewal, Settled, Status};
use pillarbox::{Epoch, ShardId, Token, Verdict};

use crate::backend::Backend;
use crate::conformance::owner::{Owner, dead, emit_one, keyed, retry, shards};

const OWNERS: usize = 8;
const ROUNDS: usize = 40;

/// Owners that join, take, give back, die and leave all at once never own a shard at the same epoch.
pub async fn no_shard_is_held_twice_at_one_epoch<B: Backend>(backend: &B) {
    let seen = Mutex::new(HashSet::new());

    join_all((0..OWNERS).map(|number| lives(backend, number, &seen))).await;

    let highest = seen.into_inner().unwrap().into_iter().map(|(_, epoch)| epoch).max();
    assert!(highest > Some(Epoch(2)), "hardly any shard changed its owner: {highest:?}");
    assert!(!Owner::of_all(backend).await.owned.is_empty());
}

/// An owner that was taken over can settle, renew and release as it likes: nothing moves.
pub async fn a_stale_owner_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let stale = Owner::of_all(backend).await;
    let rows = stale.read().await;
    let mut successor = Owner::joined(backend).await;
    backend.expire(&stale.id).await;
    successor.acquire(u16::MAX).await;

    let (settled, renewal) = join(stale.settle_one(&rows[0], dead()), stale.renew()).await;
    let released = stale.release(&stale.owned).await;
    stale.store.leave(&stale.id).await.unwrap();

    assert_eq!(settled.applied, []);
    assert_eq!((renewal, released), (Renewal::Lost, 0));
    assert!(Owner::of_all(backend).await.owned.is_empty(), "the successor's shards are its own");
    let stored = backend.store().event(&id).await.unwrap().unwrap();
    assert_eq!((stored.status, stored.token, stored.attempts), (Status::New, Token(0), 0));
    assert_eq!(
        successor.release(&successor.owned).await,
        shards(&*successor.store).await.len() as u64
    );
}

/// The same settle sent twice at the same moment is written once.
pub async fn two_settles_of_one_verdict_apply_once<B: Backend>(backend: &B) {
    for _ in 0..20 {
        let id = emit_one(backend, keyed("a")).await;
        let owner = Owner::of_all(backend).await;
        let rows = owner.read().await;
        let verdict = || retry(Default::default());

        let (one, two) =
            join(owner.settle_one(&rows[0], verdict()), owner.settle_one(&rows[0], verdict()))
                .await;

        let once = Settled { applied: vec![rows[0].seq], refused: vec![] };
        let both = [one, two];
        assert!(both.contains(&once) && both.contains(&Settled::default()), "{both:?}");
        let stored = backend.store().event(&id).await.unwrap().unwrap();
        assert_eq!((stored.attempts, stored.token), (1, Token(1)));
        owner.settle_event(&id, Verdict::Delete).await;
        owner.store.leave(&owner.id).await.unwrap();
    }
}

/// One owner after another, each with another end.
async fn lives<B: Backend>(backend: &B, number: usize, seen: &Mutex<HashSet<(ShardId, Epoch)>>) {
    for round in 0..ROUNDS {
        let mut owner = Owner::joined(backend).await;
        for most in [1, 5, u16::try_from(8 + number).unwrap()] {
            note(seen, &owner.acquire(most).await);
            owner.renew().await;
        }
        match (number + round) % 3 {
            0 => owner.store.leave(&owner.id).await.unwrap(),
            1 => backend.expire(&owner.id).await,
            _ => {
                owner.release(&owner.owned).await;
                backend.expire(&owner.id).await;
            }
        }
    }
}

fn note(seen: &Mutex<HashSet<(ShardId, Epoch)>>, taken: &[OwnedShard]) {
    let mut seen = seen.lock().unwrap();
    for shard in taken {
        let is_new = seen.insert((shard.shard, shard.epoch));
        assert!(is_new, "{:?} was given out twice at {:?}", shard.shard, shard.epoch);
    }
}
