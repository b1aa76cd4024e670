//! Leases on rows: renewed during a delivery, released at a stop, and fenced when they are lost.

use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{
    Budget, Claim, ClaimMode, DeliveryMode, Order, Pending, Read, RowLease, RowVerdict, SettleRows,
    ShardRead, Starts, Status,
};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{
    ErrorText, EventId, Outbox, OwnerId, Relay, RelaySettings, Seq, ShardId, Store, Token, Verdict,
};
use pillarbox_testkit::fake::{Call, FaultyStore, Side};

use crate::fixture::{
    Script, TestDatabase, free, keyed, next, relay, until_the_relay_leaves, wait_for,
};
use crate::rows::{Gate, by_rows, patient};
use crate::telemetry::soon;

/// A relay that claims by hand.
struct ManualClaimer {
    store: Arc<dyn Store>,
    owner: OwnerId,
}

impl ManualClaimer {
    /// On tables that are set to row claims.
    async fn new(db: &TestDatabase) -> Self {
        let store = db.store();
        store.configure(&DeliveryMode { claim: ClaimMode::Rows, order: Order::Key }).await.unwrap();
        Self::beside_a_relay(db)
    }

    fn beside_a_relay(db: &TestDatabase) -> Self {
        Self { store: db.store(), owner: OwnerId::generate() }
    }

    async fn claim(&self, length: Duration) -> Vec<Pending> {
        let claim = Claim {
            owner: self.owner.clone(),
            length,
            shards: shards(&*self.store).await,
            after: None,
            limit: 100,
            budget: Budget::unlimited(),
            order: Order::Key,
        };
        self.store.claim(&claim).await.unwrap()
    }
}

async fn shards(store: &dyn Store) -> Vec<ShardId> {
    let count = store.config().await.unwrap().shards.get();
    (0..i16::try_from(count).unwrap()).map(ShardId).collect()
}

/// What is pending.
async fn pending(store: &dyn Store) -> Vec<Pending> {
    let floor = Seq::START;
    let shards = shards(store).await.into_iter().map(|shard| ShardRead { shard, floor }).collect();
    store.read(&Read { shards, limit: 100, budget: Budget::unlimited() }).await.unwrap()
}

/// How many rows are under a lease; nothing else keeps them from being due.
async fn leased(store: &dyn Store) -> usize {
    pending(store).await.iter().filter(|row| !row.due_in.is_zero()).count()
}

/// Writes a verdict under someone's lease.
async fn settle(store: &dyn Store, owner: OwnerId, row: RowLease, verdict: Verdict) -> Vec<Seq> {
    let verdicts = vec![RowVerdict { row, verdict, settled_by: None }];
    store.settle_rows(&SettleRows { owner, verdicts }).await.unwrap()
}

/// An event that was counted before would start alone; the stop comes first and releases it.
pub(crate) async fn a_stop_gives_back_an_event_whose_start_is_being_counted(db: &TestDatabase) {
    db.commit(&Outbox::new(), vec![free(1)]).await;
    let dead = ManualClaimer::new(db).await;
    let rows: Vec<RowLease> = dead.claim(Duration::ZERO).await.iter().map(RowLease::from).collect();
    db.store().record_starts(&Starts { rows, below: 1 }).await.unwrap();
    let store = FaultyStore::new(db.store());
    let mut count = store.hold(Call::RecordStarts, Side::Before);
    let (listeners, mut received) = Script::default().listeners();
    // The stop has no time to start anything, and all it needs to finish.
    let drain = patient().delivery_timeout + Duration::from_secs(1);
    let settings = RelaySettings { drain, ..patient() };
    let relay = Relay::new(store, listeners).settings(settings);
    let handle = relay.spawn().await.unwrap();
    count.reached().await;

    let stopping = tokio::spawn(handle.stop());
    until_the_relay_leaves(db.store()).await;
    count.release();
    stopping.await.unwrap().unwrap();

    assert!(received.try_recv().is_err());
    assert_eq!(leased(&*db.store()).await, 0);
    let again = ManualClaimer::beside_a_relay(db).claim(Duration::from_secs(60)).await;
    assert!(again[0].lapsed, "it was counted");
}

