use std::sync::atomic::{AtomicU32, Ordering};

use tokio::sync::{Barrier, Semaphore};
use tokio::time::timeout;

use super::*;
use crate::clock::{Deadline, SystemClock};
use crate::envelope::Envelope;
use crate::layer::Layers;
use crate::listener::{Cx, Listeners};
use crate::relay::Settings;
use crate::relay::ownership::Ownership;
use crate::verdict::Next;

const WORKERS: usize = 16;
/// Turns a hang into a failure.
const SOON: Duration = Duration::from_secs(180);

/// A pool whose listener is called with the number of each event.
fn pool<F: Future<Output = ()> + Send + 'static>(
    hear: impl Fn(u32) -> F + Send + Sync + 'static,
) -> WorkerPool<u32> {
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let heard = hear(event.payload().as_json().unwrap().parse().unwrap());
        async move {
            heard.await;
            Ok::<(), Failure>(())
        }
    });
    let (clock, ownership) = (Arc::new(SystemClock), Ownership::new());
    let settings = Settings::default();
    let deliverer = Deliverer::new(listeners, Layers::default(), clock, ownership, &settings);
    WorkerPool::new(Arc::new(deliverer), FairShare::new(WORKERS, true))
}

/// Even and odd numbers go to routes of their own.
fn assignment(number: u32) -> Assignment {
    let route = RouteId::numbered((number % 2).into());
    let lease = LeaseKind::Row(Deadline::after(&SystemClock, Duration::from_secs(3600)));
    let content = Content::Event(Envelope::json("a.b", &number).unwrap());
    Assignment { route, lease, attempts: 0, content }
}

fn start(pool: &mut WorkerPool<u32>, numbers: std::ops::Range<u32>) {
    numbers.for_each(|number| pool.start(number, assignment(number)));
    pool.go();
}

/// Everything, as it comes.
async fn all(pool: &mut WorkerPool<u32>) -> Vec<(u32, Finished)> {
    let mut finished = Vec::new();
    while !pool.is_empty() {
        timeout(SOON, pool.finished()).await.expect("something is over soon");
        finished.extend(pool.take_finished());
    }
    finished
}

#[tokio::test]
async fn those_that_wait_are_under_way_together() {
    let barrier = Arc::new(Barrier::new(10));
    let mut pool = pool(move |_| {
        let barrier = Arc::clone(&barrier);
        async move {
            barrier.wait().await;
        }
    });

    start(&mut pool, 0..10);

    assert_eq!(all(&mut pool).await.len(), 10);
}

