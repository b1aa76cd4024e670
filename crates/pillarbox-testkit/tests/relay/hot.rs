//! The hot path: from the commit straight to the listener.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use pillarbox::observe::{Happening, Probe};
use pillarbox::store::{ClaimMode, Status};
use pillarbox::tx::{Hot, Insert};
use pillarbox::{Envelope, Hook, Outbox, OwnerId, Relay, RelaySettings, Store as _, Tables};
use pillarbox_testkit::fake::{Call, FaultyStore, Side};
use tokio::sync::{mpsc, oneshot};

use crate::fixture::{LONGEST, Place, Script, free, keyed, next, quick, relay, wait_for};
use crate::observe::soon;
use crate::rows::Gate;

/// Nothing is found in the table by chance: the relay looks at the start, and then when it is woken.
fn blind() -> RelaySettings {
    let hour = Duration::from_secs(3600);
    RelaySettings { poll: hour, sweep: hour, ..quick() }
}

/// An event without a key comes from memory: nobody looks into the table, and its row is settled.
pub(crate) async fn a_free_event_comes_without_a_look_at_the_table(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners).settings(blind());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = place.commit(&outbox, vec![free(1), free(2), free(3)]).await;

    let mut heard = next(&mut hears, 3).await;
    heard.sort_unstable();
    assert_eq!(heard, [1, 2, 3]);
    for id in &ids {
        assert_eq!(place.event_with(id, Status::Done).await.attempts, 0);
    }
    handle.stop().await.unwrap();
}

/// With others that have a key, each comes once, whichever way it takes.
pub(crate) async fn hot_and_cold_events_come_once_each(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for round in 0..50 {
        let first = round * 4;
        let events =
            vec![free(first), keyed("a", first + 1), free(first + 2), keyed("b", first + 3)];
        place.commit(&outbox, events).await;
    }

    let mut heard = next(&mut hears, 200).await;
    handle.stop().await.unwrap();
    while let Ok(more) = hears.try_recv() {
        heard.push(more);
    }
    heard.sort_unstable();
    assert_eq!(heard, (0..200).collect::<Vec<_>>());
    assert_eq!(place.store().stats().await.unwrap().new, 0, "all of them are settled");
}

/// A thousand have places in the lane; what comes then is told as dropped, goes through the table,
/// and is delivered all the same.
pub(crate) async fn a_full_lane_loses_nothing(place: &Place) {
    let (gate, mut starts) = Gate::new();
    let probe = Probe::new();
    let relay = relay(place, gate.listeners()).settings(lasting()).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    place.commit(&outbox, (0..1000).map(free).collect()).await;
    assert_eq!(probe.count(|seen| matches!(seen, Happening::HotDropped { .. })), 0);
    place.commit(&outbox, (1000..1500).map(free).collect()).await;
    soon(&probe, |seen| matches!(seen, Happening::HotDropped { events: 500 })).await;

    gate.open(1500);
    let mut heard = next(&mut starts, 1500).await;
    handle.stop().await.unwrap();
    assert!(starts.try_recv().is_err(), "one came twice");
    heard.sort_unstable();
    assert_eq!(heard, (0..1500).collect::<Vec<_>>());
    assert_eq!(probe.count(|seen| matches!(seen, Happening::HotDropped { .. })), 1);
    assert_eq!(probe.count(|seen| matches!(seen, Happening::Hot { .. })), 1000, "from memory");
    assert_eq!(place.store().stats().await.unwrap().new, 0, "all of them are settled");
}

/// A lease and a delivery that outlast the test.
fn lasting() -> RelaySettings {
    RelaySettings { lease: 2 * LONGEST, delivery_timeout: LONGEST, ..quick() }
}