/// As after a kill: another relay claims the row, and the first verdict is fenced.
pub(crate) async fn a_lapsed_lease_is_claimed_and_its_verdict_is_fenced(db: &TestDatabase) {
    let ids = db.commit(&Outbox::new(), vec![keyed("k", 1)]).await;
    let gone = ManualClaimer::new(db).await;
    let claimed = gone.claim(Duration::from_millis(200)).await;
    let (listeners, mut received) = Script::default().listeners();

    let handle = relay(db, listeners).settings(by_rows()).spawn().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [1]);
    db.event_with(&ids[0], Status::Done).await;
    let late = Verdict::Dead { error: ErrorText::new("too late") };
    let row = RowLease::from(&claimed[0]);
    assert_eq!(settle(&*gone.store, gone.owner.clone(), row, late).await, []);
    db.event_with(&ids[0], Status::Done).await;
    handle.stop().await.unwrap();
}

/// A leased row is not claimed by another relay.
pub(crate) async fn a_living_lease_is_left_alone(db: &TestDatabase) {
    db.commit(&Outbox::new(), vec![keyed("k", 1), keyed("k", 2)]).await;
    let claimed = ManualClaimer::new(db).await.claim(Duration::from_secs(3600)).await;
    assert_eq!(claimed.len(), 1, "the head of the key");
    let (listeners, mut received) = Script::default().listeners();
    let handle = relay(db, listeners).settings(by_rows()).spawn().await.unwrap();

    db.commit(&Outbox::new(), vec![keyed("other", 3)]).await;

    assert_eq!(next(&mut received, 1).await, [3]);
    handle.stop().await.unwrap();
    assert!(received.try_recv().is_err());
}

/// Another owner has settled the row during the delivery: the relay's verdict is not written.
pub(crate) async fn a_verdict_that_comes_too_late_changes_nothing(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    let probe = Probe::new();
    let relay = relay(db, gate.listeners()).settings(patient()).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();
    let ids = db.commit(&Outbox::new(), vec![keyed("k", 1)]).await;
    next(&mut starts, 1).await;
    let (store, row) = (db.store(), lease_of(db, &ids[0]).await);
    let owner = store.members().await.unwrap().swap_remove(0).owner;
    let verdict = Verdict::Dead { error: ErrorText::new("by hand") };
    assert_eq!(settle(&*store, owner, row, verdict).await, [row.seq]);

    gate.open(1);

    soon(&probe, |seen| matches!(seen, RelayEvent::Fenced { .. })).await;
    handle.stop().await.unwrap();
    let event = db.event_with(&ids[0], Status::Dead).await;
    assert_eq!(event.last_error.as_deref(), Some("by hand"));
}

async fn lease_of(db: &TestDatabase, id: &EventId) -> RowLease {
    let event = db.store().event(id).await.unwrap().unwrap();
    RowLease { shard: event.shard, seq: event.seq, token: event.token }
}

/// The time that is left of the lease only ever grows by a renewal.
pub(crate) async fn a_lease_is_renewed_while_its_delivery_lasts(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    let (lease, delivery_timeout) = (Duration::from_secs(9), Duration::from_secs(8));
    let settings = RelaySettings { lease, delivery_timeout, ..by_rows() };
    let handle = relay(db, gate.listeners()).settings(settings).spawn().await.unwrap();
    db.commit(&Outbox::new(), vec![keyed("k", 1)]).await;
    next(&mut starts, 1).await;

    let store = db.store();
    let mut before: Option<(Token, Duration)> = None;
    let is_renewed = async || {
        let row = pending(&*store).await.swap_remove(0);
        // Another token is another claim, on a machine that was too slow for the first.
        let renewed = before.is_some_and(|it| it.0 == row.token && it.1 < row.due_in);
        before = Some((row.token, row.due_in));
        renewed.then_some(())
    };
    wait_for(is_renewed).await;

    gate.open(10);
    handle.stop().await.unwrap();
}

