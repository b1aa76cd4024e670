//! Routing and upcasting.

use std::sync::{Arc, Mutex};

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::*;
use crate::error::ErrorKind;
use crate::verdict::Next;

#[derive(Debug, PartialEq, Serialize, Deserialize)]
struct Placed {
    cents: i64,
}

impl Event for Placed {
    const TYPE: EventType = EventType::from_static("order.placed");
    const VERSION: u32 = 3;
    const AGGREGATE: AggregateType = AggregateType::from_static("order");
}

#[derive(Serialize, Deserialize)]
struct Shipped {}

impl Event for Shipped {
    const TYPE: EventType = EventType::from_static("order.shipped");
}

async fn nothing<E>(_: E, _: Cx) -> Result<(), Failure> {
    Ok(())
}

fn event(aggregate: &str, event_type: &str) -> Envelope {
    Envelope::json(event_type, &1).unwrap().aggregate(aggregate, "7").unwrap()
}

fn routes() -> Listeners {
    Listeners::new()
        .fallback(nothing)
        .on_pattern("order.*", nothing)
        .on_pattern("order.placed.*", nothing)
        .on_pattern("shop/*", nothing)
        .on_pattern("shop/order.*", nothing)
        .on_pattern("order.placed", nothing)
        .on_type("order", "order.placed", nothing)
}

#[test]
fn exact_beats_pattern_beats_fallback() {
    let listeners = routes();

    for (aggregate, event_type, route) in [
        ("order", "order.placed", "order/order.placed"),
        ("cart", "order.placed", "order.placed"),
        ("order", "order.shipped", "order.*"),
        ("order", "order.placed.late", "order.placed.*"),
        ("shop", "opened", "shop/*"),
        ("shop", "order.placed.late", "shop/order.*"),
        ("cart", "opened", "fallback"),
    ] {
        let event = event(aggregate, event_type);
        assert_eq!(&*listeners.route(&event).name, route, "{aggregate}/{event_type}");
    }
}

#[test]
fn the_order_of_registration_does_not_matter() {
    let listeners =
        Listeners::new().on_pattern("order.placed.*", nothing).on_pattern("order.*", nothing);

    assert_eq!(&*listeners.route(&event("a", "order.placed.late")).name, "order.placed.*");
}

#[test]
fn a_second_listener_for_a_route_is_refused() {
    let refused = |listeners: Result<Listeners>| {
        let error = listeners.unwrap_err();
        assert_eq!(error.kind(), ErrorKind::Configuration);
        error.to_string()
    };

    let second = routes().try_on::<Placed>(nothing);
    assert_eq!(refused(second), "a listener for order/order.placed is already registered");
    let second = routes().try_on_pattern("order/order.placed", nothing);
    assert_eq!(refused(second), "a listener for order/order.placed is already registered");
    let second = routes().try_on_pattern("order.*", nothing);
    assert_eq!(refused(second), "a listener for order.* is already registered");
    let second = routes().try_on_pattern("*", nothing);
    assert_eq!(refused(second), "the pattern `*` cannot be registered: use `fallback`");
    let second = Listeners::new().try_on_pattern("a*", nothing).unwrap_err();
    assert_eq!(second.kind(), ErrorKind::Invalid);
}

#[test]
#[should_panic(expected = "a fallback listener is already registered")]
fn a_second_fallback_is_refused() {
    let _ = routes().fallback(nothing);
}