/// With one worker: both wait for it, and it takes two from memory for each of the table.
pub(crate) async fn two_of_three_are_hot_while_the_table_has_something(place: &Place) {
    let (hot, cold) = (12, 6);
    let (gate, mut starts) = Gate::new();
    let probe = Probe::new();
    let workers = 1.try_into().unwrap();
    let settings = RelaySettings { workers, gauges_every: Duration::from_millis(20), ..lasting() };
    let relay = relay(place, gate.listeners()).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    // The first keeps the worker busy until the others are there.
    place.commit(&outbox, vec![free(0)]).await;
    next(&mut starts, 1).await;
    place.commit(&Outbox::new(), (0..cold).map(|n| free(1000 + n)).collect()).await;
    place.commit(&outbox, (1..=hot).map(free).collect()).await;
    let wait = (hot.unsigned_abs(), cold.unsigned_abs());
    soon(
        &probe,
        |seen| matches!(seen, Happening::Counted(it) if (it.hot_depth, it.cold_depth) == wait),
    )
    .await;

    gate.open(1 + usize::try_from(hot + cold).unwrap());
    let order = next(&mut starts, usize::try_from(hot + cold).unwrap()).await;

    let is_cold: Vec<bool> = order.iter().map(|number| *number >= 1000).collect();
    let colds = |three: &[bool]| three.iter().filter(|is_cold| **is_cold).count();
    assert!(is_cold.windows(3).all(|three| colds(three) == 1), "{order:?}");
    handle.stop().await.unwrap();
}

/// A hot delivery that failed is tried again like any other.
pub(crate) async fn a_hot_event_that_fails_is_tried_again(place: &Place) {
    let (listeners, mut hears) = Script::default().fail(1, 2).listeners();
    let relay = relay(place, listeners).settings(blind());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = place.commit(&outbox, vec![free(1)]).await;

    assert_eq!(next(&mut hears, 1).await, [1]);
    assert_eq!(place.event_with(&ids[0], Status::Done).await.attempts, 2);
    handle.stop().await.unwrap();
}

/// A rolled back event was never in anybody's hands.
pub(crate) async fn a_rolled_back_event_is_not_hot(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    place.roll_back(&outbox, vec![free(1)]).await;
    place.commit(&outbox, vec![free(2)]).await;

    assert_eq!(next(&mut hears, 1).await, [2]);
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err());
}

/// A writer that died after its commit: who reads the row delivers it when its lease is over.
pub(crate) async fn the_row_of_a_dead_writer_is_delivered(place: &Place) {
    let event = free(1);
    let id = event.event_id().clone();
    write_and_die(place, event, Duration::from_millis(300)).await;
    let (listeners, mut hears) = Script::default().listeners();

    let handle = relay(place, listeners).spawn().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [1]);
    let stored = place.event_with(&id, Status::Done).await;
    assert!(stored.token.0 >= 3, "born, reclaimed, settled: {:?}", stored.token);
    handle.stop().await.unwrap();
}

/// Read again with every sweep, it is reclaimed by one call at a time, over one connection.
pub(crate) async fn the_row_of_a_dead_writer_is_reclaimed_by_one_call_at_a_time(place: &Place) {
    write_and_die(place, free(1), Duration::ZERO).await;
    let store = FaultyStore::new(place.store());
    let mut first = store.hold(Call::Reclaim, Side::Before);
    let mut second = store.hold(Call::Reclaim, Side::Before);
    let (listeners, mut hears) = Script::default().listeners();
    let probe = Probe::new();
    let relay = Relay::new(store, listeners).settings(quick()).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    first.reached().await;

    tokio::select! {
        () = second.reached() => panic!("it is reclaimed twice at once"),
        () = is_read_again(&probe) => {}
    }

    drop((first, second));
    assert_eq!(next(&mut hears, 1).await, [1]);
    handle.stop().await.unwrap();
}

/// Its lease has run out by the database's clock, and the row is locked: the relay that delivers it
/// does not reclaim it from itself, and its verdict is written when the lock is gone.
pub(crate) async fn a_verdict_on_a_locked_row_whose_lease_ran_out_is_written(place: &Place) {
    let (gate, mut starts) = Gate::new();
    let probe = Probe::new();
    let relay = relay(place, gate.listeners()).settings(lasting()).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let ids = place.commit(&outbox, vec![free(1)]).await;
    next(&mut starts, 1).await;
    place.age(&ids, 2 * lasting().lease).await;
    let lock = place.lock_row(&ids[0]).await;
    is_read_again(&probe).await;

    gate.open(2);

    if let Some(lock) = lock {
        soon(&probe, |seen| matches!(seen, Happening::RowLocked { .. })).await;
        is_read_again(&probe).await;
        lock.release().await;
    }
    place.event_with(&ids[0], Status::Done).await;
    handle.stop().await.unwrap();
    assert_eq!(probe.count(|seen| matches!(seen, Happening::Fenced { .. })), 0);
    assert!(starts.try_recv().is_err(), "it came twice");
}

/// Waits until the only row was read a few times more.
async fn is_read_again(probe: &Probe) {
    let reads = || probe.count(|seen| matches!(seen, Happening::Read { rows: 1 }));
    let before = reads();
    wait_for(async || (reads() >= before + 5).then_some(())).await;
}

