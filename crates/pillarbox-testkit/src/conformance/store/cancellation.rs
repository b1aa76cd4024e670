//! Cancellation: a call that is dropped half-way has happened or has not.

use std::collections::HashSet;

use pillarbox::store::{
    AcquireShards, Action, Budget, ClaimMode, Operation, Pending, Read, Renewal, RowLease, Settled,
};
use pillarbox::{EventId, Token, Verdict};

use super::audit::said;
use crate::backend::{Backend, from_head};
use crate::conformance::any_owner::AnyOwner;
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    ALL, HOUR, Owner, dead, emit, free, held, keyed, read_all, retry, shards,
};
use crate::fake::cut;

/// More polls than any call needs.
const MAX_POLLS: usize = 1000;
const ROWS: usize = 12;

/// A dropped settle has written and audited all of its verdicts, or none.
pub async fn a_dropped_settle_applies_all_or_nothing<B: Backend>(backend: &B, claim: ClaimMode) {
    let kinds = [Verdict::Done, Verdict::Delete, retry(HOUR), dead()];
    for polls in 0..MAX_POLLS {
        // Retried events of earlier rounds still wait, and would block their keys.
        let ids = emit(backend, (0..ROWS).map(|n| keyed(&format!("{polls} {n}")))).await;
        let owner = AnyOwner::new(backend, claim).await;
        let rows = owner.read().await;
        let verdicts = || rows.iter().enumerate().map(|(n, row)| (row, kinds[n % 4].clone()));

        let whole = cut(polls, owner.settle(verdicts())).await;

        // The same again: it applies what the first did not.
        let again = owner.settle(verdicts()).await;
        assert!([0, ROWS].contains(&again.applied.len()), "{polls} polls: {again:?}");
        assert!(again.refused.is_empty());
        let mut noted = 0;
        for id in &ids {
            noted += said(backend, id).await.len();
        }
        assert_eq!(noted, ROWS / 2, "every failure is noted once");
        owner.leave().await;
        clear(backend).await;
        if let Some(whole) = whole {
            assert_eq!((whole.applied.len(), again), (ROWS, Settled::default()));
            return;
        }
    }
    panic!("a settle did not end within {MAX_POLLS} polls");
}

/// A dropped acquire has acquired all of its shards, or none.
pub async fn a_dropped_acquire_takes_all_shards_or_none<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    let most = u16::try_from(all.div_ceil(2)).unwrap();
    for polls in 0..MAX_POLLS {
        let (dropped, mut other) = (Owner::joined(backend).await, Owner::joined(backend).await);
        let take = AcquireShards { owner: dropped.id.clone(), most, owned: vec![] };

        let whole = cut(polls, dropped.store.acquire_shards(&take)).await;

        let left = other.acquire(u16::MAX).await.len();
        assert!([all, all - usize::from(most)].contains(&left), "{polls} polls: {left} left");
        dropped.store.leave(&dropped.id).await.unwrap();
        other.store.leave(&other.id).await.unwrap();
        if let Some(whole) = whole {
            assert_eq!(whole.unwrap().len() + left, all);
            return;
        }
    }
    panic!("a take did not end within {MAX_POLLS} polls");
}

/// Reads that are dropped, however many, leave the connections usable.
pub async fn dropped_reads_leave_the_store_usable<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..50).map(|_| free())).await;
    let store = backend.store();
    let wanted: Vec<_> = shards(&*store).await.into_iter().map(from_head).collect();
    let read = Read { shards: wanted, limit: ALL, budget: Budget::unlimited() };

    for polls in 0..MAX_POLLS {
        let whole = cut(polls, store.read(&read)).await;
        assert_eq!(store.event(&ids[0]).await.unwrap().unwrap().token.0, 0);
        assert_eq!(store.read(&read).await.unwrap().len(), ids.len());
        if let Some(whole) = whole {
            assert_eq!(whole.unwrap().len(), ids.len());
            return;
        }
    }
    panic!("a read did not end within {MAX_POLLS} polls");
}

/// A dropped join has entered the owner, who can take, or has not, and can join again.
pub async fn a_dropped_join_can_be_repeated<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    for polls in 0..MAX_POLLS {
        let mut owner = Owner::unknown(backend);

        let whole = cut(polls, owner.store.join(&owner.entry())).await;

        let early = owner.acquire(u16::MAX).await.len();
        assert!([0, all].contains(&early), "{polls} polls: took {early}");
        owner.store.join(&owner.entry()).await.unwrap();
        assert_eq!(early + owner.acquire(u16::MAX).await.len(), all);
        owner.release(&owner.owned).await;
        if let Some(whole) = whole {
            whole.unwrap();
            assert_eq!(early, all);
            return;
        }
    }
    panic!("a join did not end within {MAX_POLLS} polls");
}

/// A dropped leave has removed the owner and freed its shards, or neither.
pub async fn a_dropped_leave_is_whole<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await.len();
    for polls in 0..MAX_POLLS {
        let owner = Owner::of_all(backend).await;

        let whole = cut(polls, owner.store.leave(&owner.id)).await;

        // What was sent may still arrive between two renewals: the check needs both to agree.
        let before = owner.renew().await;
        let successor = Owner::of_all(backend).await;
        let after = owner.renew().await;
        if before == after {
            let expected = if after == Renewal::Kept { 0 } else { all };
            assert_eq!(successor.owned.len(), expected, "{polls} polls");
        }
        owner.store.leave(&owner.id).await.unwrap();
        successor.store.leave(&successor.id).await.unwrap();
        if let Some(whole) = whole {
            whole.unwrap();
            assert_eq!(after, Renewal::Lost);
            return;
        }
    }
    panic!("a leave did not end within {MAX_POLLS} polls");
}