#[tokio::test]
async fn names_that_look_alike_when_joined_do_not_collide() {
    let received = Arc::new(Mutex::new(Vec::new()));
    let listener = |name: &'static str| {
        let received = Arc::clone(&received);
        move |_: Envelope, cx: Cx| {
            received.lock().unwrap().push((name, cx.route().to_owned()));
            std::future::ready(Ok::<_, Failure>(()))
        }
    };
    let listeners = Listeners::new().on_type("a/b", "c", listener("first")).on_type(
        "a",
        "b/c",
        listener("second"),
    );

    deliver(&listeners, event("a/b", "c")).await.unwrap();
    deliver(&listeners, event("a", "b/c")).await.unwrap();

    let received = received.lock().unwrap().clone();
    let expected = [("first", r#""a/b"/c"#), ("second", "a/b/c")];
    assert_eq!(received, expected.map(|(name, route)| (name, route.to_owned())));
}

#[test]
fn the_debug_form_lists_the_routes() {
    let listeners = Listeners::new().on_pattern("b.*", nothing).on_type("a", "x", nothing);

    let text = format!("{listeners:?}");

    assert!(text.contains(r#"routes: ["a/x", "b.*"]"#), "{text}");
}

/// A struct that listens to two event types.
#[derive(Clone, Default)]
struct Ledger(Arc<Mutex<Vec<String>>>);

impl Listener<Placed> for Ledger {
    async fn on_event(&self, event: Placed, cx: Cx) -> Result<(), Failure> {
        self.0.lock().unwrap().push(format!("{} {}", cx.route(), event.cents));
        Ok(())
    }
}

impl Listener<Shipped> for Ledger {
    async fn on_event(&self, _: Shipped, cx: Cx) -> Result<(), Failure> {
        self.0.lock().unwrap().push(cx.route().to_owned());
        Ok(())
    }
}

async fn deliver(listeners: &Listeners, envelope: Envelope) -> Result<(), Failure> {
    let route = listeners.route(&envelope).clone();
    let cx = Cx::new(envelope, 1, route.name);
    route.listener.call(cx, listeners.rules()).await
}

#[tokio::test]
async fn a_struct_may_listen_to_several_events() {
    let ledger = Ledger::default();
    let listeners = Listeners::new().on::<Placed>(ledger.clone()).on::<Shipped>(ledger.clone());

    deliver(&listeners, Envelope::of(&Placed { cents: 5 }).unwrap()).await.unwrap();
    deliver(&listeners, Envelope::of(&Shipped {}).unwrap()).await.unwrap();

    let received = ledger.0.lock().unwrap().clone();
    assert_eq!(received, ["order/order.placed 5", "__GLOBAL__/order.shipped"]);
}

fn stored(version: u32, payload: &Value) -> Envelope {
    let envelope = Envelope::json("order.placed", payload).unwrap().version(version).unwrap();
    envelope.aggregate("order", "7").unwrap()
}

/// Version 1 has a price in euros, version 2 euros, version 3 cents.
fn versions() -> (Listeners, Ledger) {
    let ledger = Ledger::default();
    let listeners = Listeners::new()
        .upcast::<Placed, _>(2, |value: Value| {
            let euros = value["euros"].as_i64().ok_or("no euros")?;
            Ok::<_, &str>(json!({"cents": euros * 100}))
        })
        .on::<Placed>(ledger.clone())
        .upcast::<Placed, _>(1, |value: Value| {
            Ok::<_, &str>(json!({"euros": value["price"].clone()}))
        });
    (listeners, ledger)
}

#[tokio::test]
async fn an_old_version_goes_through_every_step() {
    let (listeners, ledger) = versions();

    deliver(&listeners, stored(1, &json!({"price": 2}))).await.unwrap();
    deliver(&listeners, stored(2, &json!({"euros": 3}))).await.unwrap();
    deliver(&listeners, stored(3, &json!({"cents": 4}))).await.unwrap();

    let received = ledger.0.lock().unwrap().clone();
    let route = "order/order.placed";
    assert_eq!(received, [format!("{route} 200"), format!("{route} 300"), format!("{route} 4")]);
}

#[tokio::test]
async fn an_event_that_cannot_be_decoded_is_dead_and_the_error_says_why() {
    let (listeners, ledger) = versions();
    let without_upcaster =
        Listeners::new().on::<Placed>(ledger.clone()).upcast::<Placed, _>(1, Ok::<_, &str>);

    for (listeners, envelope, cause) in [
        (
            &listeners,
            stored(4, &json!({})),
            "event version is 4, newer than 3, the latest that the listener supports",
        ),
        (
            &without_upcaster,
            stored(1, &json!({})),
            "event version is 1, the listener supports 3, and no upcaster from 2 to 3 is registered",
        ),
        (
            &listeners,
            stored(2, &json!({"secret": 1})),
            "the upcaster from version 2 to 3 failed: no euros",
        ),
        (
            &listeners,
            stored(3, &json!({"cents": "secret"})),
            "the payload cannot be decoded (Data, line 1, column 17)",
        ),
        (&without_upcaster, event("order", "order.shipped"), "no listener for order/order.shipped"),
    ] {
        let failure = deliver(listeners, envelope).await.unwrap_err();
        assert_eq!((failure.next(), failure.to_string().as_str()), (Next::Dead, cause));
    }
    assert!(ledger.0.lock().unwrap().is_empty());
}

#[tokio::test]
async fn an_upcast_error_does_not_quote_the_payload() {
    let listeners = Listeners::new()
        .on::<Placed>(nothing)
        .upcast::<Placed, _>(2, |_| Ok::<_, &str>(json!({"cents": "secret"})));

    let failure = deliver(&listeners, stored(2, &json!({}))).await.unwrap_err();

    assert_eq!(
        failure.to_string(),
        "the payload cannot be decoded after upcasting from version 2 to 3 (Data)"
    );
}

#[tokio::test]
async fn unroutable_events_can_wait_during_a_rolling_upgrade() {
    let (listeners, _) = versions();
    let listeners = listeners.unroutable(Unroutable::Wait);

    let newer = deliver(&listeners, stored(4, &json!({}))).await.unwrap_err();
    let unknown = deliver(&listeners, event("cart", "opened")).await.unwrap_err();

    assert!(matches!(newer.next(), Next::Defer(_)), "{newer:?}");
    assert!(matches!(unknown.next(), Next::Defer(_)), "{unknown:?}");
}

#[test]
fn an_upcaster_that_would_never_run_is_refused() {
    let refused = |from| {
        let (listeners, _) = versions();
        listeners.try_upcast::<Placed, _>(from, Ok::<_, &str>).unwrap_err().to_string()
    };

    let twice = "an upcaster of order/order.placed from version 1 is already registered";
    assert_eq!(refused(1), twice);
    assert!(refused(0).contains("versions start at 1"));
    assert!(refused(3).ends_with("and the event has version 3"));
}