/// A row under another's lease is left alone for as long as that lasts.
pub(crate) async fn the_row_of_a_living_writer_is_left_alone(place: &Place) {
    write_and_die(place, free(1), Duration::from_secs(3600)).await;
    let (listeners, mut hears) = Script::default().listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    place.commit(&outbox, vec![keyed("k", 2)]).await;

    assert_eq!(next(&mut hears, 1).await, [2]);
    handle.stop().await.unwrap();
    assert!(hears.try_recv().is_err());
}

/// After a stop the outbox writes ordinary rows, which the next relay delivers at once.
pub(crate) async fn a_stopped_relay_leaves_ordinary_rows(place: &Place) {
    let (listeners, _) = Script::default().listeners();
    let first = relay(place, listeners);
    let outbox = first.outbox();
    first.spawn().await.unwrap().stop().await.unwrap();

    place.commit(&outbox, vec![free(1)]).await;

    let (listeners, mut hears) = Script::default().listeners();
    let second = relay(place, listeners).spawn().await.unwrap();
    assert_eq!(next(&mut hears, 1).await, [1]);
    second.stop().await.unwrap();
}

/// Its row is leased for an hour to the relay that stops: only who gives it back lets another have it.
pub(crate) async fn what_is_committed_during_a_stop_is_handed_over(place: &Place) {
    commit_during_a_stop(place, ClaimMode::Shards).await;
}

pub(crate) async fn what_is_committed_during_a_stop_is_handed_over_by_rows(place: &Place) {
    commit_during_a_stop(place, ClaimMode::Rows).await;
}

async fn commit_during_a_stop(place: &Place, claim: ClaimMode) {
    // The stop has no time to start anything, and all it needs to finish.
    let drain = lasting().delivery_timeout + Duration::from_secs(1);
    let lease = Duration::from_secs(3600);
    let settings = RelaySettings { claim, lease, drain, ..lasting() };
    let (heard, mut hears) = mpsc::unbounded_channel();
    let listeners = || Script::default().telling(heard.clone());
    let store = FaultyStore::new(place.store());
    let first = Relay::new(store.clone(), listeners()).settings(settings.clone());
    let (written, is_written) = oneshot::channel();
    let (go_on, may_go_on) = std::sync::mpsc::channel();
    let hook = HeldCommit(Mutex::new(Some((written, may_go_on))));
    let outbox = first.outbox().hook(hook);
    let first = first.spawn().await.unwrap();
    // A file has one writer at a time: it has its shards before the commit is held.
    wait_for(async || (store.stats().await.unwrap().owned_shards > 0).then_some(())).await;

    // A relay that leaves renews its lease once more, to say that it wants no shards.
    let mut leaving = store.hold(Call::Renew, Side::Before);
    let stopping = tokio::spawn(async move {
        is_written.await.unwrap();
        let stopping = tokio::spawn(first.stop());
        leaving.reached().await;
        leaving.release();
        assert!(!stopping.is_finished(), "it waits for a commit that is under way");
        go_on.send(()).unwrap();
        stopping.await.unwrap().unwrap();
    });
    place.commit(&outbox, vec![free(1)]).await;
    stopping.await.unwrap();

    let second = relay(place, listeners()).settings(settings).spawn().await.unwrap();
    assert_eq!(next(&mut hears, 1).await, [1]);
    second.stop().await.unwrap();
    assert!(hears.try_recv().is_err(), "once");
}

/// Stands between the first insert and its commit until it may go on.
struct HeldCommit(Mutex<Option<(oneshot::Sender<()>, std::sync::mpsc::Receiver<()>)>>);

impl Hook for HeldCommit {
    fn after_write(&self, _: &[Envelope]) {
        let held = self.0.lock().unwrap_or_else(PoisonError::into_inner).take();
        if let Some((written, may_go_on)) = held {
            written.send(()).unwrap();
            tokio::task::block_in_place(|| may_go_on.recv().unwrap());
        }
    }
}

pub(crate) async fn write_and_die(place: &Place, event: Envelope, length: Duration) {
    let owner = OwnerId::generate();
    let hot = Some(Hot { owner: &owner, length, keyed: false });
    let envelopes = [event];
    let insert = Insert { tables: &Tables::default(), envelopes: &envelopes, locks: &[], hot };
    place.insert(&insert).await;
}
