//! Memory: a relay has no more of the table in memory than it may, whatever is in there.

use std::collections::{HashMap, HashSet};
use std::sync::{Arc, Mutex};
use std::time::Duration;

use pillarbox::observe::{Happening, Probe};
use pillarbox::store::{Pending, Status};
use pillarbox::{Cx, Envelope, EventId, Failure, Listeners, Outbox, Relay, RelaySettings};
use pillarbox_testkit::fake::{Call, Fault, FaultyStore};
use pillarbox_testkit::{Backend as _, Foreign};
use tokio::sync::mpsc;

use crate::fixture::{Place, keyed, next, quick, wait_for};
use crate::rows::by_rows;

/// What a relay may have in memory, and one event more: there is room for that whatever there is.
const MOST: usize = (32 << 20) + (1 << 20) + (64 << 10);
const SMALL: i64 = 10_000;
const LARGE: i64 = 100;
const KEYS: i64 = 50;

/// What was read, and what was delivered, in order.
#[derive(Clone, Default)]
struct Held(Arc<Mutex<Vec<Seen>>>);

enum Seen {
    Read(EventId, usize),
    Delivered(EventId),
}

impl Held {
    fn read(&self, row: &Pending) {
        if let Some(event) = row.event() {
            let read = Seen::Read(event.event_id().clone(), row.content.bytes());
            self.0.lock().unwrap().push(read);
        }
    }

    fn delivered(&self, event: &Envelope) {
        self.0.lock().unwrap().push(Seen::Delivered(event.event_id().clone()));
    }

    /// As many bytes as were ever read and not yet delivered. An event that was read again was not
    /// kept before: it counts from the last time.
    fn most(&self) -> usize {
        let seen = self.0.lock().unwrap();
        let mut awaited = HashSet::new();
        let mut changes: Vec<(&EventId, usize)> = Vec::new();
        for seen in seen.iter().rev() {
            match seen {
                Seen::Delivered(id) if awaited.insert(id) => changes.push((id, 0)),
                Seen::Read(id, bytes) if awaited.remove(id) => changes.push((id, *bytes)),
                _ => {}
            }
        }
        let (mut held, mut sum, mut most) = (HashMap::new(), 0, 0);
        for (id, bytes) in changes.into_iter().rev() {
            sum = sum + bytes - held.insert(id, bytes).unwrap_or(0);
            most = most.max(sum);
        }
        most
    }

    /// Listeners that tell the number of each event.
    fn listeners(&self) -> (Listeners, mpsc::UnboundedReceiver<i64>) {
        let (heard, hears) = mpsc::unbounded_channel();
        let held = self.clone();
        let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
            let (held, heard) = (held.clone(), heard.clone());
            async move {
                let number = String::from_utf8_lossy(event.payload().as_bytes());
                heard.send(number.trim_end().parse()?).ok();
                held.delivered(&event);
                Ok::<_, Failure>(())
            }
        });
        (listeners, hears)
    }
}

/// Many small events, then a hundred of a megabyte, from a relay that knows neither.
pub(crate) async fn large_events_behind_many_small_ones_fit_in(place: &Place) {
    drain(place, quick()).await;
}

/// The same by row claims.
pub(crate) async fn large_events_claimed_behind_small_ones_fit_in(place: &Place) {
    drain(place, by_rows()).await;
}

async fn drain(place: &Place, settings: RelaySettings) {
    let writer = Outbox::new();
    place.commit(&writer, (0..SMALL).map(|number| keyed(&key(number), number)).collect()).await;
    for number in SMALL..SMALL + LARGE {
        place.commit(&writer, vec![large(number)]).await;
    }
    let held = Held::default();
    let watch = held.clone();
    let store = FaultyStore::new(place.store()).watched(move |row| watch.read(row));
    let (listeners, mut hears) = held.listeners();

    let relay = Relay::shared(Arc::new(store), listeners).settings(settings);
    let handle = relay.spawn().await.unwrap();
    let heard = hear_all(&mut hears).await;
    handle.stop().await.unwrap();

    assert!(held.most() <= MOST, "{} MiB were in memory", held.most() >> 20);
    for key in 0..KEYS {
        let of_key: Vec<i64> = heard.iter().copied().filter(|it| it % KEYS == key).collect();
        let all: Vec<i64> = (0..SMALL + LARGE).filter(|it| it % KEYS == key).collect();
        assert_eq!(of_key, all, "each once and in order");
    }
}

