//! The local queue and its handovers, with writers that make up their rows.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicI64, AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;
use tokio::task::JoinSet;

use crate::clock::{SystemClock, Timestamp};
use crate::envelope::Envelope;
use crate::id::{Epoch, OwnerId, Seq, ShardId};
use crate::local_queue::{
    Handover, LocalQueue, LocalReceiver, LocalRelay, Message, OwnedShards, Registration,
};
use crate::relay::fetch::local_events::LocalEvents;
use crate::relay::schedules::{chance, play};
use crate::telemetry::Observers;
use crate::tx::Inserted;

const PLACES: usize = 3;

/// Payloads of a megabyte: this many fit by their bytes, and half of them as many only once.
const LARGE: usize = 1_000_000;
const FIT: usize = 33;

/// OwnedShards every shard.
#[derive(Debug)]
struct Every;

impl OwnedShards for Every {
    fn epoch(&self, _: ShardId) -> Option<Epoch> {
        Some(Epoch(7))
    }
}

fn host() -> LocalRelay {
    LocalRelay {
        owner: OwnerId::generate(),
        lease: Duration::from_secs(15),
        clock: Arc::new(SystemClock),
        observers: Observers::default(),
        shards: Some(Arc::new(Every)),
    }
}

fn open(places: usize) -> (LocalQueue, LocalReceiver) {
    let (queue, events) = LocalQueue::new(u32::try_from(places).expect("a few"));
    queue.open(host());
    (queue, events)
}

/// Events of one transaction: one or two, with a key or without.
fn events() -> Vec<Envelope> {
    let event = |_| {
        let free = Envelope::json("order.placed", &7).expect("a number is JSON");
        if chance(2) == 0 { free } else { free.aggregate("order", "7").expect("it is short") }
    };
    (0..=chance(2)).map(event).collect()
}

/// What happens at the queue, counted by those who take part in it.
#[derive(Default)]
struct Traffic {
    seqs: AtomicI64,
    /// Capacity that are certainly taken.
    taken: AtomicUsize,
    kept: AtomicUsize,
    is_closed: AtomicBool,
}

impl Traffic {
    fn places(&self, events: &[Envelope]) -> Vec<Option<Inserted>> {
        let occurred_at = Timestamp::from_unix_micros(0);
        let place = |_| {
            let seq = Seq(self.seqs.fetch_add(1, Ordering::SeqCst));
            Some(Inserted { seq, shard: ShardId(0), occurred_at, is_next: true })
        };
        events.iter().map(place).collect()
    }

    fn take(&self, places: usize, most: usize) {
        let taken = self.taken.fetch_add(places, Ordering::SeqCst) + places;
        assert!(taken <= most, "{taken} places are taken of {most}");
    }

    fn give_back(&self, places: usize) {
        self.taken.fetch_sub(places, Ordering::SeqCst);
    }

    /// A transaction: places first, then the insert, then a commit or none.
    fn write(&self, queue: &LocalQueue, load: Load) {
        let events = &(load.events)();
        let was_closed = self.is_closed.load(Ordering::SeqCst);
        let Some(held) = queue.reserve(events) else { return };
        assert!(!was_closed, "a place in a queue that is closed");
        self.take(events.len(), load.most);
        shuttle::thread::yield_now();
        let handover = Handover::new(queue.clone(), held, self.places(events), events);
        shuttle::thread::yield_now();
        if chance(load.commits) > 0 {
            self.give_back(events.len());
            return drop(handover);
        }
        self.kept.fetch_add(events.len(), Ordering::SeqCst);
        assert!(handover.keep(events), "some were not handed over");
    }
}

/// What writers do.
#[derive(Clone, Copy)]
struct Load {
    /// Transactions of each of them.
    each: usize,
    /// One of so many commits.
    commits: usize,
    /// Events that may be in the queue.
    most: usize,
    events: fn() -> Vec<Envelope>,
}

fn writers(queue: &LocalQueue, traffic: &Arc<Traffic>, load: Load) -> JoinSet<()> {
    let mut writers = JoinSet::new();
    for _ in 0..3 {
        let (queue, traffic) = (queue.clone(), Arc::clone(traffic));
        writers.spawn(async move {
            for _ in 0..load.each {
                traffic.write(&queue, load);
                tokio::task::yield_now().await;
            }
        });
    }
    writers
}

async fn join(mut writers: JoinSet<()>) {
    while let Some(ended) = writers.join_next().await {
        ended.expect("it was not aborted");
    }
}

