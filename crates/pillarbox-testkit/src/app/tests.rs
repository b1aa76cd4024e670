//! Tests of the outbox and the relay for applications.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::{num::NonZeroU32, time::Duration};

use futures_util::FutureExt as _;
use pillarbox::store::{List, Operation, Statistics as _};
use pillarbox::telemetry::RelayEvent;
use pillarbox::{
    Admin, Clock, Cx, Envelope, Event, Failure, Key, Listeners, Outbox, Relay, RelaySettings,
};
use serde::{Deserialize, Serialize};

use super::{RecordingListener, Refusal, TestOutbox, TestRelay};
use crate::{assert_emitted, assert_not_emitted};

#[derive(Debug, PartialEq, Serialize, Deserialize, Event)]
#[event("order.placed", aggregate = "order")]
struct OrderPlaced {
    #[event(id)]
    order_id: i64,
    number: i64,
}

#[derive(Debug, PartialEq, Serialize, Deserialize, Event)]
#[event("mail.wanted")]
struct MailWanted {
    to: String,
}

const MINUTE: Duration = Duration::from_secs(60);

/// An order; those of one id are ordered.
fn order(order_id: i64, number: i64) -> Envelope {
    Envelope::of(&OrderPlaced { order_id, number }).unwrap()
}

async fn commit(app: &TestOutbox, envelopes: impl IntoIterator<Item = Envelope>) {
    let mut tx = app.outbox().begin(app.store()).await.unwrap();
    for envelope in envelopes {
        tx.emit_envelope(envelope).await.unwrap();
    }
    tx.commit().await.unwrap();
}

/// An application with one listener for all orders.
fn fixture() -> (TestOutbox, RecordingListener, TestRelay) {
    fixture_with(RelaySettings::default())
}

fn fixture_with(settings: RelaySettings) -> (TestOutbox, RecordingListener, TestRelay) {
    let (app, listener) = (TestOutbox::new(), RecordingListener::new());
    let heard = listener.clone();
    let relay = app.relay(move |store| {
        let listeners = Listeners::new().on::<OrderPlaced>(heard.clone());
        Relay::new(store, listeners).settings(settings.clone())
    });
    (app, listener, relay)
}

fn numbers(listener: &RecordingListener) -> Vec<i64> {
    listener.received::<OrderPlaced>().iter().map(|order| order.number).collect()
}

fn said(failing: impl FnOnce()) -> String {
    let panic = catch_unwind(AssertUnwindSafe(failing)).expect_err("it is to fail");
    *panic.downcast::<String>().expect("the message has a value in it")
}

#[tokio::test]
async fn only_what_was_committed_is_emitted() {
    let app = TestOutbox::new();
    let mut dropped = app.outbox().begin(app.store()).await.unwrap();
    dropped.emit(&OrderPlaced { order_id: 1, number: 1 }).await.unwrap();
    drop(dropped);
    let mut back = app.outbox().begin(app.store()).await.unwrap();
    back.emit(&OrderPlaced { order_id: 2, number: 2 }).await.unwrap();
    back.rollback().await.unwrap();
    let mut own = app.store().open();
    app.outbox().emit_envelope(&mut own, order(3, 3)).await.unwrap();

    assert!(app.envelopes().is_empty());

    own.commit().unwrap();
    assert_eq!(app.emitted::<OrderPlaced>(), [OrderPlaced { order_id: 3, number: 3 }]);
}

#[tokio::test]
async fn events_are_distinguished_by_type_and_version() {
    let app = TestOutbox::new();
    let newer = order(7, 2).version(2).unwrap();
    commit(&app, [order(7, 1), newer, Envelope::json("order.placed", &1).unwrap()]).await;

    assert_eq!(app.emitted::<OrderPlaced>(), [OrderPlaced { order_id: 7, number: 1 }]);
    assert_eq!(app.envelopes().len(), 3);
}

#[tokio::test]
async fn a_missing_event_is_reported_with_the_emitted_ones() {
    let app = TestOutbox::new();
    let empty = said(|| assert_emitted!(app, OrderPlaced { .. }));
    assert_eq!(empty, "no event was emitted that is `OrderPlaced { .. }`; nothing was emitted");
    let bytes = Envelope::bytes("photo.taken", vec![1, 2, 3]).unwrap();
    commit(&app, [order(7, 1), bytes]).await;

    let other = said(|| assert_emitted!(app, OrderPlaced { number, .. } if *number > 1));

    assert_eq!(
        other,
        "no event was emitted that is `OrderPlaced { number, .. } if *number > 1`; emitted:\n  \
         order.placed v1 {\"order_id\":7,\"number\":1}\n  photo.taken v1 (3 bytes)"
    );
    assert_emitted!(app, OrderPlaced { order_id: 7, number: 1 | 2 });
}

