//! What a relay may start, and for how long.

use pillarbox::store::Status;
use pillarbox::{Outbox, RelaySettings};
use pillarbox_testkit::Backend;
use pillarbox_testkit::fake::{Call, FaultyStore, ManualClock, Side};

use super::fixture::{AGES, ControlledRelay, Deliveries, commit, count, event_with, still};
use crate::fixture::keyed;

/// H5: a monotonic clock stands still while its machine is suspended; awake again, the relay would
/// deliver its whole queue. R5: the lease has passed as soon as either clock says so.
pub(crate) async fn a_machine_that_was_suspended_starts_nothing_of_its_queue<B: Backend>(
    backend: &B,
) {
    let (mut deliveries, listeners) = Deliveries::new([0, 1, 2]);
    let (clock, alone) = (ManualClock::new(), RelaySettings { workers: count(1), ..still() });
    let events = ["a", "b", "c"].into_iter().zip(0..).map(|(key, number)| keyed(key, number));
    let ids = commit(backend, &Outbox::new(), events).await;
    let configure = |relay: pillarbox::Relay| relay.settings(alone).clock(clock.clone());
    let sleeper = ControlledRelay::start(backend, listeners, configure).await;
    let first = deliveries.next(1).await.remove(0);

    clock.advance(AGES);
    deliveries.answer(first, Ok(()));
    event_with(backend, &ids[usize::try_from(first).unwrap()], Status::Done).await;

    // A stop waits for what is under way: had another one started, it would wait for its answer.
    (0..3).filter(|number| *number != first).for_each(|number| deliveries.answer(number, Ok(())));
    sleeper.leave().await;
    assert!(deliveries.is_idle());
    let (mut deliveries, listeners) = Deliveries::new([]);
    let successor = ControlledRelay::start(backend, listeners, |relay| relay).await;
    let mut rest = deliveries.next(2).await;
    rest.push(first);
    rest.sort_unstable();
    assert_eq!(rest, [0, 1, 2], "the others come from whoever has the shards next");
    successor.leave().await;
}

/// R5: what is delivered and not yet settled counts as under way, so that the duplicates after a
/// fault are bounded.
pub(crate) async fn no_more_than_max_unsettled_are_under_way<B: Backend>(backend: &B) {
    let (mut deliveries, listeners) = Deliveries::new([]);
    let store = FaultyStore::new(backend.store());
    let mut settle = store.hold(Call::Settle, Side::Before);
    let events = (0..8).map(|number| keyed(&format!("k{number}"), number));
    commit(backend, &Outbox::new(), events).await;
    let few = RelaySettings { workers: count(2), max_unsettled: count(3), ..still() };

    let relay = ControlledRelay::start_on(store, listeners, |relay| relay.settings(few)).await;
    settle.reached().await;
    let mut numbers = deliveries.next(3).await;
    // A relay starts what it can before it reads.
    for _ in 0..3 {
        let mut read = relay.store.hold(Call::Read, Side::Before);
        relay.handle.wake();
        read.reached().await;
    }

    assert!(deliveries.is_idle());
    settle.release();
    numbers.extend(deliveries.next(5).await);
    numbers.sort_unstable();
    assert_eq!(numbers, (0..8).collect::<Vec<_>>());
    relay.leave().await;
}
