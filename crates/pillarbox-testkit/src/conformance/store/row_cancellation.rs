//! Cancellation of row claims and operations: they have happened or they have not.

use std::collections::HashSet;

use pillarbox::store::{Action, Operation, Pending, RowLease};
use pillarbox::{EventId, Token, Verdict};

use super::audit::said;
use crate::backend::Backend;
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{HOUR, Owner, dead, emit, free, held, read_all, retry};
use crate::fake::cut;

/// More polls than any call needs.
const PLACES: usize = 1000;
const ROWS: usize = 12;

/// Wherever a claim is dropped, either all of its rows are leased or none.
pub async fn a_dropped_claim_leases_all_or_nothing<B: Backend>(backend: &B) {
    for polls in 0..PLACES {
        emit(backend, (0..ROWS).map(|_| free())).await;
        let claimer = Claimer::new(backend).await;

        let whole = cut(polls, claimer.store.claim(&claimer.wish(100))).await;

        let mut tokens = tokens(backend).await;
        if tokens.len() > 1 {
            // What was sent may have arrived in the middle of the look.
            tokens = self::tokens(backend).await;
        }
        assert_eq!(tokens.len(), 1, "{polls} polls: some are leased, tokens {tokens:?}");
        clear(backend).await;
        if let Some(whole) = whole {
            assert_eq!((whole.unwrap().len(), tokens), (ROWS, HashSet::from([Token(1)])));
            return;
        }
    }
    panic!("a claim did not end within {PLACES} polls");
}

/// Wherever a settle of claimed rows is dropped, all verdicts are written and noted, or none.
pub async fn a_dropped_settle_of_rows_applies_all_or_nothing<B: Backend>(backend: &B) {
    for polls in 0..PLACES {
        let ids = emit(backend, (0..ROWS).map(|_| free())).await;
        let (claimer, rows) = claimed(backend).await;
        let kinds = [Verdict::Done, Verdict::Delete, retry(HOUR), dead()];
        let verdicts = rows.iter().enumerate().map(|(n, row)| (row, kinds[n % 4].clone()));
        let settle = claimer.settlement(verdicts);

        let whole = cut(polls, claimer.store.settle_rows(&settle)).await;

        // The same again: it applies what the first did not.
        let again = claimer.store.settle_rows(&settle).await.unwrap();
        assert!([0, ROWS].contains(&again.len()), "{polls} polls: {again:?}");
        let mut noted = 0;
        for id in &ids {
            noted += said(backend, id).await.len();
        }
        assert_eq!(noted, ROWS / 2, "every failure is noted once");
        clear(backend).await;
        if let Some(whole) = whole {
            assert_eq!((whole.unwrap().len(), again.len()), (ROWS, 0));
            return;
        }
    }
    panic!("a settle did not end within {PLACES} polls");
}

/// A renewal that is dropped leaves the leases where they are, and the store usable.
pub async fn a_dropped_renewal_loses_no_lease<B: Backend>(backend: &B) {
    emit(backend, (0..ROWS).map(|_| free())).await;
    let (claimer, rows) = claimed(backend).await;
    let renewal = claimer.renewal(&rows, HOUR);
    for polls in 0..PLACES {
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
    panic!("a renewal did not end within {PLACES} polls");
}

/// Wherever a release is dropped, either all of its rows are free or none.
pub async fn a_dropped_release_frees_all_or_nothing<B: Backend>(backend: &B) {
    for polls in 0..PLACES {
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
    panic!("a release did not end within {PLACES} polls");
}

/// Wherever an operation is dropped, it was done to all and noted, or to none.
pub async fn a_dropped_operation_is_done_to_all_or_none<B: Backend>(backend: &B) {
    for polls in 0..PLACES {
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
    panic!("an operation did not end within {PLACES} polls");
}

async fn tokens<B: Backend>(backend: &B) -> HashSet<Token> {
    read_all(backend).await.iter().map(|row| row.token).collect()
}

/// Someone who has claimed all rows there are.
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
