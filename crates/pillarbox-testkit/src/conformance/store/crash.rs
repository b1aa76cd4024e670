//! Crashes: deliveries that were started when their owner died are counted.

use std::time::Duration;

use pillarbox::store::{Operation, RowLease, Starts, Status};
use pillarbox::{ErrorText, Seq, Token, Verdict};

use crate::backend::Backend;
use crate::conformance::owner::{
    Owner, emit, emit_one, free, keyed, promote_all, read_all, row, status, stored,
};

/// Each time, and for each row by itself; the token stays, so that its verdict still counts.
pub async fn every_start_after_a_crash_is_counted<B: Backend>(backend: &B) {
    let ids = emit(backend, [free(), keyed("a")]).await;
    let rows = read_all(backend).await;
    let leases: Vec<RowLease> = ids.iter().map(|id| row(&rows, id).into()).collect();
    let store = backend.store();

    let mut first = store.record_starts(&all(&leases)).await.unwrap();
    let second = store.record_starts(&all(&leases[..1])).await.unwrap();

    first.sort_unstable();
    let mut seqs: Vec<(Seq, u32)> = leases.iter().map(|lease| (lease.seq, 1)).collect();
    seqs.sort_unstable();
    assert_eq!(first, seqs);
    assert_eq!(second, [(leases[0].seq, 2)]);
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], Verdict::Done).await;
    assert_eq!(status(backend, &ids[0]).await, Some(Status::Done));
}

/// A row settled since its read is not counted; an empty call is no error.
pub async fn a_row_settled_since_is_not_counted<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let lease = RowLease::from(row(&read_all(backend).await, &id));
    let store = backend.store();
    assert!(
        store
            .record_starts(&all(&[RowLease { token: Token(7), ..lease }]))
            .await
            .unwrap()
            .is_empty()
    );
    assert!(store.record_starts(&all(&[])).await.unwrap().is_empty());

    let error = ErrorText::new("no");
    Owner::of_all(backend).await.settle_event(&id, Verdict::Held { error }).await;

    assert!(store.record_starts(&all(&[lease])).await.unwrap().is_empty());
    let held = RowLease { token: stored(backend, &id).await.token, ..lease };
    assert!(store.record_starts(&all(&[held])).await.unwrap().is_empty(), "nobody delivers it");
}

/// A verdict ends the suspicion, and so does a replay.
pub async fn a_verdict_and_a_replay_start_from_nothing<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let (store, owner) = (backend.store(), Owner::of_all(backend).await);
    let suspect = async || {
        promote_all(backend).await;
        let lease = RowLease::from(row(&read_all(backend).await, &id));
        store
            .record_starts(&all(&[lease]))
            .await
            .unwrap()
            .into_iter()
            .map(|(_, times)| times)
            .next()
    };
    assert_eq!((suspect().await, suspect().await), (Some(1), Some(2)));

    let (delay, error) = (Duration::ZERO, ErrorText::new("no"));
    owner.settle_event(&id, Verdict::Retry { delay, error: error.clone() }).await;
    assert_eq!((suspect().await, suspect().await), (Some(1), Some(2)));

    owner.settle_event(&id, Verdict::Held { error }).await;
    store.operate(&Operation::replay([id.clone()])).await.unwrap();
    assert_eq!(suspect().await, Some(1));
}

/// A row counted often enough is not counted again, unlike the others of its call.
pub async fn a_start_that_was_counted_is_not_counted_again<B: Backend>(backend: &B) {
    let ids = emit(backend, [free(), free()]).await;
    let rows = read_all(backend).await;
    let leases: Vec<RowLease> = ids.iter().map(|id| row(&rows, id).into()).collect();
    let store = backend.store();
    store.record_starts(&all(&leases[..1])).await.unwrap();

    let counted = store.record_starts(&Starts { rows: leases.clone(), below: 1 }).await.unwrap();

    assert_eq!(counted, [(leases[1].seq, 1)]);
    assert_eq!(store.record_starts(&all(&leases[..1])).await.unwrap(), [(leases[0].seq, 2)]);
}

fn all(rows: &[RowLease]) -> Starts {
    Starts { rows: rows.to_vec(), below: u32::MAX }
}
