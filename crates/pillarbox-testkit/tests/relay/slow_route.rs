//! A route with a slow listener: it takes neither all workers nor all memory.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Cx, Envelope, Failure, Key, Listeners, Outbox, Relay, RelaySettings};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::fixture::{TestDatabase, free, keyed, next, quick, relay};

/// More events than a relay keeps in memory.
const SLOW: i64 = 200;

/// A relay whose slow listener waits for a permit for each event.
struct Slowed {
    relay: Relay,
    permits: Arc<Semaphore>,
    received: UnboundedReceiver<i64>,
}

fn slowed(db: &TestDatabase) -> Slowed {
    let (sender, received) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&permits);
    let tell = move |event: Envelope, _: Cx| {
        let (sender, wait) = (sender.clone(), Arc::clone(&wait));
        async move {
            if event.event_type().as_str() == "test.slow" {
                wait.acquire().await.unwrap().forget();
            }
            sender.send(event.payload().as_json().unwrap().parse().unwrap()).ok();
            Ok::<_, Failure>(())
        }
    };
    let settings = RelaySettings {
        workers: NonZeroU32::new(4).unwrap(),
        batch: NonZeroU32::new(40).unwrap(),
        delivery_timeout: Duration::from_secs(60),
        lease: Duration::from_secs(90),
        ..quick()
    };
    let relay = relay(db, Listeners::new().fallback(tell)).settings(settings);
    Slowed { relay, permits, received }
}

/// Some with a key, some without.
fn slow(number: i64) -> Envelope {
    let event = Envelope::json("test.slow", &number).unwrap();
    if number % 2 == 0 { event } else { event.key(Key::Given(format!("{}", number % 10))).unwrap() }
}

/// Every event once, and those of each key in order.
async fn hear_all_slow(permits: &Semaphore, received: &mut UnboundedReceiver<i64>) {
    permits.add_permits(usize::try_from(SLOW).unwrap());
    let numbers = next(received, usize::try_from(SLOW).unwrap()).await;
    for key in [1, 3, 5, 7, 9] {
        let of_key: Vec<i64> =
            numbers.iter().copied().filter(|number| number % 10 == key).collect();
        assert!(of_key.is_sorted(), "out of order: {of_key:?}");
    }
    let mut sorted = numbers;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..SLOW).collect::<Vec<_>>());
}

pub(crate) async fn a_slow_routes_backlog_does_not_delay_the_others(db: &TestDatabase) {
    let Slowed { relay, permits, mut received } = slowed(db);
    db.commit(&Outbox::new(), (0..SLOW).map(slow).collect()).await;
    db.commit(&Outbox::new(), (1000..1050).map(free).collect()).await;
    db.commit(&Outbox::new(), (2000..2050).map(|n| keyed("other", n)).collect()).await;
    let handle = relay.spawn().await.unwrap();

    let mut others = next(&mut received, 100).await;
    others.sort_unstable();
    assert_eq!(others, (1000..1050).chain(2000..2050).collect::<Vec<_>>());

    hear_all_slow(&permits, &mut received).await;
    handle.stop().await.unwrap();
}

pub(crate) async fn a_slow_routes_queued_events_do_not_delay_the_others(db: &TestDatabase) {
    let Slowed { relay, permits, mut received } = slowed(db);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    for number in 0..SLOW {
        db.commit(&outbox, vec![slow(number)]).await;
    }

    for number in 1000..1010 {
        db.commit(&outbox, vec![free(number), keyed("other", number + 1000)]).await;
    }

    let mut others = next(&mut received, 20).await;
    others.sort_unstable();
    assert_eq!(others, (1000..1010).chain(2000..2010).collect::<Vec<_>>());

    hear_all_slow(&permits, &mut received).await;
    handle.stop().await.unwrap();
}

/// A key is in order whatever the routes of its events.
pub(crate) async fn the_next_event_of_the_slow_key_waits(db: &TestDatabase) {
    let Slowed { relay, permits, mut received } = slowed(db);
    db.commit(&Outbox::new(), (0..SLOW).map(slow).collect()).await;
    let behind = (0..10).map(|n| keyed(&format!("{}", 2 * (n % 5) + 1), 3000 + n)).collect();
    db.commit(&Outbox::new(), behind).await;
    db.commit(&Outbox::new(), vec![free(1000)]).await;
    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [1000]);

    permits.add_permits(usize::try_from(SLOW).unwrap());
    let numbers = next(&mut received, usize::try_from(SLOW).unwrap() + 10).await;
    for n in 0..10 {
        let key = 2 * (n % 5) + 1;
        let at = numbers.iter().position(|number| *number == 3000 + n).unwrap();
        let last = numbers.iter().rposition(|number| *number < SLOW && number % 10 == key);
        assert!(last.is_some_and(|last| last < at), "{} came too early: {numbers:?}", 3000 + n);
    }
    handle.stop().await.unwrap();
}