/// A dropped claim has leased all of its rows, or none.
pub async fn a_dropped_claim_leases_all_or_nothing<B: Backend>(backend: &B) {
    for polls in 0..MAX_POLLS {
        emit(backend, (0..ROWS).map(|_| free())).await;
        let claimer = Claimer::new(backend).await;

        let whole = cut(polls, claimer.store.claim(&claimer.request(100))).await;

        let mut tokens = tokens(backend).await;
        if tokens.len() > 1 {
            // What was sent may have arrived during the read.
            tokens = self::tokens(backend).await;
        }
        assert_eq!(tokens.len(), 1, "{polls} polls: some are leased, tokens {tokens:?}");
        clear(backend).await;
        if let Some(whole) = whole {
            assert_eq!((whole.unwrap().len(), tokens), (ROWS, HashSet::from([Token(1)])));
            return;
        }
    }
    panic!("a claim did not end within {MAX_POLLS} polls");
}

/// A renewal that is dropped leaves the leases where they are, and the store usable.
pub async fn a_dropped_renewal_loses_no_lease<B: Backend>(backend: &B) {
    emit(backend, (0..ROWS).map(|_| free())).await;
    let (claimer, rows) = claimed(backend).await;
    let renewal = claimer.renewal(&rows, HOUR);
    for polls in 0..MAX_POLLS {
        let whole = cut(polls, claimer.store.renew_rows(&renewal)).await;

        // What was sent may still hold the rows' locks, and a renewal passes locked rows.
        while !claimer.store.locked(&renewal.rows).await.unwrap().is_empty() {}
        assert_eq!(claimer.renew(&rows, HOUR).await.len(), ROWS, "{polls} polls");
        assert!(Claimer::new(backend).await.claim().await.is_empty());
        if let Some(whole) = whole {
            assert_eq!(whole.unwrap().len(), ROWS);
            let settled = claimer.settle(rows.iter().map(|row| (row, Verdict::Done))).await;
            assert_eq!(settled.len(), ROWS);
            return;
        }
    }
    panic!("a renewal did not end within {MAX_POLLS} polls");
}

/// A dropped release has freed all of its rows, or none.
pub async fn a_dropped_release_frees_all_or_nothing<B: Backend>(backend: &B) {
    for polls in 0..MAX_POLLS {
        emit(backend, (0..ROWS).map(|_| free())).await;
        let (claimer, rows) = claimed(backend).await;
        let leases: Vec<_> = rows.iter().map(RowLease::from).collect();

        let whole = cut(polls, claimer.store.release_rows(&claimer.id, &leases)).await;

        let again = claimer.store.release_rows(&claimer.id, &leases).await.unwrap();
        assert!([0, ROWS as u64].contains(&again), "{polls} polls: {again} were left");
        assert_eq!(seqs(&Claimer::new(backend).await.claim().await), seqs(&rows));
        clear(backend).await;
        if let Some(whole) = whole {
            assert_eq!((whole.unwrap(), again), (ROWS as u64, 0));
            return;
        }
    }
    panic!("a release did not end within {MAX_POLLS} polls");
}

/// A dropped operation has changed and audited all of its events, or none.
pub async fn a_dropped_operation_is_done_to_all_or_none<B: Backend>(backend: &B) {
    for polls in 0..MAX_POLLS {
        let ids = given_up(backend).await;
        let replay = Operation::replay(ids.iter().cloned());

        let whole = cut(polls, backend.store().operate(&replay)).await;

        let again = backend.store().operate(&replay).await.unwrap().changed;
        assert!([0, ROWS].contains(&again.len()), "{polls} polls: {again:?}");
        for id in &ids {
            let trail = said(backend, id).await;
            let replays = trail.iter().filter(|line| line.0 == Action::Replay.as_str());
            assert_eq!(replays.count(), 1, "{polls} polls");
        }
        clear(backend).await;
        if let Some(whole) = whole {
            assert_eq!((whole.unwrap().changed.len(), again.len()), (ROWS, 0));
            return;
        }
    }
    panic!("an operation did not end within {MAX_POLLS} polls");
}

async fn tokens<B: Backend>(backend: &B) -> HashSet<Token> {
    read_all(backend).await.iter().map(|row| row.token).collect()
}

/// A claimer of all rows.
async fn claimed<B: Backend>(backend: &B) -> (Claimer, Vec<Pending>) {
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    assert_eq!(rows.len(), ROWS);
    (claimer, rows)
}

async fn given_up<B: Backend>(backend: &B) -> Vec<EventId> {
    let ids = emit(backend, (0..ROWS).map(|_| free())).await;
    let (claimer, rows) = claimed(backend).await;
    claimer.settle(rows.iter().map(|row| (row, held()))).await;
    ids
}

/// Removes what waits. What was sent may still arrive, and move a token: then once more.
async fn clear<B: Backend>(backend: &B) {
    let owner = Owner::of_all(backend).await;
    loop {
        let rows = owner.read().await;
        if rows.is_empty() {
            break;
        }
        owner.settle(rows.iter().map(|row| owner.settlement(row, Verdict::Delete)).collect()).await;
    }
    owner.store.leave(&owner.id).await.unwrap();
}