/// A relay that only reads its messages.
#[derive(Default)]
struct Reader {
    /// Rows that were registered, and what they came to.
    rows: BTreeMap<Seq, Option<&'static str>>,
    delivered: usize,
}

impl Reader {
    fn read(&mut self, messages: Message, traffic: &Traffic) {
        match messages {
            Message::Leased(event) => self.deliver(event, 1, traffic),
            Message::Registered(rows) => {
                for Registration { seq, .. } in rows {
                    assert!(self.rows.insert(seq, None).is_none(), "{seq:?} registered twice");
                }
            }
            Message::Committed(events) => {
                events.iter().for_each(|it| self.end(it.registration.seq, "committed"));
                let places = events.len();
                self.deliver(events, places, traffic);
            }
            Message::Withdrawn(rows) => rows.iter().for_each(|it| self.end(it.seq, "withdrawn")),
        }
    }

    fn end(&mut self, seq: Seq, what: &'static str) {
        let row = self.rows.get_mut(&seq).expect("it was registered before");
        let before = row.replace(what);
        assert!(before.is_none(), "{seq:?} is {what} and was {before:?}");
    }

    fn deliver<T>(&mut self, events: T, places: usize, traffic: &Traffic) {
        self.delivered += places;
        shuttle::thread::yield_now();
        traffic.give_back(places);
        drop(events);
    }

    /// Reads until the writers have ended, and then what is left.
    async fn read_all(
        mut self,
        mut messages: LocalReceiver,
        traffic: &Traffic,
        end: &Notify,
    ) -> LocalReceiver {
        loop {
            tokio::select! {
                Some(first) = messages.next() => self.read(first, traffic),
                () = end.notified() => break,
            }
        }
        while let Some(last) = messages.try_next() {
            self.read(last, traffic);
        }
        assert_eq!(self.delivered, traffic.kept.load(Ordering::SeqCst), "messages was lost");
        assert!(self.rows.values().all(Option::is_some), "registered for ever: {:?}", self.rows);
        messages
    }
}

async fn traffic(places: usize, load: Load) {
    let (queue, messages) = open(places);
    let (traffic, end) = (Arc::new(Traffic::default()), Arc::new(Notify::new()));
    let writers = writers(&queue, &traffic, load);
    let (seen, ends) = (Arc::clone(&traffic), Arc::clone(&end));
    let reading =
        tokio::spawn(async move { Reader::default().read_all(messages, &seen, &ends).await });
    join(writers).await;
    end.notify_one();
    let _open = reading.await.expect("it was not aborted");
    assert_eq!(traffic.taken.load(Ordering::SeqCst), 0, "places are taken");
    assert_eq!(format!("{queue:?}"), format!("LocalQueue {{ free: {places} }}"));
    assert!(queue.reserve(&(load.events)()).is_some(), "there is no room again");
}

pub(super) fn is_in_order() {
    play(2, traffic(PLACES, Load { each: 2, commits: 2, most: PLACES, events }));
}

pub(super) fn bounds_bytes() {
    // Few of them commit: a payload is copied then, which takes longer than all the rest.
    fn large() -> Vec<Envelope> {
        static ONE: std::sync::OnceLock<Envelope> = std::sync::OnceLock::new();
        let one = ONE.get_or_init(|| {
            Envelope::json("report.made", &"x".repeat(LARGE)).expect("text is JSON")
        });
        vec![one.clone(); FIT / 2 + 1]
    }
    play(2, traffic(1000, Load { each: 1, commits: 16, most: FIT, events: large }));
}

/// The relay ends at any time, as it does when it drains, or is dropped.
pub(super) fn gives_back() {
    play(2, async {
        let (queue, messages) = open(PLACES);
        let mut work = LocalEvents::new(queue.clone(), messages, Observers::default());
        let traffic = Arc::new(Traffic::default());
        let writers =
            writers(&queue, &traffic, Load { each: 2, commits: 2, most: usize::MAX, events });
        for _ in 0..chance(4) {
            tokio::task::yield_now().await;
        }
        if chance(2) == 0 {
            work.close();
            work.stop();
            traffic.is_closed.store(true, Ordering::SeqCst);
        }
        shuttle::thread::yield_now();
        drop(work);
        traffic.is_closed.store(true, Ordering::SeqCst);

        join(writers).await;

        assert_eq!(format!("{queue:?}"), format!("LocalQueue {{ free: {PLACES} }}"));
    });
}
