//! Cancellation: a call that is dropped half-way has happened or has not.

use std::collections::HashSet;

use pillarbox::Verdict;
use pillarbox::store::{AcquireShards, Budget, Read, Renewal, Settle, Settled, Settlement};

use crate::backend::{Backend, from_head};
use crate::conformance::owner::{ALL, HOUR, Owner, emit, free, keyed, retry, shards};
use crate::fake::cut;

/// More polls than any call needs.
const PLACES: usize = 1000;

/// Wherever a settle is dropped, either all of its verdicts are written or none.
pub async fn a_dropped_settle_applies_all_or_nothing<B: Backend>(backend: &B) {
    let owner = Owner::of_all(backend).await;
    for polls in 0..PLACES {
        emit(backend, (0..12).map(|n| keyed(&n.to_string()))).await;
        let settle = settle(&owner, verdicts(&owner).await);

        let whole = cut(polls, owner.store.settle(&settle)).await;

        // The same again: it applies what the first did not.
        let again = owner.store.settle(&settle).await.unwrap();
        assert!([0, 12].contains(&again.applied.len()), "{polls} polls: {again:?}");
        assert!(again.refused.is_empty());
        clear(&owner).await;
        if let Some(whole) = whole {
            assert_eq!((whole.unwrap().applied.len(), again), (12, Settled::default()));
            return;
        }
    }
    panic!("a settle did not end within {PLACES} polls");
}

/// Wherever a take is dropped, it has taken all that it would have, or nothing.
pub async fn a_dropped_take_takes_all_or_nothing<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    let most = u16::try_from(all.div_ceil(2)).unwrap();
    for polls in 0..PLACES {
        let (dropped, mut other) = (Owner::joined(backend).await, Owner::joined(backend).await);
        let take = AcquireShards { owner: dropped.id.clone(), most, owned: vec![] };

        let whole = cut(polls, dropped.store.acquire_shards(&take)).await;

        let left = other.take(u16::MAX).await.len();
        assert!([all, all - usize::from(most)].contains(&left), "{polls} polls: {left} left");
        dropped.store.leave(&dropped.id).await.unwrap();
        other.store.leave(&other.id).await.unwrap();
        if let Some(whole) = whole {
            assert_eq!(whole.unwrap().len() + left, all);
            return;
        }
    }
    panic!("a take did not end within {PLACES} polls");
}

/// Reads that are dropped, however many, leave the connections usable.
pub async fn dropped_reads_leave_the_store_usable<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..50).map(|_| free())).await;
    let store = backend.store();
    let wanted: Vec<_> = shards(&*store).await.into_iter().map(from_head).collect();
    let read = Read { shards: wanted, limit: ALL, budget: Budget::unlimited() };

    for polls in 0..PLACES {
        let whole = cut(polls, store.read(&read)).await;
        assert_eq!(store.event(&ids[0]).await.unwrap().unwrap().token.0, 0);
        assert_eq!(store.read(&read).await.unwrap().len(), ids.len());
        if let Some(whole) = whole {
            assert_eq!(whole.unwrap().len(), ids.len());
            return;
        }
    }
    panic!("a read did not end within {PLACES} polls");
}

/// A dropped join has entered the owner, who can take, or has not, and can join again.
pub async fn a_dropped_join_can_be_repeated<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    for polls in 0..PLACES {
        let mut owner = Owner::unknown(backend);

        let whole = cut(polls, owner.store.join(&owner.entry())).await;

        let early = owner.take(u16::MAX).await.len();
        assert!([0, all].contains(&early), "{polls} polls: took {early}");
        owner.store.join(&owner.entry()).await.unwrap();
        assert_eq!(early + owner.take(u16::MAX).await.len(), all);
        owner.release(&owner.holdings).await;
        if let Some(whole) = whole {
            whole.unwrap();
            assert_eq!(early, all);
            return;
        }
    }
    panic!("a join did not end within {PLACES} polls");
}

/// A dropped leave has removed the owner and freed its shards, or neither.
pub async fn a_dropped_leave_is_whole<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    for polls in 0..PLACES {
        let owner = Owner::of_all(backend).await;

        let whole = cut(polls, owner.store.leave(&owner.id)).await;

        // What was sent may still arrive between two looks: it counts if both say the same.
        let before = owner.renew().await;
        let heir = Owner::of_all(backend).await;
        let after = owner.renew().await;
        if before == after {
            let expected = if after == Renewal::Kept { 0 } else { all };
            assert_eq!(heir.holdings.len(), expected, "{polls} polls");
        }
        owner.store.leave(&owner.id).await.unwrap();
        heir.store.leave(&heir.id).await.unwrap();
        if let Some(whole) = whole {
            whole.unwrap();
            assert_eq!(after, Renewal::Lost);
            return;
        }
    }
    panic!("a leave did not end within {PLACES} polls");
}

/// A verdict of another kind on every row there is.
async fn verdicts(owner: &Owner) -> Vec<Settlement> {
    let verdict = |n: usize| if n.is_multiple_of(2) { Verdict::Done } else { retry(HOUR) };
    let rows = owner.read().await;
    rows.iter().enumerate().map(|(n, row)| owner.settlement(row, verdict(n))).collect()
}

async fn clear(owner: &Owner) {
    let rows = owner.read().await;
    let settlements = rows.iter().map(|row| owner.settlement(row, Verdict::Delete)).collect();
    let applied: HashSet<_> = owner.settle(settlements).await.applied.into_iter().collect();
    assert_eq!(applied.len(), rows.len());
}

fn settle(owner: &Owner, settlements: Vec<Settlement>) -> Settle {
    Settle { owner: owner.id.clone(), settlements }
}