async fn hear_all(hears: &mut mpsc::UnboundedReceiver<i64>) -> Vec<i64> {
    let mut heard = Vec::new();
    let count = usize::try_from(SMALL + LARGE).unwrap();
    while heard.len() < count {
        // What comes in 20 seconds, again and again.
        heard.extend(next(hears, (count - heard.len()).min(100)).await);
    }
    heard
}

/// Rows that are too large for an event are given up, and keep no other waiting.
pub(crate) async fn oversized_rows_are_dead_with_their_size(place: &Place) {
    give_up_oversized_rows(place, quick()).await;
}

/// The same by row claims, which may bring such a row again until its verdict is written.
pub(crate) async fn oversized_rows_claimed_are_dead_with_their_size(place: &Place) {
    give_up_oversized_rows(place, by_rows()).await;
}

async fn give_up_oversized_rows(place: &Place, settings: RelaySettings) {
    let text = |size: usize| format!("\"{}\"", "x".repeat(size - 2));
    let headers = format!("{{\"n\":\"{}\"}}", "x".repeat((1 << 20) - 8));
    let rows = [
        Foreign { id: "text", payload: Some(text(12 << 20)), ..Foreign::default() },
        Foreign { id: "bytes", payload_bytes: Some(vec![0; 12 << 20]), ..Foreign::default() },
        Foreign {
            id: "headers",
            payload: Some("1".to_owned()),
            headers: Some(headers),
            ..Foreign::default()
        },
    ];
    let expected = [
        ("text", "payload has 12582912 bytes, the limit is 1048576"),
        ("bytes", "payload has 12582912 bytes, the limit is 1048576"),
        ("headers", "headers have 1048576 bytes, the limit is 65536"),
    ];
    for row in &rows {
        if !insert(place, row).await {
            return;
        }
    }
    place.commit(&Outbox::new(), vec![keyed("k", 7)]).await;
    let (listeners, mut hears) = Held::default().listeners();
    let probe = Probe::new();

    let relay = Relay::shared(place.store(), listeners).settings(settings).observer(probe.clone());
    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [7]);
    for (id, cause) in expected {
        let dead = place.event_with(&EventId::new(id).unwrap(), Status::Dead).await;
        assert_eq!(dead.last_error.as_deref(), Some(cause));
    }
    let stats = wait_for(async || place.store().stats().await.ok().filter(|it| it.new == 0));
    assert_eq!(stats.await.dead, 3);
    handle.stop().await.unwrap();
    assert_eq!(probe.count(|seen| matches!(seen, Happening::Dead { .. })), 3, "each once");
    assert_eq!(probe.count(|seen| matches!(seen, Happening::Fenced { .. })), 0);
}

/// It keeps its verdict until a sweep, and those behind it are given up meanwhile.
pub(crate) async fn an_oversized_row_that_takes_no_verdict_keeps_no_other_waiting(place: &Place) {
    for id in ["first", "second"] {
        let payload_bytes = Some(vec![0; (1 << 20) + 1]);
        if !insert(place, &Foreign { id, payload_bytes, ..Foreign::default() }).await {
            return;
        }
    }
    let store = FaultyStore::new(place.store());
    store.next(Call::Settle, Fault::Refuse);
    let (listeners, _hears) = Held::default().listeners();
    // A stop waits for it as long as deliveries may start.
    let drain = by_rows().delivery_timeout + Duration::from_secs(1);
    let settings = RelaySettings { sweep: Duration::from_secs(3600), drain, ..by_rows() };

    let relay = Relay::shared(Arc::new(store), listeners).settings(settings);
    let handle = relay.spawn().await.unwrap();

    wait_for(async || place.store().stats().await.ok().filter(|it| it.dead > 0)).await;
    handle.stop().await.unwrap();
    assert_eq!(place.store().stats().await.unwrap().dead, 2, "the stop has tried again");
}

/// Inserts a row as another program does; `false` where there is no table.
async fn insert(place: &Place, row: &Foreign) -> bool {
    match place {
        Place::Memory(..) => return false,
        Place::Sqlite(backend) => backend.insert_foreign(row).await,
        Place::Mysql(backend) => backend.insert_foreign(row).await,
        Place::Postgres(backend) => backend.insert_foreign(row).await,
    }
    true
}

fn key(number: i64) -> String {
    format!("k{}", number % KEYS)
}

/// A number, and spaces up to a megabyte.
fn large(number: i64) -> Envelope {
    let mut payload = number.to_string().into_bytes();
    payload.resize(1 << 20, b' ');
    let envelope = Envelope::bytes("test.step", payload).unwrap();
    envelope.key(pillarbox::Key::Given(key(number))).unwrap()
}
