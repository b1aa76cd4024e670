//! The worker pool, under a loop that only starts deliveries, waits, and takes in.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use crate::clock::{Deadline, SystemClock};
use crate::envelope::Envelope;
use crate::layer::Layers;
use crate::listener::{Cx, Listeners};
use crate::relay::Settings;
use crate::relay::dispatch::deliverer::{Deliverer, LeaseKind, Outcome};
use crate::relay::dispatch::fair_share::{FairShare, RouteId};
use crate::relay::dispatch::worker_pool::{self, Assignment, WorkerPool};
use crate::relay::handle::AbortOnDrop;
use crate::relay::ownership::Ownership;
use crate::relay::schedules::{ON_PURPOSE, chance, play};
use crate::store::Content;
use crate::verdict::Failure;

const MANY: usize = 5;

/// Who calls a listener that is told the number of each event.
fn deliverer<F: Future<Output = ()> + Send + 'static>(
    hear: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Arc<Deliverer> {
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number = event.payload().as_json().and_then(|it| it.parse().ok());
        let heard = hear(number.expect("it is a number"));
        async move {
            heard.await;
            Ok::<(), Failure>(())
        }
    });
    let (clock, ownership) = (Arc::new(SystemClock), Ownership::new());
    Arc::new(Deliverer::new(listeners, Layers::default(), clock, ownership, &Settings::default()))
}

fn take_on(pool: &mut WorkerPool<usize>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let lease = LeaseKind::Row(Deadline::after(&SystemClock, Duration::from_secs(3600)));
        let event = Envelope::json("a.b", &number).expect("a number is JSON");
        let route = RouteId::numbered(number as u64 % 2);
        pool.start(
            number,
            Assignment { route, lease, attempts: 0, content: Content::Event(event) },
        );
    }
}

#[derive(Default)]
struct Finished(BTreeMap<usize, Outcome>);

impl Finished {
    fn take_in(&mut self, pool: &mut WorkerPool<usize>) {
        for (number, worker_pool::Finished { outcome, .. }) in pool.take_finished() {
            assert!(self.0.insert(number, outcome).is_none(), "{number} came back twice");
        }
    }

    /// As the loop does: takes in, begins, waits.
    async fn all(mut self, pool: &mut WorkerPool<usize>) -> Self {
        loop {
            self.take_in(pool);
            pool.go();
            if pool.is_empty() {
                return self;
            }
            pool.finished().await;
        }
    }

    fn are_well(&self) {
        assert_eq!(self.0.len(), MANY, "not everything came back");
        assert!(self.0.values().all(Outcome::is_well), "{:?}", self.0);
    }
}

/// A pool that has a worker for each.
fn crew_of(deliverer: Arc<Deliverer>) -> WorkerPool<usize> {
    WorkerPool::new(deliverer, FairShare::new(2 * MANY, true))
}

/// Listeners that are at work, each until it waits for the first time.
struct Busy {
    most: usize,
    now: AtomicUsize,
    calls: [AtomicUsize; MANY],
}

impl Busy {
    fn new(most: usize) -> Arc<Self> {
        Arc::new(Self { most, now: AtomicUsize::new(0), calls: Default::default() })
    }

    /// A listener that blocks its thread for a while.
    fn work(&self, number: usize) {
        let now = self.now.fetch_add(1, Ordering::SeqCst) + 1;
        assert!(now <= self.most, "{now} have their turn on {} threads", self.most);
        shuttle::thread::yield_now();
        self.now.fetch_sub(1, Ordering::SeqCst);
        self.calls[number].fetch_add(1, Ordering::SeqCst);
    }
}

pub(super) fn comes_back_once() {
    let threads = 1 + chance(3);
    play(threads, async move {
        let busy = Busy::new(threads);
        let works = Arc::clone(&busy);
        let mut pool = crew_of(deliverer(move |number| {
            let works = Arc::clone(&works);
            async move {
                works.work(number);
                for _ in 0..chance(3) {
                    tokio::task::yield_now().await;
                }
            }
        }));
        let mut over = Finished::default();

        take_on(&mut pool, 0..3);
        pool.go();
        pool.finished().await;
        over.take_in(&mut pool);
        take_on(&mut pool, 3..MANY);

        over.all(&mut pool).await.are_well();
        assert!(busy.calls.iter().all(|it| it.load(Ordering::SeqCst) == 1), "called twice");
    });
}

