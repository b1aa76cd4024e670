//! Purges and gauges of a relay.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{AcquireShards, ClaimMode, DeliveryMode, Join, Lease, Order, Status};
use pillarbox::telemetry::{Gauges, Probe, RelayEvent};
use pillarbox::{
    Cx, Envelope, ErrorKind, EventId, Failure, Listeners, Maintenance, Outbox, OwnerId,
    RelaySettings,
};
use pillarbox_testkit::fake::ManualClock;
use tokio::sync::Semaphore;

use crate::fixture::{
    ALWAYS, Script, TestDatabase, WAIT_TIMEOUT, free, keyed, next, quick, relay, wait_for,
};
use crate::telemetry::soon;

/// So short that no test has to wait for it.
const MOMENT: Duration = Duration::from_millis(1);
const AGES: Duration = Duration::from_secs(86_400);

fn purging() -> RelaySettings {
    RelaySettings { purge_every: Duration::from_millis(20), ..quick() }
}

/// Dead letters stay: their retention is longer.
pub(crate) async fn a_relay_purges_what_is_past_its_own_retention(db: &TestDatabase) {
    let probe = Probe::new();
    let (listeners, mut received) = Script::default().fail(2, ALWAYS).listeners();
    let settings = RelaySettings { retention_done: MOMENT, ..purging() };
    let relay = relay(db, listeners).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1), free(2)]).await;
    next(&mut received, 1).await;

    soon(&probe, |seen| matches!(seen, RelayEvent::Purged { kind: "done", rows: 1 })).await;
    let dead = db.event_with(&ids[1], Status::Dead).await;
    assert_eq!(dead.attempts, 3);
    assert!(db.store().event(&ids[0]).await.unwrap().is_none());
    handle.stop().await.unwrap();
    assert!(db.store().event(&ids[1]).await.unwrap().is_some(), "kept for 30 days");
}

/// Each kind has a retention of its own.
pub(crate) async fn dead_letters_and_their_trail_have_retentions_of_their_own(db: &TestDatabase) {
    let probe = Probe::new();
    let (listeners, mut received) = Script::default().fail(1, ALWAYS).fail(3, ALWAYS).listeners();
    let settings = RelaySettings { retention_dead: MOMENT, retention_audit: MOMENT, ..purging() };
    let relay = relay(db, listeners).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1), free(2), keyed("k", 3)]).await;
    next(&mut received, 1).await;

    soon(&probe, |seen| matches!(seen, RelayEvent::Purged { kind: "dead", rows: 1 })).await;
    soon(&probe, |seen| matches!(seen, RelayEvent::Purged { kind: "audit", .. })).await;
    db.event_with(&ids[1], Status::Done).await;
    db.event_with(&ids[2], Status::Held).await;
    handle.stop().await.unwrap();
    assert!(db.store().event(&ids[0]).await.unwrap().is_none());
    assert_eq!(probe.count(|seen| matches!(seen, RelayEvent::Purged { kind: "done", .. })), 0);
}

/// Other relays do not purge, whatever their retention.
pub(crate) async fn only_the_owner_of_the_lowest_shard_purges(db: &TestDatabase, claim: ClaimMode) {
    let id = deliver(db, 1, claim).await.swap_remove(0);
    let (store, other) = (db.store(), OwnerId::generate());
    let lease = Lease { owner: other.clone(), length: AGES, wants: 64 };
    store.join(&Join { lease, mode: DeliveryMode { claim, order: Order::Key } }).await.unwrap();
    let take = AcquireShards { owner: other.clone(), most: 64, owned: vec![] };
    assert!(!store.acquire_shards(&take).await.unwrap().is_empty());
    let often = Duration::from_millis(20);
    let settings =
        RelaySettings { claim, retention_done: MOMENT, gauges_every: often, ..purging() };
    let probe = Probe::new();
    let relay = relay(db, Listeners::new()).settings(settings).observer(probe.clone());

    let handle = relay.spawn().await.unwrap();

    // Gauges come as often as purges, give or take a half: by the tenth, a purge had its turn.
    let counting = probe.wait_many(10, |seen| matches!(seen, RelayEvent::Counted(_)));
    tokio::time::timeout(WAIT_TIMEOUT, counting).await.unwrap();
    assert!(store.event(&id).await.unwrap().is_some(), "it was not its turn");
    store.leave(&other).await.unwrap();
    soon(&probe, |seen| matches!(seen, RelayEvent::Purged { kind: "done", rows: 1 })).await;
    handle.stop().await.unwrap();
}

/// The purge runs until nothing old is left.
pub(crate) async fn a_purge_goes_batch_by_batch_to_its_end(db: &TestDatabase) {
    let ids = deliver(db, 25, ClaimMode::Shards).await;
    let (probe, clock, store) = (Probe::new(), ManualClock::new(), db.store());
    let purge_batch = 10.try_into().unwrap();
    let settings =
        RelaySettings { retention_done: MOMENT, purge_batch, ..RelaySettings::default() };
    let maintenance = Maintenance::new(db.store()).settings(settings).clock(clock.clone());
    let mut scheduler = maintenance.observer(probe.clone()).tick().unwrap();

    // By the database's clock, every row is past its retention then.
    db.age(&ids, AGES).await;
    clock.advance(AGES);
    scheduler.run_due().await.unwrap();

    let all_in_one_turn =
        |seen: &RelayEvent<'_>| matches!(seen, RelayEvent::Purged { kind: "done", rows: 25 });
    assert_eq!(probe.count(all_in_one_turn), 1, "{:#?}", probe.seen());
    assert_eq!(store.breakdown().await.unwrap().done, 0);
}

