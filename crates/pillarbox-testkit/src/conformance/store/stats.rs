//! Stats: what the gauges show.

use pillarbox::Verdict;
use pillarbox::store::Stats;

use crate::backend::Backend;
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_due, emit_one, free, held, keyed, promote_all, retry, row, shards,
};

/// Nothing there, nothing counted, no lag.
pub async fn an_empty_store_counts_nothing<B: Backend>(backend: &B) {
    assert_eq!(backend.store().stats().await.unwrap(), Stats::default());
}

/// Every status has its own number; what is done has none.
pub async fn events_are_counted_by_status<B: Backend>(backend: &B) {
    let verdicts = [Verdict::Done, retry(HOUR), retry(HOUR), dead(), held(), held(), held()];
    let ids = emit(backend, (0..9).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in ids.iter().zip(verdicts) {
        owner.settle_event(id, verdict).await;
    }

    let stats = backend.store().stats().await.unwrap();

    assert_eq!((stats.new, stats.waiting, stats.dead, stats.held), (2, 2, 1, 3));
}

/// The lag is that of the oldest due event; one that is not due has none.
pub async fn the_oldest_due_event_gives_the_lag<B: Backend>(backend: &B) {
    let store = backend.store();
    emit_one(backend, free().deliver_after(HOUR * 20)).await;
    assert_eq!(store.stats().await.unwrap().oldest_lag, None);

    let old = emit_one(backend, free()).await;
    backend.age(&old, HOUR).await;
    emit_one(backend, free()).await;

    let lag = store.stats().await.unwrap().oldest_lag.expect("an event is due");
    assert!(lag >= HOUR && lag < HOUR * 2, "the lag is {lag:?}");
}

/// Owners count while their lease lives, and shards while their owner does.
pub async fn live_owners_and_their_shards_are_counted<B: Backend>(backend: &B) {
    let store = backend.store();
    let all = shards(&*store).await.len() as u64;
    let holder = Owner::of_all(backend).await;
    Owner::joined(backend).await;
    let stats = store.stats().await.unwrap();
    assert_eq!((stats.owners, stats.owned_shards), (2, all));

    backend.expire(&holder.id).await;

    let stats = store.stats().await.unwrap();
    assert_eq!((stats.owners, stats.owned_shards), (1, 0));
}

/// Counts the events that can be delivered now: due, not leased, and behind no waiting event.
pub async fn due_events_are_counted<B: Backend>(backend: &B) {
    let store = backend.store();
    let all = shards(&*store).await;
    emit(backend, [free(), free(), free().deliver_after(HOUR)]).await;
    emit(backend, [keyed("due"), keyed("due")]).await;
    emit(backend, [keyed("late").deliver_after(HOUR), keyed("late")]).await;
    let poison = emit(backend, [keyed("held"), keyed("held")]).await;
    let failing = emit_one(backend, free()).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&poison[0], held()).await;
    owner.settle_event(&failing, retry(HOUR)).await;

    assert_eq!(store.count_due(&all).await.unwrap(), 4);
    assert_eq!(store.count_due(&[]).await.unwrap(), 0);
}

/// A waiting row that became due counts, before and after its promotion.
pub async fn rows_that_became_due_are_counted<B: Backend>(backend: &B) {
    let store = backend.store();
    let all = shards(&*store).await;
    emit_due(backend, [keyed("a"), keyed("b"), free()]).await;
    emit(backend, [free(), free().deliver_after(HOUR)]).await;
    assert_eq!(store.count_due(&all).await.unwrap(), 4);

    promote_all(backend).await;

    assert_eq!(store.count_due(&all).await.unwrap(), 4);
    assert_eq!(store.count_due(&[]).await.unwrap(), 0);
}

/// A new row behind one that waits or is held does not count, wherever the one that waits is.
pub async fn rows_behind_a_waiting_row_are_not_counted<B: Backend>(backend: &B) {
    let store = backend.store();
    let all = shards(&*store).await;
    let delayed = keyed("a").deliver_after(HOUR);
    emit(backend, [keyed("a"), delayed, keyed("a"), keyed("a")]).await;
    let ids = emit(backend, ["b", "b", "b"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    owner.settle_one(row(&rows, &ids[1]), held()).await;
    let early = emit_one(backend, free()).await;

    assert_eq!(store.count_due(&all).await.unwrap(), 3, "two heads, and what has no key");
    backend.make_early(&early, HOUR).await;
    let due = store.count_due(&all).await.unwrap();
    assert!(due <= 2, "{due} of which one is early");
}