/// Two routes with fewer workers than there are events: some are recalled, the others called.
pub(super) fn keeps_to_its_workers() {
    play(1 + chance(3), async {
        let workers = 1 + chance(3);
        let (now, called) = (Arc::new(AtomicUsize::new(0)), Arc::new(AtomicUsize::new(0)));
        let (counts, calls) = (Arc::clone(&now), Arc::clone(&called));
        let hear = move |_| {
            let (now, called) = (Arc::clone(&counts), Arc::clone(&calls));
            async move {
                called.fetch_add(1, Ordering::SeqCst);
                let at_work = now.fetch_add(1, Ordering::SeqCst) + 1;
                assert!(at_work <= workers, "{at_work} of {workers} workers");
                for _ in 0..chance(3) {
                    tokio::task::yield_now().await;
                }
                now.fetch_sub(1, Ordering::SeqCst);
            }
        };
        let mut pool = WorkerPool::new(deliverer(hear), FairShare::new(workers, true));
        take_on(&mut pool, 0..MANY);
        pool.go();
        for _ in 0..chance(3) {
            tokio::task::yield_now().await;
        }
        if chance(2) == 0 {
            pool.recall(|_| true);
        }

        let over = Finished::default().all(&mut pool).await;

        let well = over.0.values().filter(|outcome| outcome.is_well()).count();
        assert_eq!((over.0.len(), well), (MANY, called.load(Ordering::SeqCst)), "{:?}", over.0);
    });
}

/// Each waits for the one behind it.
pub(super) fn passes_the_turn_on() {
    play(1 + chance(2), async {
        let bells: Arc<[Notify; MANY]> = Arc::default();
        let mut pool = crew_of(deliverer(move |number| {
            let bells = Arc::clone(&bells);
            async move {
                if let Some(next) = bells.get(number + 1) {
                    next.notified().await;
                }
                bells[number].notify_one();
            }
        }));

        take_on(&mut pool, 0..MANY);

        Finished::default().all(&mut pool).await.are_well();
    });
}

pub(super) fn fails_by_panic() {
    play(1 + chance(2), async {
        let mut pool = crew_of(deliverer(|number| async move {
            if number % 2 == 1 {
                if number == 3 {
                    tokio::task::yield_now().await;
                }
                std::panic::panic_any(ON_PURPOSE.to_owned());
            }
        }));

        take_on(&mut pool, 0..MANY);

        let over = Finished::default().all(&mut pool).await;
        assert_eq!(over.0.len(), MANY, "not everything came back");
        for (number, outcome) in over.0 {
            let is_failure = matches!(&outcome, Outcome::Judgeable(Err(failed))
                if failed.error.as_str().ends_with(ON_PURPOSE));
            assert_eq!(is_failure, number % 2 == 1, "{number}: {outcome:?}");
        }
    });
}

/// The loop waits for other things as well, and drops the wait that has not ended.
pub(super) fn loses_nothing() {
    play(1 + chance(3), async {
        let notifications = Arc::new(Notify::new());
        let rings = Arc::clone(&notifications);
        let ringing = tokio::spawn(async move {
            for _ in 0..3 {
                rings.notify_one();
                tokio::task::yield_now().await;
            }
        });
        let mut pool = crew_of(deliverer(|_| async {
            for _ in 0..chance(2) {
                tokio::task::yield_now().await;
            }
        }));
        let mut over = Finished::default();
        take_on(&mut pool, 0..MANY);

        while !pool.is_empty() {
            pool.go();
            tokio::select! {
                () = pool.finished() => {}
                () = notifications.notified() => {}
            }
            over.take_in(&mut pool);
        }

        over.are_well();
        ringing.await.expect("it was not aborted");
    });
}

/// Some never answer; the others answer or are cut off.
pub(super) fn is_too_slow() {
    play(1 + chance(2), async {
        let _passing = AbortOnDrop(tokio::spawn(tokio::time::pass()));
        let timeout = Settings::default().delivery_timeout;
        let mut pool = crew_of(deliverer(move |number| async move {
            match number % 3 {
                0 => std::future::pending().await,
                1 => tokio::time::sleep(timeout).await,
                _ => tokio::task::yield_now().await,
            }
        }));

        take_on(&mut pool, 0..MANY);

        let over = Finished::default().all(&mut pool).await;
        assert_eq!(over.0.len(), MANY, "not everything came back");
        assert!(!over.0[&0].is_well() && !over.0[&3].is_well(), "{:?}", over.0);
    });
}

pub(super) fn ends() {
    play(1 + chance(3), async {
        let deliverer = deliverer(|_| async {
            if chance(2) == 0 {
                std::future::pending().await
            }
        });
        let mut pool = crew_of(Arc::clone(&deliverer));
        take_on(&mut pool, 0..MANY);
        pool.go();
        for _ in 0..chance(6) {
            tokio::task::yield_now().await;
        }

        drop(pool);

        // Each of its tasks holds the deliverer.
        for _ in 0..500 {
            if Arc::strong_count(&deliverer) == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("a task goes on without its pool");
    });
}