/// Events behind a running delivery can be claimed by other relays.
pub(crate) async fn a_stop_gives_back_events_that_have_not_started(db: &TestDatabase) {
    let ids = db.commit(&Outbox::new(), (1..=5).map(free).collect()).await;
    let (gate, mut starts) = Gate::new();
    let drain = Duration::from_secs(60);
    let settings = RelaySettings { workers: 1.try_into().unwrap(), drain, ..patient() };
    let handle = relay(db, gate.listeners()).settings(settings).spawn().await.unwrap();
    let started = next(&mut starts, 1).await;

    let stopping = tokio::spawn(handle.stop());

    let store = db.store();
    wait_for(async || (leased(&*store).await == 1).then_some(())).await;
    let rest = ManualClaimer::beside_a_relay(db).claim(Duration::from_secs(3600)).await;
    assert_eq!(rest.len(), 4);
    assert!(rest.iter().all(|row| row.attempts == 0));
    assert!(!stopping.is_finished(), "the first is under way");
    gate.open(1);
    stopping.await.unwrap().unwrap();
    let begun = usize::try_from(started[0] - 1).unwrap();
    db.event_with(&ids[begun], Status::Done).await;
}

/// A stop releases the rows of queued events.
pub(crate) async fn a_stop_gives_queued_events_back(db: &TestDatabase) {
    let (gate, mut starts) = Gate::new();
    // Deliveries start for a moment only, and may take their time.
    let drain = patient().delivery_timeout + Duration::from_millis(100);
    let settings = RelaySettings { workers: 1.try_into().unwrap(), drain, ..patient() };
    let relay = relay(db, gate.listeners()).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    db.commit(&outbox, (1..=5).map(free).collect()).await;
    next(&mut starts, 1).await;

    let stopping = tokio::spawn(handle.stop());

    let store = db.store();
    wait_for(async || (leased(&*store).await == 1).then_some(())).await;
    gate.open(1);
    stopping.await.unwrap().unwrap();
    let rest = ManualClaimer::beside_a_relay(db).claim(Duration::from_secs(3600)).await;
    assert_eq!(rest.len(), 4);
}

/// Two workers have begun, and as many rows wait at most.
pub(crate) async fn no_more_rows_are_leased_than_the_workers_need(db: &TestDatabase) {
    db.commit(&Outbox::new(), (0..50).map(free).collect()).await;
    let (gate, mut starts) = Gate::new();
    let settings = RelaySettings { workers: 2.try_into().unwrap(), ..patient() };
    let handle = relay(db, gate.listeners()).settings(settings).spawn().await.unwrap();
    let mut numbers = next(&mut starts, 2).await;

    let store = db.store();
    for _ in 0..10 {
        handle.wake();
        let leased = leased(&*store).await;
        assert!((2..=4).contains(&leased), "{leased} rows are in hand");
    }
    assert!(starts.try_recv().is_err(), "two workers, and no third");

    gate.open(50);
    numbers.extend(next(&mut starts, 48).await);
    wait_for(async || (store.stats().await.unwrap().new == 0).then_some(())).await;
    handle.stop().await.unwrap();
    numbers.sort_unstable();
    assert_eq!(numbers, (0..50).collect::<Vec<_>>());
}

/// Delivered and not settled counts too: no more is begun than may come twice.
pub(crate) async fn no_more_events_are_unsettled_than_max_unsettled(db: &TestDatabase) {
    let (few, workers) = (3.try_into().unwrap(), 2.try_into().unwrap());
    let settings = RelaySettings { max_unsettled: few, workers, ..patient() };
    db.commit(&Outbox::new(), (0..50).map(free).collect()).await;
    let (gate, mut starts) = Gate::new();
    let handle = relay(db, gate.listeners()).settings(settings).spawn().await.unwrap();
    next(&mut starts, 2).await;

    let in_hand = leased(&*db.store()).await;
    gate.open(50);

    assert!(in_hand <= 3, "{in_hand} rows are in hand");
    next(&mut starts, 48).await;
    handle.stop().await.unwrap();
}