/// Delivers this many events with a relay that stops afterwards.
async fn deliver(db: &TestDatabase, events: i64, claim: ClaimMode) -> Vec<EventId> {
    let (listeners, mut received) = Script::default().listeners();
    let relay = relay(db, listeners).settings(RelaySettings { claim, ..quick() });
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let ids = db.commit(&outbox, (0..events).map(free).collect()).await;
    next(&mut received, ids.len()).await;
    handle.stop().await.unwrap();
    ids
}

/// Where another program delivers, events of every status are purged.
pub(crate) async fn without_a_relay_maintenance_purges_by_age_alone(db: &TestDatabase) {
    let store = db.store();
    let outbox = Outbox::new().prefix(store.prefix());
    let ids = db.commit(&outbox, vec![free(1)]).await;
    let nobody = DeliveryMode { claim: ClaimMode::None, ..DeliveryMode::default() };
    store.configure(&nobody).await.unwrap();
    let clock = ManualClock::new();
    let old = RelaySettings { retention_done: MOMENT, ..RelaySettings::default() };
    let maintenance = Maintenance::new(db.store()).settings(old).clock(clock.clone());
    let mut scheduler = maintenance.tick().unwrap();

    wait_for(async || {
        clock.advance(AGES);
        assert_eq!(scheduler.run_due().await.unwrap(), 2);
        store.event(&ids[0]).await.unwrap().is_none().then_some(())
    })
    .await;

    let hasty = RelaySettings { retention_done: Duration::ZERO, ..RelaySettings::default() };
    let mut scheduler = Maintenance::new(db.store()).settings(hasty).tick().unwrap();
    assert_eq!(scheduler.run_due().await.unwrap_err().kind(), ErrorKind::Configuration);
}

/// From the tables, and from the relay itself.
pub(crate) async fn gauges_report_the_event_counts(db: &TestDatabase) {
    let probe = Probe::new();
    let (listeners, mut received) = Script::default().fail(1, ALWAYS).fail(2, ALWAYS).listeners();
    let settings = RelaySettings { gauges_every: Duration::from_millis(20), ..quick() };
    let relay = relay(db, listeners).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    let shards = u64::from(db.store().config().await.unwrap().shards.get());
    let handle = relay.spawn().await.unwrap();

    let later = free(4).deliver_after(AGES);
    db.commit(&outbox, vec![free(1), keyed("k", 2), keyed("k", 3), free(9), later]).await;
    assert_eq!(next(&mut received, 1).await, [9]);

    let expected = Gauges {
        pending: 3,
        waiting: 1,
        dead: 1,
        held_keys: 1,
        oldest_lag: Duration::ZERO,
        owners: 1,
        owned_shards: shards,
        own_shards: shards,
        ..Gauges::default()
    };
    soon(&probe, |seen| {
        matches!(seen, RelayEvent::Counted(gauges)
            if Gauges { oldest_lag: Duration::ZERO, ..*gauges } == expected)
    })
    .await;
    handle.stop().await.unwrap();
}

/// In memory, while the only worker is busy.
pub(crate) async fn gauges_report_the_events_waiting_for_a_worker(db: &TestDatabase) {
    let (probe, never) = (Probe::new(), Arc::new(Semaphore::new(0)));
    let wait = Arc::clone(&never);
    let listeners = Listeners::new().fallback(move |_: Envelope, _: Cx| {
        let wait = Arc::clone(&wait);
        async move {
            wait.acquire().await.ok();
            Ok::<_, Failure>(())
        }
    });
    let workers = NonZeroU32::new(1).unwrap();
    let settings = RelaySettings { gauges_every: Duration::from_millis(20), workers, ..quick() };
    let relay = relay(db, listeners).settings(settings).observer(probe.clone());
    let outbox = relay.outbox();
    db.commit(&Outbox::new(), (0..3).map(free).collect()).await;
    let handle = relay.spawn().await.unwrap();

    let depths = |seen: &RelayEvent<'_>, hot, cold| {
        matches!(seen, RelayEvent::Counted(gauges)
            if (gauges.hot_depth, gauges.cold_depth) == (hot, cold))
    };
    soon(&probe, |seen| depths(seen, 0, 2)).await;
    db.commit(&outbox, vec![free(4)]).await;
    soon(&probe, |seen| depths(seen, 1, 2)).await;

    never.close();
    handle.stop().await.unwrap();
}

/// The relay does not start.
pub(crate) async fn retentions_that_keep_nothing_are_refused(db: &TestDatabase) {
    let settings = RelaySettings { retention_dead: Duration::ZERO, ..quick() };

    let refused = relay(db, Listeners::new()).settings(settings.clone()).spawn().await;
    let by_hand = Maintenance::new(db.store()).settings(settings).tick();

    assert_eq!(refused.unwrap_err().kind(), ErrorKind::Configuration);
    assert_eq!(by_hand.unwrap_err().kind(), ErrorKind::Configuration);
}
