//! The crew: the real one, with an engine that only takes in, begins and waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use tokio::sync::Notify;

use super::{ON_PURPOSE, chance, play};
use crate::clock::{Deadline, SystemClock};
use crate::envelope::Envelope;
use crate::layer::Layers;
use crate::listener::{Cx, Listeners};
use crate::relay::Settings;
use crate::relay::crew::{self, Crew, Parcel};
use crate::relay::deliver::{Courier, Outcome, Under};
use crate::relay::handle::AbortOnDrop;
use crate::relay::lease::Tenure;
use crate::relay::routes::{RouteId, Routes};
use crate::store::Content;
use crate::verdict::Failure;

const MANY: usize = 5;

/// Who calls a listener that is told the number of each event.
fn courier<F: Future<Output = ()> + Send + 'static>(
    hear: impl Fn(usize) -> F + Send + Sync + 'static,
) -> Arc<Courier> {
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number = event.payload().as_json().and_then(|it| it.parse().ok());
        let heard = hear(number.expect("it is a number"));
        async move {
            heard.await;
            Ok::<(), Failure>(())
        }
    });
    let (clock, tenure) = (Arc::new(SystemClock), Tenure::new());
    Arc::new(Courier::new(listeners, Layers::default(), clock, tenure, &Settings::default()))
}

fn take_on(crew: &mut Crew<usize>, numbers: std::ops::Range<usize>) {
    for number in numbers {
        let under = Under::Row(Deadline::after(&SystemClock, Duration::from_secs(3600)));
        let event = Envelope::json("a.b", &number).expect("a number is JSON");
        let route = RouteId::numbered(number as u64 % 2);
        crew.start(number, Parcel { route, under, attempts: 0, content: Content::Event(event) });
    }
}

#[derive(Default)]
struct Over(BTreeMap<usize, Outcome>);

impl Over {
    fn take_in(&mut self, crew: &mut Crew<usize>) {
        for (number, crew::Over { outcome, .. }) in crew.take_finished() {
            assert!(self.0.insert(number, outcome).is_none(), "{number} came back twice");
        }
    }

    /// As the engine does: takes in, begins, waits.
    async fn all(mut self, crew: &mut Crew<usize>) -> Self {
        loop {
            self.take_in(crew);
            crew.go();
            if crew.is_empty() {
                return self;
            }
            crew.finished().await;
        }
    }

    fn are_well(&self) {
        assert_eq!(self.0.len(), MANY, "not everything came back");
        assert!(self.0.values().all(Outcome::is_well), "{:?}", self.0);
    }
}

/// A crew that has a worker for each.
fn crew_of(courier: Arc<Courier>) -> Crew<usize> {
    Crew::new(courier, Routes::new(2 * MANY, true))
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
        let mut crew = crew_of(courier(move |number| {
            let works = Arc::clone(&works);
            async move {
                works.work(number);
                for _ in 0..chance(3) {
                    tokio::task::yield_now().await;
                }
            }
        }));
        let mut over = Over::default();

        take_on(&mut crew, 0..3);
        crew.go();
        crew.finished().await;
        over.take_in(&mut crew);
        take_on(&mut crew, 3..MANY);

        over.all(&mut crew).await.are_well();
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
        let mut crew = Crew::new(courier(hear), Routes::new(workers, true));
        take_on(&mut crew, 0..MANY);
        crew.go();
        for _ in 0..chance(3) {
            tokio::task::yield_now().await;
        }
        if chance(2) == 0 {
            crew.recall(|_| true);
        }

        let over = Over::default().all(&mut crew).await;

        let well = over.0.values().filter(|outcome| outcome.is_well()).count();
        assert_eq!((over.0.len(), well), (MANY, called.load(Ordering::SeqCst)), "{:?}", over.0);
    });
}

/// Each waits for the one behind it.
pub(super) fn passes_the_turn_on() {
    play(1 + chance(2), async {
        let bells: Arc<[Notify; MANY]> = Arc::default();
        let mut crew = crew_of(courier(move |number| {
            let bells = Arc::clone(&bells);
            async move {
                if let Some(next) = bells.get(number + 1) {
                    next.notified().await;
                }
                bells[number].notify_one();
            }
        }));

        take_on(&mut crew, 0..MANY);

        Over::default().all(&mut crew).await.are_well();
    });
}

pub(super) fn fails_by_panic() {
    play(1 + chance(2), async {
        let mut crew = crew_of(courier(|number| async move {
            if number % 2 == 1 {
                if number == 3 {
                    tokio::task::yield_now().await;
                }
                std::panic::panic_any(ON_PURPOSE.to_owned());
            }
        }));

        take_on(&mut crew, 0..MANY);

        let over = Over::default().all(&mut crew).await;
        assert_eq!(over.0.len(), MANY, "not everything came back");
        for (number, outcome) in over.0 {
            let is_failure = matches!(&outcome, Outcome::Judgeable(Err(failed))
                if failed.error.as_str().ends_with(ON_PURPOSE));
            assert_eq!(is_failure, number % 2 == 1, "{number}: {outcome:?}");
        }
    });
}

/// The engine waits for other things as well, and drops the wait that has not ended.
pub(super) fn loses_nothing() {
    play(1 + chance(3), async {
        let bell = Arc::new(Notify::new());
        let rings = Arc::clone(&bell);
        let ringing = tokio::spawn(async move {
            for _ in 0..3 {
                rings.notify_one();
                tokio::task::yield_now().await;
            }
        });
        let mut crew = crew_of(courier(|_| async {
            for _ in 0..chance(2) {
                tokio::task::yield_now().await;
            }
        }));
        let mut over = Over::default();
        take_on(&mut crew, 0..MANY);

        while !crew.is_empty() {
            crew.go();
            tokio::select! {
                () = crew.finished() => {}
                () = bell.notified() => {}
            }
            over.take_in(&mut crew);
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
        let mut crew = crew_of(courier(move |number| async move {
            match number % 3 {
                0 => std::future::pending().await,
                1 => tokio::time::sleep(timeout).await,
                _ => tokio::task::yield_now().await,
            }
        }));

        take_on(&mut crew, 0..MANY);

        let over = Over::default().all(&mut crew).await;
        assert_eq!(over.0.len(), MANY, "not everything came back");
        assert!(!over.0[&0].is_well() && !over.0[&3].is_well(), "{:?}", over.0);
    });
}

pub(super) fn ends() {
    play(1 + chance(3), async {
        let courier = courier(|_| async {
            if chance(2) == 0 {
                std::future::pending().await
            }
        });
        let mut crew = crew_of(Arc::clone(&courier));
        take_on(&mut crew, 0..MANY);
        crew.go();
        for _ in 0..chance(6) {
            tokio::task::yield_now().await;
        }

        drop(crew);

        // Each of its tasks holds the courier.
        for _ in 0..500 {
            if Arc::strong_count(&courier) == 1 {
                return;
            }
            tokio::task::yield_now().await;
        }
        panic!("a task goes on without its crew");
    });
}
