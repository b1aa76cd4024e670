//! Who received of what: patterns, versions, events for nobody, routes that are paused.

use std::time::Duration;

use pillarbox::store::Status;
use pillarbox::{Cx, Envelope, Event, Failure, Listener, Listeners, RelaySettings, Unroutable};
use serde::{Deserialize, Serialize};
use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};

use crate::fixture::{TestDatabase, free, keyed, next, quick, relay};

#[derive(Debug, Serialize, Deserialize, Event)]
#[event("test.step", version = 3)]
struct Step {
    number: i64,
}

/// Reports which listener was called.
#[derive(Clone)]
struct Teller(i64, UnboundedSender<i64>);

impl Teller {
    fn new(number: i64) -> (Self, UnboundedReceiver<i64>) {
        let (sender, received) = mpsc::unbounded_channel();
        (Self(number, sender), received)
    }

    fn named(&self, number: i64) -> Self {
        Self(number, self.1.clone())
    }
}

impl Listener<Envelope> for Teller {
    async fn on_event(&self, _: Envelope, cx: Cx) -> Result<(), Failure> {
        self.1.send(self.0 * 10 + i64::from(cx.attempt())).ok();
        Ok(())
    }
}

impl Listener<Step> for Teller {
    async fn on_event(&self, step: Step, _: Cx) -> Result<(), Failure> {
        self.1.send(step.number).ok();
        Ok(())
    }
}

fn event(event_type: &str) -> Envelope {
    Envelope::json(event_type, &1).unwrap().key(pillarbox::Key::Given("k".into())).unwrap()
}

/// Each event is delivered once, to the most specific listener.
pub(crate) async fn the_best_route_wins(db: &TestDatabase) {
    let (teller, mut received) = Teller::new(0);
    let listeners = Listeners::new()
        .fallback(teller.named(1))
        .on_pattern("test.*", teller.named(2))
        .on_pattern("test.step.*", teller.named(3))
        .on_type("__GLOBAL__", "test.step", teller.named(4));
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let events = ["other", "test.other", "test.step.late", "test.step"].map(event);
    db.commit(&outbox, events.into()).await;

    assert_eq!(next(&mut received, 4).await, [11, 21, 31, 41]);
    handle.stop().await.unwrap();
}

/// Through every step between.
pub(crate) async fn an_old_version_reaches_a_new_listener(db: &TestDatabase) {
    let (teller, mut received) = Teller::new(0);
    let listeners = Listeners::new()
        .on::<Step>(teller)
        .upcast::<Step, _>(1, |number| Ok::<_, &str>([number].into_iter().collect()))
        .upcast::<Step, _>(2, |mut list| {
            let number = list[0].take();
            list = Default::default();
            list["number"] = number;
            Ok::<_, &str>(list)
        });
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![keyed("k", 7)]).await;
    let second = Envelope::json("test.step", &[8]).unwrap().version(2).unwrap();
    db.commit(&outbox, vec![second.key(pillarbox::Key::Given("k".into())).unwrap()]).await;
    let third = Envelope::of(&Step { number: 9 }).unwrap();
    db.commit(&outbox, vec![third.key(pillarbox::Key::Given("k".into())).unwrap()]).await;

    assert_eq!(next(&mut received, 3).await, [7, 8, 9]);
    handle.stop().await.unwrap();
}

pub(crate) async fn a_newer_version_is_dead_with_the_reason(db: &TestDatabase) {
    let (teller, _received) = Teller::new(0);
    let relay = relay(db, Listeners::new().on::<Step>(teller));
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![free(1).version(4).unwrap()]).await;

    let event = db.event_with(&ids[0], Status::Dead).await;
    let cause = "event version is 4, newer than 3, the latest that the listener supports";
    assert_eq!(event.last_error.as_deref(), Some(cause));
    handle.stop().await.unwrap();
}

/// Where a rolling upgrade says so, and no attempt is counted.
pub(crate) async fn an_event_for_nobody_waits_when_told_to(db: &TestDatabase) {
    let (teller, _received) = Teller::new(0);
    let settings = RelaySettings { unroutable: Unroutable::Wait, ..quick() };
    let relay = relay(db, Listeners::new().on::<Step>(teller)).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, vec![event("other"), free(1).version(4).unwrap()]).await;

    for id in &ids {
        let event = db.event_with(id, Status::Waiting).await;
        assert_eq!(event.attempts, 0);
        assert!(event.available_at.since(event.created_at) > Duration::from_secs(2));
    }
    handle.stop().await.unwrap();
}

/// And is delivered as if nothing had been when it resumes.
pub(crate) async fn a_paused_route_waits_while_others_go_on(db: &TestDatabase) {
    let (teller, mut received) = Teller::new(0);
    let listeners =
        Listeners::new().on_pattern("test.*", teller.named(1)).fallback(teller.named(2));
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    handle.pause("__GLOBAL__/test.step").unwrap();
    let ids = db.commit(&outbox, vec![free(1)]).await;
    let others = [Envelope::json("test.other", &1), Envelope::json("other", &1)];
    for other in others {
        db.commit(&outbox, vec![other.unwrap()]).await;
    }

    let mut numbers = next(&mut received, 2).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [11, 21]);
    let waiting = db.event_with(&ids[0], Status::Waiting).await;
    let cause = "__GLOBAL__/test.step is paused";
    assert_eq!((waiting.attempts, waiting.last_error.as_deref()), (0, Some(cause)));

    assert!(handle.resume("__GLOBAL__/test.step").unwrap());
    assert_eq!(next(&mut received, 1).await, [11], "the first attempt");
    handle.stop().await.unwrap();
}
