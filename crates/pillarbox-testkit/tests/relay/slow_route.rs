//! A route whose listener is slow: it takes neither all workers nor the whole hand.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::{Cx, Envelope, Failure, Key, Listeners, Outbox, Relay, RelaySettings};
use tokio::sync::Semaphore;
use tokio::sync::mpsc::{self, UnboundedReceiver};

use crate::fixture::{Place, free, keyed, next, quick, relay};

/// More than the hand can hold.
const SLOW: i64 = 200;

/// A relay whose slow listener waits for a permit for each event.
struct Slowed {
    relay: Relay,
    permits: Arc<Semaphore>,
    hears: UnboundedReceiver<i64>,
}

fn slowed(place: &Place) -> Slowed {
    let (heard, hears) = mpsc::unbounded_channel();
    let permits = Arc::new(Semaphore::new(0));
    let wait = Arc::clone(&permits);
    let tell = move |event: Envelope, _: Cx| {
        let (heard, wait) = (heard.clone(), Arc::clone(&wait));
        async move {
            if event.event_type().as_str() == "test.slow" {
                wait.acquire().await.unwrap().forget();
            }
            heard.send(event.payload().as_json().unwrap().parse().unwrap()).ok();
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
    let relay = relay(place, Listeners::new().fallback(tell)).settings(settings);
    Slowed { relay, permits, hears }
}

/// Some with a key, some without.
fn slow(number: i64) -> Envelope {
    let event = Envelope::json("test.slow", &number).unwrap();
    if number % 2 == 0 { event } else { event.key(Key::Given(format!("{}", number % 10))).unwrap() }
}

/// Every event once, and those of each key in order.
async fn hear_all_slow(permits: &Semaphore, hears: &mut UnboundedReceiver<i64>) {
    permits.add_permits(usize::try_from(SLOW).unwrap());
    let heard = next(hears, usize::try_from(SLOW).unwrap()).await;
    for key in [1, 3, 5, 7, 9] {
        let of_key: Vec<i64> = heard.iter().copied().filter(|number| number % 10 == key).collect();
        assert!(of_key.is_sorted(), "out of order: {of_key:?}");
    }
    let mut sorted = heard;
    sorted.sort_unstable();
    assert_eq!(sorted, (0..SLOW).collect::<Vec<_>>());
}

pub(crate) async fn its_backlog_keeps_no_other_waiting(place: &Place) {
    let Slowed { relay, permits, mut hears } = slowed(place);
    place.commit(&Outbox::new(), (0..SLOW).map(slow).collect()).await;
    place.commit(&Outbox::new(), (1000..1050).map(free).collect()).await;
    place.commit(&Outbox::new(), (2000..2050).map(|n| keyed("other", n)).collect()).await;
    let handle = relay.spawn().await.unwrap();

    let mut others = next(&mut hears, 100).await;
    others.sort_unstable();
    assert_eq!(others, (1000..1050).chain(2000..2050).collect::<Vec<_>>());

    hear_all_slow(&permits, &mut hears).await;
    handle.stop().await.unwrap();
}

pub(crate) async fn its_events_from_memory_keep_no_other_waiting(place: &Place) {
    let Slowed { relay, permits, mut hears } = slowed(place);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    for number in 0..SLOW {
        place.commit(&outbox, vec![slow(number)]).await;
    }

    for number in 1000..1010 {
        place.commit(&outbox, vec![free(number), keyed("other", number + 1000)]).await;
    }

    let mut others = next(&mut hears, 20).await;
    others.sort_unstable();
    assert_eq!(others, (1000..1010).chain(2000..2010).collect::<Vec<_>>());

    hear_all_slow(&permits, &mut hears).await;
    handle.stop().await.unwrap();
}

/// A key is in order whatever the routes of its events.
pub(crate) async fn what_follows_it_in_its_key_waits(place: &Place) {
    let Slowed { relay, permits, mut hears } = slowed(place);
    place.commit(&Outbox::new(), (0..SLOW).map(slow).collect()).await;
    let behind = (0..10).map(|n| keyed(&format!("{}", 2 * (n % 5) + 1), 3000 + n)).collect();
    place.commit(&Outbox::new(), behind).await;
    place.commit(&Outbox::new(), vec![free(1000)]).await;
    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [1000]);

    permits.add_permits(usize::try_from(SLOW).unwrap());
    let heard = next(&mut hears, usize::try_from(SLOW).unwrap() + 10).await;
    for n in 0..10 {
        let key = 2 * (n % 5) + 1;
        let at = heard.iter().position(|number| *number == 3000 + n).unwrap();
        let last = heard.iter().rposition(|number| *number < SLOW && number % 10 == key);
        assert!(last.is_some_and(|last| last < at), "{} came too early: {heard:?}", 3000 + n);
    }
    handle.stop().await.unwrap();
}
