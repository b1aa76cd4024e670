//! Relays that act only when they are told to, and listeners that wait for their answer.

use std::collections::{BTreeMap, HashMap};
use std::num::NonZeroU32;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::store::{
    AcquireShards, Budget, DeliveryMode, Join, Lease, OwnedShard, Pending, Read, Settle,
    Settlement, ShardRead, Status, StoredEvent,
};
use pillarbox::telemetry::{Probe, RelayEvent};
use pillarbox::{
    Cx, Envelope, EventId, Failure, Listeners, Outbox, OwnerId, Relay, RelayHandle, RelaySettings,
    Seq, ShardId, Store, Verdict,
};
use pillarbox_testkit::fake::{Call, FaultyStore, Side};
use pillarbox_testkit::{Backend, Need};
use tokio::sync::{mpsc, oneshot};

use crate::fixture::{free, keyed, next, wait_for};
use crate::telemetry::soon;

pub(crate) const HOUR: Duration = Duration::from_secs(3600);
/// Longer than any test.
pub(crate) const AGES: Duration = HOUR.saturating_mul(24);

/// Settings without polls, sweeps, renewals and maintenance.
pub(crate) fn still() -> RelaySettings {
    RelaySettings {
        lease: AGES,
        delivery_timeout: HOUR,
        poll: AGES,
        sweep: AGES,
        drain: AGES,
        purge_every: AGES,
        gauges_every: AGES,
        ..RelaySettings::default()
    }
}

pub(crate) fn count(number: u32) -> NonZeroU32 {
    NonZeroU32::new(number).unwrap()
}

/// Whether the backend lacks what a test needs; the test is then noted as skipped.
pub(crate) fn lacks<B: Backend>(backend: &B, need: Need) -> bool {
    let reason = backend.lacks(need);
    reason.inspect(|reason| pillarbox_testkit::skip(reason)).is_some()
}

/// A relay with its outbox, its events and its store.
pub(crate) struct ControlledRelay {
    pub(crate) handle: RelayHandle,
    pub(crate) outbox: Outbox,
    pub(crate) probe: Probe,
    /// The store of the relay, where its calls are held.
    pub(crate) store: FaultyStore,
    pub(crate) owner: OwnerId,
}

impl ControlledRelay {
    /// Starts a relay; `configure` gives it settings and a clock.
    pub(crate) async fn start<B: Backend>(
        backend: &B,
        listeners: Listeners,
        configure: impl FnOnce(Relay) -> Relay,
    ) -> Self {
        Self::start_on(FaultyStore::new(backend.store()), listeners, configure).await
    }

    /// Starts a relay on a store whose first calls are held or fail.
    pub(crate) async fn start_on(
        store: FaultyStore,
        listeners: Listeners,
        configure: impl FnOnce(Relay) -> Relay,
    ) -> Self {
        let probe = Probe::new();
        let relay = Relay::new(store.clone(), listeners).settings(still());
        let relay = configure(relay).observer(probe.clone());
        let outbox = relay.outbox();
        let handle = relay.spawn().await.unwrap();
        let started = soon(&probe, |seen| matches!(seen, RelayEvent::Started { .. })).await;
        let RelayEvent::Started { owner, .. } = started else { unreachable!("it was asked for") };
        Self { handle, outbox, probe, store, owner: owner.into_owned() }
    }

    /// Waits until it owns the shards.
    pub(crate) async fn with_shards(self) -> Self {
        soon(&self.probe, |seen| matches!(seen, RelayEvent::ShardsTaken { .. })).await;
        self
    }

    /// Waits until its first reads are over. After that it reads only when it is woken.
    pub(crate) async fn at_rest(self) -> Self {
        let is_read = |seen: &RelayEvent<'_>| matches!(seen, RelayEvent::Read { .. });
        for _ in 0..3 {
            let reads = self.probe.count(is_read);
            let mut read = self.store.hold(Call::Read, Side::Before);
            self.handle.wake();
            read.reached().await;
            read.release();
            self.probe.wait_many(reads + 1, is_read).await;
        }
        self
    }

    /// Waits until one of its verdicts is fenced.
    pub(crate) async fn is_fenced(&self) {
        soon(&self.probe, |seen| matches!(seen, RelayEvent::Fenced { .. })).await;
    }

    /// Waits until it has processed the answers of its store so far, by two events that need no read.
    pub(crate) async fn catches_up<B: Backend>(&self, backend: &B, deliveries: &mut Deliveries) {
        for number in [101, 102] {
            let id = commit(backend, &self.outbox, [free(number)]).await.remove(0);
            assert_eq!(deliveries.next(1).await, [number], "nothing else may start meanwhile");
            event_with(backend, &id, Status::Done).await;
        }
    }

    pub(crate) async fn leave(self) {
        self.handle.stop().await.unwrap();
    }
}

type Answers = HashMap<i64, oneshot::Receiver<Result<(), Failure>>>;

/// The deliveries of a listener that answers when it is told to.
pub(crate) struct Deliveries {
    starts: mpsc::UnboundedReceiver<i64>,
    answers: HashMap<i64, oneshot::Sender<Result<(), Failure>>>,
}

