//! A few dead letters in memory, some of the same moment.

use std::sync::{
    Arc,
    atomic::{AtomicI64, Ordering},
};
use std::time::Duration;

use futures_util::FutureExt as _;
use pillarbox::store::{
    AcquireShards, Budget, DeadLetter, DeliveryMode, Events as _, Join, Lease, List,
    Operations as _, OwnedShard, Ownership as _, Read, Settle, Settlement, ShardRead,
};
use pillarbox::{
    Clock, Envelope, ErrorText, MemoryStore, Outbox, OwnerId, Seq, ShardId, Timestamp, Verdict,
};

/// The moment of the first one, in microseconds.
const FIRST: i64 = 1_000_000;

#[derive(Debug)]
pub(super) struct Letters(MemoryStore);

impl Letters {
    pub(super) fn new() -> Self {
        let clock = StandingClock(Arc::new(AtomicI64::new(FIRST)));
        let store = MemoryStore::with_clock(clock.clone());
        let (owner, holdings) = own(&store);
        for number in 0..24 {
            let event_type = ["a.b", "a.c"][number % 2];
            emit(&store, &Envelope::json(event_type, &number).expect("a small payload"));
            give_up(&store, &owner, &holdings, number);
            // Three of them at a time: their places alone tell them apart.
            clock.0.fetch_add(i64::from(number % 3 == 2), Ordering::Relaxed);
        }
        Self(store)
    }

    pub(super) fn store(&self) -> &MemoryStore {
        &self.0
    }

    pub(super) fn page(&self, list: &List) -> Vec<DeadLetter> {
        at_once(self.0.dead_letters(list))
    }
}

/// The answer of the memory store, which never waits and never fails.
pub(super) fn at_once<T>(asked: impl Future<Output = pillarbox::Result<T>>) -> T {
    asked.now_or_never().expect("memory never waits").expect("memory never fails")
}

#[derive(Clone, Debug)]
struct StandingClock(Arc<AtomicI64>);

impl Clock for StandingClock {
    fn now(&self) -> Timestamp {
        Timestamp::from_unix_micros(self.0.load(Ordering::Relaxed))
    }
}

/// An owner of every shard.
fn own(store: &MemoryStore) -> (OwnerId, Vec<OwnedShard>) {
    let owner = OwnerId::generate();
    let lease = Lease { owner: owner.clone(), length: Duration::from_secs(60), wants: u16::MAX };
    at_once(store.join(&Join { lease, mode: DeliveryMode::default() }));
    let take = AcquireShards { owner: owner.clone(), most: u16::MAX, owned: Vec::new() };
    (owner, at_once(store.acquire_shards(&take)))
}

fn emit(store: &MemoryStore, envelope: &Envelope) {
    at_once(async {
        let mut tx = Outbox::new().begin(store).await?;
        tx.emit_envelope(envelope.clone()).await?;
        tx.commit().await
    });
}

fn give_up(store: &MemoryStore, owner: &OwnerId, holdings: &[OwnedShard], number: usize) {
    let shards = (0..64).map(|n| ShardRead { shard: ShardId(n), floor: Seq::START }).collect();
    let rows = at_once(store.read(&Read { shards, limit: 1, budget: Budget::unlimited() }));
    let error = ErrorText::new(["no such customer", "refused"][number / 2 % 2]);
    let settlement = |row: &pillarbox::store::Pending| Settlement {
        shard: row.shard,
        epoch: holdings.iter().find(|held| held.shard == row.shard).expect("all are held").epoch,
        seq: row.seq,
        token: row.token,
        verdict: match number % 5 {
            0 => Verdict::Held { error: error.clone() },
            _ => Verdict::Dead { error: error.clone() },
        },
        settled_by: None,
    };
    let settlements = rows.iter().map(settlement).collect();
    at_once(store.settle(&Settle { owner: owner.clone(), settlements }));
}