#[tokio::test]
async fn an_unexpected_event_is_shown() {
    let app = &TestOutbox::new();
    commit(app, [order(7, 1)]).await;

    assert_not_emitted!(app, OrderPlaced { order_id: 8, .. });
    assert_not_emitted!(app, MailWanted { .. });
    let message = said(|| assert_not_emitted!(app, OrderPlaced { order_id: 7, .. }));

    let shown = "is `OrderPlaced { order_id: 7, .. }`: order.placed v1 {\"order_id\":7,";
    assert!(message.contains(shown), "{message}");
}

#[tokio::test]
async fn a_step_delivers_the_oldest_that_is_due() {
    let (app, listener, relay) = fixture();
    let free = order(9, 2).key(Key::Free).unwrap();
    commit(&app, [order(7, 1), free, order(7, 3), order(8, 4)]).await;

    for so_far in 1..=4 {
        let step = relay.step().await;
        assert!(matches!(step, Some(RelayEvent::Delivered(_))), "{step:?}");
        assert_eq!(numbers(&listener), (1..=so_far).collect::<Vec<_>>());
    }
    assert!(relay.step().await.is_none());
}

#[tokio::test]
async fn a_retry_waits_for_the_clock_and_its_key_waits_for_it() {
    let (app, listener, relay) = fixture();
    listener.refuse(Refusal::retry("away").times(2).when(|it: &OrderPlaced| it.number == 1));
    commit(&app, [order(7, 1), order(7, 2), order(8, 3)]).await;

    relay.run_until_idle().await;
    assert_eq!(numbers(&listener), [3]);
    app.advance(MINUTE);
    relay.run_until_idle().await;
    assert_eq!(numbers(&listener), [3]);
    app.advance(MINUTE);
    relay.run_until_idle().await;

    assert_eq!(numbers(&listener), [3, 1, 2]);
    let of_first = |number| listener.calls().iter().filter(|it| it.attempt == number).count();
    assert_eq!([of_first(1), of_first(2), of_first(3)], [3, 1, 1]);
}

#[tokio::test]
async fn the_clock_goes_to_the_next_due_event() {
    let (app, listener, relay) = fixture();
    assert_eq!(app.advance_to_next(), None, "nothing waits");
    commit(&app, [order(7, 1).deliver_after(2 * MINUTE), order(8, 2).deliver_after(MINUTE)]).await;
    assert!(relay.run_until_idle().await.is_empty());

    assert_eq!(app.advance_to_next(), Some(MINUTE));
    assert_eq!(app.advance_to_next(), None, "one is due");
    relay.run_until_idle().await;
    assert_eq!(numbers(&listener), [2]);

    assert_eq!(app.advance_to_next(), Some(MINUTE));
    relay.run_until_idle().await;
    assert_eq!(numbers(&listener), [2, 1]);
}

#[tokio::test]
async fn the_clock_passes_an_event_blocked_by_another() {
    let (app, listener, relay) = fixture();
    commit(&app, [order(7, 1).deliver_after(2 * MINUTE), order(7, 2).deliver_after(MINUTE)]).await;

    assert_eq!(app.advance_to_next(), Some(2 * MINUTE));
    relay.run_until_idle().await;

    assert_eq!(numbers(&listener), [1, 2]);
}

#[tokio::test]
async fn the_clock_stays_when_all_that_waits_is_behind_a_held_event() {
    let (app, listener, relay) = fixture();
    listener.refuse(Refusal::dead("no such address"));
    commit(&app, [order(7, 1), order(7, 2).deliver_after(MINUTE)]).await;
    relay.run_until_idle().await;
    let (now, before) = (app.clock().now(), app.store().stats().await.unwrap());

    assert_eq!(app.advance_to_next(), None);

    assert_eq!(app.clock().now(), now);
    let after = app.store().stats().await.unwrap();
    assert_eq!((after.new, after.waiting, after.held), (0, 1, 1));
    assert_eq!(after, before);
}

#[tokio::test]
async fn a_due_event_waits_again_after_the_clock_is_set_back() {
    let (app, listener, relay) = fixture();
    commit(&app, [order(7, 1)]).await;
    app.clock().set_back(MINUTE);

    assert!(relay.step().await.is_none());
    assert_eq!(app.advance_to_next(), Some(MINUTE));
    relay.run_until_idle().await;

    assert_eq!(numbers(&listener), [1]);
}

#[tokio::test]
async fn a_retry_without_a_delay_is_a_step_of_its_own() {
    let (app, listener, relay) = fixture();
    listener.refuse(Refusal::retry_after(Duration::ZERO, "again").times(3));
    commit(&app, [order(7, 1)]).await;

    for attempt in 1..=4 {
        relay.step().await.unwrap();
        assert_eq!(listener.calls().len(), attempt);
    }
    assert!(relay.step().await.is_none());
}

