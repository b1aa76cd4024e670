//! Fences: only the current owner of an event settles it.

use std::pin::pin;
use std::time::Duration;

use futures_util::future::{Either, select};
use pillarbox::store::{AcquireShards, ClaimMode, Settle, Settled, Status};
use pillarbox::{Epoch, Token, Verdict};

use crate::backend::{Backend, Hold, Need};
use crate::conformance::any_owner::AnyOwner;
use crate::conformance::owner::{
    Owner, dead, emit, emit_one, free, keyed, read_all, retry, row, shards_of, status, stored,
};
use crate::run::lacks;

/// An owner that was taken over from decides nothing any more, whatever it says; its successor does.
pub async fn a_verdict_after_a_takeover_changes_nothing<B: Backend>(backend: &B, claim: ClaimMode) {
    let id = emit_one(backend, keyed("a")).await;
    let stale = AnyOwner::new(backend, claim).await;
    let lost = stale.read().await;
    let successor = stale.successor(backend, &id).await;
    let taken = successor.read().await;

    for verdict in [Verdict::Done, Verdict::Delete, dead(), retry(Duration::ZERO)] {
        let settled = stale.settle_one(&lost[0], verdict).await;
        assert_eq!(settled, stale.refusal(&lost[0]));
    }

    let stored = stored(backend, &id).await;
    assert_eq!((stored.status, stored.token), (Status::New, taken[0].token));
    assert!(backend.store().audit_trail(id.as_str()).await.unwrap().is_empty());
    let settled = successor.settle_one(&taken[0], Verdict::Done).await;
    assert_eq!(settled.applied, [lost[0].seq]);
}

/// The right owner with an epoch of the past is refused as well.
pub async fn a_verdict_of_an_older_epoch_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let mut owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let old = owner.settlement(&rows[0], Verdict::Done);
    let owned = std::mem::take(&mut owner.owned);
    owner.release(&owned).await;
    owner.acquire(u16::MAX).await;

    let mut future = old.clone();
    future.epoch = Epoch(old.epoch.0 + 2);

    assert_eq!(owner.settle(vec![old]).await.refused, [rows[0].shard]);
    assert_eq!(owner.settle(vec![future]).await.refused, [rows[0].shard]);
    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// An owner that gave an event back may not settle it.
pub async fn a_verdict_after_a_release_changes_nothing<B: Backend>(backend: &B, claim: ClaimMode) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = AnyOwner::new(backend, claim).await;
    let rows = owner.read().await;

    owner.release(&rows).await;

    let settled = owner.settle_one(&rows[0], Verdict::Done).await;
    assert_eq!(settled, owner.refusal(&rows[0]));
    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// A token other than the row's means that the row was decided since: nothing is written.
pub async fn a_verdict_on_an_old_token_changes_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;

    for token in [Token(rows[0].token.0 + 1), Token(rows[0].token.0 - 1)] {
        let mut settlement = owner.settlement(&rows[0], Verdict::Done);
        settlement.token = token;
        assert_eq!(owner.settle(vec![settlement]).await, Settled::default());
    }

    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// A settle that is repeated because its answer was lost applies once, and is not refused.
pub async fn a_repeated_verdict_applies_once<B: Backend>(backend: &B, claim: ClaimMode) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = AnyOwner::new(backend, claim).await;
    let rows = owner.read().await;

    let first = owner.settle_one(&rows[0], retry(Duration::ZERO)).await;
    let second = owner.settle_one(&rows[0], retry(Duration::ZERO)).await;

    assert_eq!(first, Settled { applied: vec![rows[0].seq], refused: vec![] });
    assert_eq!(second, Settled::default());
    let stored = stored(backend, &id).await;
    assert_eq!((stored.attempts, stored.token), (1, Token(rows[0].token.0 + 1)));
    assert_eq!(backend.store().audit_trail(id.as_str()).await.unwrap().len(), 1);
}

/// One refused shard does not keep the others' verdicts from being written.
pub async fn owned_shards_settle_beside_refused_ones<B: Backend>(backend: &B) {
    emit(backend, (0..40).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let lost = rows[0].shard;
    let shard = owner.owned.iter().find(|shard| shard.shard == lost).unwrap();
    owner.release(&[*shard]).await;

    let settlements = rows.iter().map(|row| owner.settlement(row, Verdict::Done)).collect();
    let settled = owner.settle(settlements).await;

    assert_eq!(settled.refused, [lost], "each refused shard is named once");
    let kept: Vec<_> = rows.iter().filter(|row| row.shard != lost).map(|row| row.seq).collect();
    let mut applied = settled.applied;
    applied.sort();
    let mut expected = kept;
    expected.sort();
    assert_eq!(applied, expected);
    assert!(read_all(backend).await.iter().all(|row| row.shard == lost));
}

/// A takeover that commits while a settle is under way is seen: the fence is a lock.
pub async fn a_settle_sees_a_takeover_that_commits_while_it_waits<B: Backend>(backend: &B) {
    if lacks(backend, Need::Waiting) {
        return;
    }
    let id = emit_one(backend, keyed("a")).await;
    let stale = Owner::of_all(backend).await;
    let successor = Owner::joined(backend).await;
    let rows = stale.read().await;
    let takeover = backend.hold(Hold::Takeover(rows[0].shard, &successor.id)).await;

    let mut settle = pin!(stale.settle_one(&rows[0], Verdict::Done));
    match select(&mut settle, pin!(backend.blocked(1))).await {
        Either::Left((settled, _)) => panic!("did not wait for the takeover: {settled:?}"),
        Either::Right(_) => takeover.commit().await,
    }

    let settled = settle.await;
    assert_eq!(settled, Settled { applied: vec![], refused: vec![rows[0].shard] });
    assert_eq!(status(backend, &id).await, Some(Status::New));
}

/// A settle that passed its fence and waits for a row is not overtaken by a takeover.
pub async fn a_takeover_waits_for_a_settle_that_passed_its_fence<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    let ids = emit(backend, [keyed("a"), free()]).await;
    let first = Owner::of_all(backend).await;
    let mut successor = Owner::joined(backend).await;
    let rows = first.read().await;
    let target = row(&rows, &ids[0]);
    let lock = backend.hold(Hold::Event(target.seq)).await;
    backend.expire(&first.id).await;

    let settle = Settle {
        owner: first.id.clone(),
        settlements: vec![first.settlement(target, Verdict::Done)],
    };
    let mut settle = pin!(first.store.settle(&settle));
    match select(&mut settle, pin!(backend.blocked(1))).await {
        Either::Left((settled, _)) => panic!("did not wait for the row: {settled:?}"),
        Either::Right(_) => {}
    }
    let want = AcquireShards { owner: successor.id.clone(), most: u16::MAX, owned: vec![] };
    let store = backend.store();
    let mut take = pin!(store.acquire_shards(&want));
    // A takeover may wait, or may pass the locked shard by; it must not take it.
    let taken = match select(&mut take, pin!(backend.blocked(2))).await {
        Either::Left((taken, _)) => Some(taken.unwrap()),
        Either::Right(_) => None,
    };
    if let Some(taken) = &taken {
        assert!(!shards_of(taken).contains(&target.shard), "taken under a settle");
    }
    lock.commit().await;

    assert_eq!(settle.await.unwrap().applied, [target.seq]);
    assert_eq!(status(backend, &ids[0]).await, Some(Status::Done));
    let mut taken = match taken {
        Some(taken) => taken,
        None => take.await.unwrap(),
    };
    taken.extend(successor.acquire(u16::MAX).await);
    assert_eq!(shards_of(&taken), shards_of(&first.owned), "it got them all in the end");
}