impl Deliveries {
    /// The first delivery of each of these events waits for its answer; others are fine at once.
    pub(crate) fn new(waiting: impl IntoIterator<Item = i64>) -> (Self, Listeners) {
        let (started, starts) = mpsc::unbounded_channel();
        let (mut answers, mut awaited) = (HashMap::new(), Answers::new());
        for number in waiting {
            let (answer, is_answered) = oneshot::channel();
            answers.insert(number, answer);
            awaited.insert(number, is_answered);
        }
        let awaited = Arc::new(Mutex::new(awaited));
        let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let number: i64 = event.payload().as_json().unwrap().parse().unwrap();
            let answer = awaited.lock().unwrap().remove(&number);
            started.send(number).ok();
            async move {
                match answer {
                    Some(answer) => answer.await.unwrap_or(Ok(())),
                    None => Ok(()),
                }
            }
        });
        (Self { starts, answers }, listeners)
    }

    /// The numbers of the next deliveries.
    pub(crate) async fn next(&mut self, count: usize) -> Vec<i64> {
        next(&mut self.starts, count).await
    }

    /// Whether nothing was delivered since.
    pub(crate) fn is_idle(&mut self) -> bool {
        self.starts.try_recv().is_err()
    }

    pub(crate) fn answer(&mut self, number: i64, answer: Result<(), Failure>) {
        let waiting = self.answers.remove(&number).expect("it waits for one answer");
        waiting.send(answer).expect("the delivery is under way, or to come");
    }
}

/// Commits events in one transaction.
pub(crate) async fn commit<B: Backend>(
    backend: &B,
    outbox: &Outbox,
    events: impl IntoIterator<Item = Envelope>,
) -> Vec<EventId> {
    let mut tx = outbox.begin(backend.pool()).await.unwrap();
    let mut ids = Vec::new();
    for event in events {
        ids.extend(tx.emit_envelope(event).await.unwrap());
    }
    tx.commit().await.unwrap();
    ids
}

/// The event as it stands.
pub(crate) async fn event<B: Backend>(backend: &B, id: &EventId) -> StoredEvent {
    backend.store().event(id).await.unwrap().expect("the event is there")
}

/// The event, once it has this status.
pub(crate) async fn event_with<B: Backend>(
    backend: &B,
    id: &EventId,
    status: Status,
) -> StoredEvent {
    let store = backend.store();
    let found = wait_for(async || store.event(id).await.unwrap().filter(|it| it.status == status));
    found.await
}

/// An owner of shards that the test controls.
pub(crate) struct Owner {
    store: Arc<dyn Store>,
    id: OwnerId,
    shards: Vec<OwnedShard>,
}

impl Owner {
    /// Joins and acquires every shard that is free or whose owner has lapsed.
    pub(crate) async fn join<B: Backend>(backend: &B) -> Self {
        Self::join_for(backend, u16::MAX).await
    }

    /// Joins, lets the lease of an owner lapse and acquires its shards; again if it renewed in between.
    pub(crate) async fn overtake<B: Backend>(backend: &B, owner: &OwnerId) -> Self {
        let (store, id) = (backend.store(), OwnerId::generate());
        let lease = Lease { owner: id.clone(), length: AGES, wants: 0 };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
        let take = AcquireShards { owner: id.clone(), most: u16::MAX, owned: vec![] };
        let shards = wait_for(async || {
            backend.expire(owner).await;
            let shards = store.acquire_shards(&take).await.unwrap();
            (!shards.is_empty()).then_some(shards)
        })
        .await;
        Self { store, id, shards }
    }

    /// Joins and acquires at most this many shards. It wants none, so no owner releases any for it.
    pub(crate) async fn join_for<B: Backend>(backend: &B, most: u16) -> Self {
        let (store, id) = (backend.store(), OwnerId::generate());
        let lease = Lease { owner: id.clone(), length: AGES, wants: 0 };
        store.join(&Join { lease, mode: DeliveryMode::default() }).await.unwrap();
        let take = AcquireShards { owner: id.clone(), most, owned: vec![] };
        let shards = store.acquire_shards(&take).await.unwrap();
        assert!(!shards.is_empty(), "there is something to take");
        Self { store, id, shards }
    }

    /// All pending rows of its shards.
    pub(crate) async fn read(&self) -> Vec<Pending> {
        let from_head = |it: &OwnedShard| ShardRead { shard: it.shard, floor: Seq::START };
        let shards = self.shards.iter().map(from_head).collect();
        self.store.read(&Read { shards, limit: 1000, budget: Budget::unlimited() }).await.unwrap()
    }

    /// Writes the same verdict on all of these rows; returns how many were written.
    pub(crate) async fn settle(&self, rows: &[Pending], verdict: &Verdict) -> usize {
        let settlement = |row: &Pending| Settlement {
            shard: row.shard,
            epoch: self.shards.iter().find(|it| it.shard == row.shard).unwrap().epoch,
            seq: row.seq,
            token: row.token,
            verdict: verdict.clone(),
            settled_by: None,
        };
        let settlements = rows.iter().map(settlement).collect();
        let settle = Settle { owner: self.id.clone(), settlements };
        self.store.settle(&settle).await.unwrap().applied.len()
    }

    pub(crate) async fn leave(self) {
        self.store.leave(&self.id).await.unwrap();
    }
}

/// Three keys of one shard, whatever the hash of the store. Leaves no rows behind.
pub(crate) async fn keys_of_one_shard<B: Backend>(backend: &B) -> [String; 3] {
    let events = (0..300).map(|number| keyed(&format!("n{number}"), number));
    commit(backend, &Outbox::new(), events).await;
    let owner = Owner::join(backend).await;
    let rows = owner.read().await;
    assert_eq!(owner.settle(&rows, &Verdict::Delete).await, rows.len());
    owner.leave().await;
    let mut keys: BTreeMap<ShardId, Vec<String>> = BTreeMap::new();
    for row in rows {
        keys.entry(row.shard).or_default().extend(row.key.as_deref().map(str::to_owned));
    }
    let crowd = keys.into_values().rev().find(|keys| keys.len() >= 3).unwrap();
    crowd.into_iter().take(3).collect::<Vec<_>>().try_into().unwrap()
}
