//! Layers around a listener of the test's own.

use std::sync::{Arc, Mutex};
use std::time::Duration;

use super::*;
use crate::envelope::Envelope;
use crate::verdict::{ErrorText, Next as Action};

pub(super) const SECOND: Duration = Duration::from_secs(1);

/// Some layers to deliver through.
pub(super) struct Around(Layers);

impl Around {
    pub(super) fn layer(layer: impl Layer) -> Self {
        Self(Layers::default()).and(layer)
    }

    pub(super) fn and(mut self, layer: impl Layer) -> Self {
        self.0.push(layer);
        self
    }

    pub(super) async fn deliver<F, Fut>(&self, route: &str, listener: F) -> Outcome
    where
        F: Fn(Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        self.deliver_event(event(), route, listener).await
    }

    pub(super) async fn deliver_event<F, Fut>(
        &self,
        event: Envelope,
        route: &str,
        listener: F,
    ) -> Outcome
    where
        F: Fn(Cx) -> Fut + Send + Sync + 'static,
        Fut: Future<Output = Outcome> + Send + 'static,
    {
        let cx = Cx::new(event, 1, route.into());
        self.0.deliver(&cx.clone(), Arc::new(ListenerCall(listener, cx))).await
    }
}

struct ListenerCall<F>(F, Cx);

impl<F, Fut> Endpoint for ListenerCall<F>
where
    F: Fn(Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send + 'static,
{
    fn call(self: Arc<Self>) -> DeliveryFuture<'static> {
        Box::pin((self.0)(self.1.clone()))
    }
}

pub(super) fn event() -> Envelope {
    Envelope::json("order.placed", &1).unwrap()
}

pub(super) fn fine(_: Cx) -> std::future::Ready<Outcome> {
    std::future::ready(Ok(()))
}

pub(super) fn failing(_: Cx) -> std::future::Ready<Outcome> {
    std::future::ready(Err(Failure::retry("down")))
}

/// Records calls in order.
#[derive(Clone, Default)]
struct CallLog(Arc<Mutex<Vec<String>>>);

impl CallLog {
    fn add(&self, call: impl Into<String>) {
        self.0.lock().unwrap().push(call.into());
    }

    fn all(&self) -> Vec<String> {
        self.0.lock().unwrap().clone()
    }

    fn layer(&self, name: &'static str) -> impl Layer {
        let log = self.clone();
        move |_: Cx, next: Next| {
            let log = log.clone();
            async move {
                log.add(format!("{name} in"));
                let outcome = next.run().await;
                log.add(format!("{name} out"));
                outcome
            }
        }
    }
}

#[tokio::test]
async fn the_layer_added_first_is_the_outermost() {
    let log = CallLog::default();
    let around = Around::layer(log.layer("a")).and(log.layer("b"));

    let listener = log.clone();
    let delivered = around.deliver("r", move |_| {
        listener.add("listener");
        async { Ok(()) }
    });
    delivered.await.unwrap();

    assert_eq!(log.all(), ["a in", "b in", "listener", "b out", "a out"]);
}

#[tokio::test]
async fn after_a_failing_before_hook_the_listener_is_not_called() {
    let log = CallLog::default();
    let refuse = before(|_| async { Err(Failure::dead("not for us")) });
    let around = Around::layer(log.layer("a")).and(refuse).and(log.layer("b"));

    let failure = around.deliver("r", fine).await.unwrap_err();

    assert_eq!((failure.next(), failure.to_string()), (Action::Dead, "not for us".to_owned()));
    assert_eq!(log.all(), ["a in", "a out"]);
}

#[tokio::test]
async fn any_error_of_a_before_hook_means_retry() {
    let around = Around::layer(before(|_| async { Err::<(), _>("socket closed") }));

    let failure = around.deliver("r", fine).await.unwrap_err();

    assert_eq!(failure.next(), Action::Retry);
}

#[tokio::test]
async fn an_after_hook_receives_the_outcome_and_cannot_change_it() {
    let log = CallLog::default();
    let seen = log.clone();
    let around = Around::layer(after(move |_, outcome: Result<(), ErrorText>| {
        seen.add(format!("{outcome:?}"));
        async { Err::<(), _>("the hook fails") }
    }));

    assert!(around.deliver("r", fine).await.is_ok());
    let failure = around.deliver("r", failing).await.unwrap_err();

    assert_eq!(failure.to_string(), "down");
    assert_eq!(log.all(), ["Ok(())", r#"Err(ErrorText("down"))"#]);
}

#[tokio::test(start_paused = true)]
async fn a_timeout_stops_a_slow_delivery() {
    let around = Around::layer(Timeout::new(SECOND));

    let failure = around.deliver("r", |_| std::future::pending()).await.unwrap_err();

    assert_eq!(failure.next(), Action::Retry);
    assert_eq!(failure.to_string(), "the delivery took longer than 1s");
}

#[tokio::test]
async fn a_layer_may_apply_to_matching_events_only() {
    let refuse = || before(|_| async { Err(Failure::dead("not for us")) });

    let ours = Around::layer(only("order.*", refuse()).unwrap());
    let others = Around::layer(only("invoice.*", refuse()).unwrap());

    assert!(ours.deliver("r", fine).await.is_err());
    assert!(others.deliver("r", fine).await.is_ok());
    assert!(only("order*", refuse()).is_err());
}

#[test]
#[should_panic(expected = "the timeout is zero: give it a positive duration")]
fn a_timeout_of_zero_is_refused() {
    Timeout::new(Duration::ZERO);
}