#[tokio::test(start_paused = true)]
async fn quick_ones_are_told_of_by_the_dozen() {
    let waiting = tokio::spawn(async {
        let mut pool = pool(async |_| {});
        start(&mut pool, 0..100);

        pool.finished().await;

        assert_eq!(pool.take_finished().len(), IN_A_ROW as usize);
        assert_eq!(pool.shared.state().tasks.len(), 1, "one task for all of them");
        assert_eq!(all(&mut pool).await.len(), 100 - IN_A_ROW as usize);
    });

    waiting.await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn one_that_blocks_its_thread_keeps_no_other_from_being_called() {
    let (heard, hears) = std::sync::mpsc::channel();
    let hears = Arc::new(Mutex::new(hears));
    let mut pool = pool(move |number| {
        if number == 0 {
            let hears = hears.lock().unwrap();
            (1..50).for_each(|_| hears.recv_timeout(SOON).expect("the others are called"));
        } else {
            heard.send(()).unwrap();
        }
        async {}
    });

    start(&mut pool, 0..50);

    assert!(all(&mut pool).await.iter().all(|(_, over)| over.outcome.is_well()));
}

#[tokio::test]
async fn a_panic_is_a_failure_that_says_why_and_the_others_go_on() {
    let mut pool = pool(|number| async move {
        tokio::task::yield_now().await;
        assert!(number != 3, "number {number} is bad");
    });

    start(&mut pool, 0..6);

    for (number, Finished { outcome, .. }) in all(&mut pool).await {
        match outcome {
            Outcome::Judgeable(Err(failed)) if number == 3 => {
                assert_eq!(failed.error.as_str(), "the listener panicked: number 3 is bad");
                assert!(matches!(failed.next, Next::Retry), "{failed:?}");
            }
            outcome => assert!(outcome.is_well(), "{number}: {outcome:?}"),
        }
    }
}

#[tokio::test]
async fn a_turn_that_ended_is_taken_again() {
    let mut pool = pool(|number| async move {
        if number % 2 == 0 {
            tokio::task::yield_now().await;
        }
    });

    for round in 0..20 {
        start(&mut pool, round * 3..round * 3 + 3);
        assert_eq!(all(&mut pool).await.len(), 3);
    }

    assert_eq!(pool.shared.state().turns, 0);
}

/// Even ones wait until they are let go, as many as there are; odd ones answer at once.
fn gate() -> (Arc<Semaphore>, Arc<AtomicU32>, WorkerPool<u32>) {
    let (gate, called) = (Arc::new(Semaphore::new(0)), Arc::new(AtomicU32::new(0)));
    let (opens, calls) = (Arc::clone(&gate), Arc::clone(&called));
    let pool = pool(move |number| {
        let (opens, calls) = (Arc::clone(&opens), Arc::clone(&calls));
        async move {
            if number % 2 == 0 {
                calls.fetch_add(1, Ordering::SeqCst);
                opens.acquire().await.unwrap().forget();
            }
        }
    });
    (gate, called, pool)
}

#[tokio::test]
async fn a_route_that_waits_has_its_share_of_workers_and_the_others_go_on() {
    let (gate, called, mut pool) = gate();
    let most = u32::try_from(WORKERS - WORKERS / 4).unwrap();
    start(&mut pool, 0..100);

    let mut over = Vec::new();
    while over.len() < 50 {
        timeout(SOON, pool.finished()).await.expect("the odd ones are over soon");
        over.extend(pool.take_finished());
    }

    assert!(over.iter().all(|(number, over)| number % 2 == 1 && over.outcome.is_well()));
    assert_eq!((called.load(Ordering::SeqCst), pool.len()), (most, 50));

    gate.add_permits(50);
    assert_eq!(all(&mut pool).await.len(), 50);
    let state = pool.shared.state();
    assert_eq!((state.turns, state.routes.busy), (0, 0));
}

#[tokio::test]
async fn what_is_recalled_before_it_was_begun_is_too_late() {
    let (gate, called, mut pool) = gate();
    start(&mut pool, 0..100);
    while pool.len() > 50 {
        pool.finished().await;
        pool.take_finished();
    }

    pool.recall(|_| true);

    let recalled = pool.take_finished();
    let begun = called.load(Ordering::SeqCst) as usize;
    assert_eq!(recalled.len(), 50 - begun);
    assert!(recalled.iter().all(|(_, over)| matches!(over.outcome, Outcome::TooLate)));
    gate.add_permits(begun);
    assert!(all(&mut pool).await.iter().all(|(_, over)| over.outcome.is_well()));
    assert_eq!(called.load(Ordering::SeqCst) as usize, begun, "a recalled one was called");
}

/// Neither one that waits nor one that takes long nor one that fails.
#[tokio::test]
async fn only_what_answers_well_and_soon_is_answered_at_once() {
    let mut pool = pool(|number| async move {
        match number {
            0 => tokio::task::yield_now().await,
            1 => std::thread::sleep(AT_ONCE),
            2 => panic!("on purpose"),
            _ => {}
        }
    });

    start(&mut pool, 0..10);

    for (number, Finished { at_once, .. }) in all(&mut pool).await {
        assert!(!at_once || number > 2, "{number}");
    }
}

/// Tells when a delivery ends, however it does.
struct Alive(Arc<Notify>);

impl Drop for Alive {
    fn drop(&mut self) {
        self.0.notify_one();
    }
}

#[tokio::test]
async fn dropped_it_stops_what_is_under_way() {
    let (begun, ended) = (Arc::new(Notify::new()), Arc::new(Notify::new()));
    let (begins, ends) = (Arc::clone(&begun), Arc::clone(&ended));
    let mut pool = pool(move |_| {
        let alive = Alive(Arc::clone(&ends));
        begins.notify_one();
        async move {
            let _alive = alive;
            std::future::pending().await
        }
    });
    start(&mut pool, 0..1);
    begun.notified().await;

    drop(pool);

    timeout(SOON, ended.notified()).await.expect("the delivery is dropped");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn dropped_while_a_listener_is_called_it_calls_no_other() {
    let (begun, begins) = std::sync::mpsc::channel();
    let (dropped, drops) = std::sync::mpsc::channel();
    let drops = Arc::new(Mutex::new(drops));
    let mut pool = pool(move |_| {
        begun.send(()).unwrap();
        drops.lock().unwrap().recv_timeout(SOON).expect("the pool is dropped");
        std::future::pending()
    });
    let deliverer = Arc::clone(&pool.shared.deliverer);
    start(&mut pool, 0..2);
    begins.recv_timeout(SOON).expect("the first is called");

    drop(pool);
    dropped.send(()).unwrap();

    let ended = async {
        while Arc::strong_count(&deliverer) > 1 {
            tokio::task::yield_now().await;
        }
    };
    timeout(SOON, ended).await.expect("its tasks end");
    assert!(begins.try_recv().is_err(), "another was called");
}
