//! Turns: that claims leave no key and no row out, however much there is in front of it.

use std::collections::HashSet;

use pillarbox::Verdict;
use pillarbox::store::{Claim, Pending};

use crate::backend::Backend;
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{emit, free, keyed, read_all};

/// A claim goes on after a key, in the first of its shards.
pub async fn a_claim_goes_on_after_a_key<B: Backend>(backend: &B) {
    emit(backend, (0..300).map(|n| keyed(&format!("{n}")))).await;
    emit(backend, (0..300).map(|n| keyed(&format!("{n}")))).await;
    let mut heads = read_all(backend).await;
    heads.sort_by_key(|row| row.seq);
    heads.truncate(300);
    let shard = heads[0].shard;
    heads.retain(|row| row.shard == shard);
    let mut keys: Vec<_> = heads.iter().filter_map(|row| row.key.clone()).collect();
    keys.sort();
    let middle = keys[keys.len() / 2].clone();
    let claimer = Claimer::new(backend).await;

    let wish = Claim { shards: vec![shard], after: Some(middle.clone()), ..claimer.request(1000) };
    let claimed = claimer.store.claim(&wish).await.unwrap();

    heads.retain(|row| row.key.as_ref() > Some(&middle));
    assert!(!heads.is_empty());
    assert_eq!(seqs(&claimed), seqs(&heads));
}

/// Another shard than the first is looked at from its first key on.
pub async fn a_key_to_go_on_after_counts_in_the_first_shard_only<B: Backend>(backend: &B) {
    emit(backend, (0..200).map(|n| keyed(&format!("{n}")))).await;
    let claimer = Claimer::new(backend).await;
    let (first, all) = (claimer.shards[0], read_all(backend).await);

    let wish = Claim { after: Some("zzz".into()), ..claimer.request(1000) };
    let claimed = claimer.store.claim(&wish).await.unwrap();

    assert!(all.iter().any(|row| row.shard == first));
    let others = all.iter().filter(|row| row.shard != first);
    assert_eq!(
        claimed.iter().map(|row| row.seq).collect::<HashSet<_>>(),
        others.map(|row| row.seq).collect::<HashSet<_>>()
    );
}

/// Keys that always have more do not keep others from their turn.
pub async fn every_key_is_claimed_in_rotation<B: Backend>(backend: &B) {
    for _ in 0..6 {
        emit(backend, (0..30).map(|n| keyed(&format!("{n}")))).await;
    }

    let claimed = claims(backend, 7, 5).await;

    let keys: HashSet<_> = claimed.iter().map(|row| row.key.clone()).collect();
    assert_eq!(keys.len(), 30);
}

/// Keys that always have more do not keep rows without a key from their turn, nor do these keep
/// them.
pub async fn rows_with_and_without_a_key_alternate<B: Backend>(backend: &B) {
    for _ in 0..40 {
        emit(backend, (0..5).map(|n| keyed(&format!("{n}")))).await;
    }
    emit(backend, (0..200).map(|_| free())).await;

    let claimed = claims(backend, 2, 150).await;

    let (keyless, keyed): (Vec<_>, Vec<_>) = claimed.iter().partition(|row| row.key.is_none());
    let keys: HashSet<_> = keyed.iter().map(|row| &row.key).collect();
    assert!(keyless.len() >= 40 && keys.len() == 5, "{} without, {keys:?} with", keyless.len());
}

/// A queue as long as one likes is passed by: the claim finds the heads behind it.
pub async fn a_long_queue_of_a_blocked_key_is_skipped<B: Backend>(backend: &B) {
    emit(backend, (0..2000).map(|_| keyed("a"))).await;
    let claimer = Claimer::new(backend).await;
    assert_eq!(claimer.claim().await.len(), 1);
    emit(backend, ["b", "c"].map(keyed)).await;

    assert_eq!(claimer.claim().await.len(), 2);
}

/// Claims so often, deletes what it gets, and turns.
async fn claims<B: Backend>(backend: &B, limit: u32, times: u32) -> Vec<Pending> {
    let claimer = Claimer::new(backend).await;
    let mut wish = claimer.request(limit);
    let mut claimed = Vec::new();
    for _ in 0..times {
        let rows = claimer.store.claim(&wish).await.unwrap();
        wish.turn(&rows);
        claimer.settle(rows.iter().map(|row| (row, Verdict::Delete))).await;
        claimed.extend(rows);
    }
    claimed
}