#[tokio::test]
async fn a_deferral_counts_no_attempt() {
    let (app, listener, relay) = fixture();
    listener.refuse(Refusal::defer(MINUTE, "closed"));
    commit(&app, [order(7, 1)]).await;

    let first = relay.run_until_idle().await;
    app.advance(MINUTE);
    relay.run_until_idle().await;

    assert!(matches!(&first[..], [RelayEvent::Deferred { delay: MINUTE, .. }]), "{first:?}");
    let attempts: Vec<u32> = listener.calls().iter().map(|call| call.attempt).collect();
    assert_eq!(attempts, [1, 1]);
    assert_eq!(listener.calls()[0].refused.as_deref(), Some("closed"));
}

#[tokio::test]
async fn a_held_key_waits_for_a_replay() {
    let (app, listener, relay) = fixture();
    listener.refuse(Refusal::dead("no such address"));
    commit(&app, [order(7, 1), order(7, 2)]).await;

    let held = relay.run_until_idle().await;
    assert!(matches!(&held[..], [RelayEvent::Held { .. }]), "{held:?}");
    assert_eq!(app.advance_to_next(), None, "a held key waits for a person");
    let admin = Admin::new(app.store().clone());
    let letters = admin.dead_letters(&List::default()).await.unwrap();
    admin.operate(Operation::replay([letters[0].seq])).await.unwrap();
    relay.run_until_idle().await;

    assert_eq!(numbers(&listener), [1, 2]);
}

#[tokio::test]
async fn the_last_attempt_and_a_missing_listener_make_dead_letters() {
    let max_attempts = NonZeroU32::new(2).unwrap();
    let settings = RelaySettings { max_attempts, ..RelaySettings::default() };
    let (app, listener, relay) = fixture_with(settings);
    listener.refuse(Refusal::retry("away").always());
    let strange = Envelope::json("strange", &1).unwrap();
    commit(&app, [order(7, 1).key(Key::Free).unwrap(), strange]).await;

    let first = relay.run_until_idle().await;
    app.advance(MINUTE);
    let second = relay.run_until_idle().await;

    assert!(
        matches!(&first[..], [RelayEvent::Retried { .. }, RelayEvent::Dead { .. }]),
        "{first:?}"
    );
    assert!(matches!(&second[..], [RelayEvent::Dead { .. }]), "{second:?}");
}

#[tokio::test]
async fn an_event_that_a_listener_emits_is_delivered() {
    let (app, mail) = (TestOutbox::new(), RecordingListener::new());
    let (handler, heard) = (app.clone(), mail.clone());
    let relay = app.relay(move |store| {
        let app = handler.clone();
        let want_mail = move |order: OrderPlaced, _: Cx| tell(app.clone(), order);
        Relay::new(store, Listeners::new().on(want_mail).on::<MailWanted>(heard.clone()))
    });
    commit(&app, [order(7, 1)]).await;

    assert_eq!(relay.run_until_idle().await.len(), 2);

    assert_eq!(mail.received::<MailWanted>(), [MailWanted { to: "7".into() }]);
    assert_emitted!(app, MailWanted { to } if to == "7");
}

async fn tell(app: TestOutbox, order: OrderPlaced) -> Result<(), Failure> {
    let outbox: Outbox = app.outbox();
    let mut tx = outbox.begin(app.store()).await?;
    tx.emit(&MailWanted { to: order.order_id.to_string() }).await?;
    Ok(tx.commit().await?)
}

#[tokio::test]
async fn an_event_deleted_at_its_settle_still_counts_as_emitted() {
    let settings = RelaySettings { retention_done: Duration::ZERO, ..RelaySettings::default() };
    let (app, _, relay) = fixture_with(settings);
    commit(&app, [order(7, 1)]).await;

    relay.run_until_idle().await;

    let envelopes = app.envelopes();
    assert_eq!(envelopes.len(), 1);
    assert!(app.stored(&envelopes[0]).is_none(), "its row is gone");
}

#[tokio::test]
async fn a_relay_that_refuses_to_start_says_why() {
    let settings = RelaySettings { poll: Duration::ZERO, ..RelaySettings::default() };
    let (app, _, relay) = fixture_with(settings);
    commit(&app, [order(7, 1)]).await;

    let panic = AssertUnwindSafe(relay.step()).catch_unwind().await.unwrap_err();

    let message = panic.downcast::<String>().unwrap();
    assert!(message.starts_with("the relay did not start: poll is zero"), "{message}");
}

#[tokio::test]
async fn a_circle_comes_to_an_end() {
    let (app, listener, relay) = fixture();
    listener.refuse(Refusal::defer(Duration::ZERO, "not yet").always());
    commit(&app, [order(7, 1)]).await;

    let panic = AssertUnwindSafe(relay.run_until_idle()).catch_unwind().await.unwrap_err();

    let message = panic.downcast::<String>().unwrap();
    assert!(message.starts_with("not idle after 100 deliveries"), "{message}");
}
