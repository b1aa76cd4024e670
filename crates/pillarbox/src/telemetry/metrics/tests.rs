use std::borrow::Cow;
use std::collections::BTreeMap;
use std::sync::Mutex;

use metrics::{
    CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, Unit, with_local_recorder,
};

use super::*;
use crate::id::{OwnerId, Seq};
use crate::telemetry::{Component, name};

/// Stores every value by name and labels.
#[derive(Clone, Default)]
struct TestRecorder(Arc<Mutex<BTreeMap<String, f64>>>);

struct Metric(TestRecorder, String);

impl Metric {
    fn add(&self, value: f64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for Metric {
    fn increment(&self, value: u64) {
        self.add(number(value));
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Metric {
    fn increment(&self, value: f64) {
        self.add(value);
    }
    fn decrement(&self, value: f64) {
        self.add(-value);
    }
    fn set(&self, value: f64) {
        self.0.0.lock().unwrap().insert(self.1.clone(), value);
    }
}

impl HistogramFn for Metric {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl TestRecorder {
    fn metric(&self, key: &Key) -> Arc<Metric> {
        let labels: Vec<_> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        Arc::new(Metric(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn value(&self, key: &str) -> Option<f64> {
        self.0.lock().unwrap().get(key).copied()
    }

    /// Returns the names of the counters, each of which must be 1, in order.
    fn counted(&self) -> Vec<String> {
        let metrics = self.0.lock().unwrap();
        let names = metrics.iter().filter_map(|(key, value)| Some((key.split('{').next()?, value)));
        let counters = names.filter(|(name, _)| name.ends_with("_total"));
        counters.inspect(|it| assert_eq!(*it.1, 1.0)).map(|it| it.0.to_owned()).collect()
    }
}

impl Recorder for TestRecorder {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.metric(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.metric(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.metric(key))
    }
}

fn attempt(route: &str) -> Attempt<'_> {
    Attempt {
        event_id: "e".into(),
        event_type: route.split('/').nth(1).map(Into::into),
        route: Some(route.into()),
        number: 1,
        took: Duration::from_millis(5),
        lag: Some(Duration::from_millis(80)),
        traceparent: None,
    }
}

fn on_event(metrics: &Metrics, events: &[RelayEvent<'_>]) -> TestRecorder {
    let recorder = TestRecorder::default();
    with_local_recorder(&recorder, || {
        events.iter().for_each(|event| metrics.on_event(event));
    });
    recorder
}

#[test]
fn a_delivery_is_counted_under_all_its_names() {
    let route = "order/order.placed";
    let dead = RelayEvent::Dead { attempt: attempt(route), error: "no".into() };
    let retried = RelayEvent::Retried {
        attempt: attempt(route),
        delay: Duration::from_secs(1),
        error: "no".into(),
    };

    let seen = on_event(
        &Metrics::new().store("shop"),
        &[RelayEvent::Delivered(attempt(route)), retried, dead],
    );

    let of_route = |name: &str| seen.value(&format!("{name}{{store=shop,route={route}}}"));
    for name in [
        "outbox_dispatch_success_total",
        "outbox_dispatch_failure_total",
        "outbox_dispatch_dead_total",
        "outbox_retry_total",
        "outbox_failed_permanent_total",
    ] {
        assert_eq!(of_route(name), Some(1.0), "{name}");
    }
    assert_eq!(of_route("outbox_dispatch_latency_ms"), Some(15.0));
    let labels = format!("mode=outbox,processor={route},eventName=order.placed");
    let processed = |result: &str| {
        seen.value(&format!("oksai_integration_event_processed_total{{{labels},result={result}}}"))
    };
    assert_eq!((processed("success"), processed("failed")), (Some(1.0), Some(2.0)));
    assert_eq!(seen.value(&format!("oksai_integration_event_lag_ms{{{labels}}}")), Some(80.0));
}

#[test]
fn routes_beyond_the_limit_share_a_label() {
    let routes: Vec<String> = (0..50).map(|n| format!("a/{n}")).collect();
    let delivered: Vec<_> =
        routes.iter().map(|route| RelayEvent::Delivered(attempt(route))).collect();

    let seen = on_event(&Metrics::new().most_routes(3), &delivered);

    let success = |route: &str| {
        seen.value(&format!("outbox_dispatch_success_total{{store=outbox,route={route}}}"))
    };
    assert_eq!((success("a/2"), success("a/3")), (Some(1.0), None));
    assert_eq!(success("other"), Some(47.0));
}

#[test]
fn an_invalid_row_has_its_own_label() {
    let attempt = Attempt { route: None, event_type: None, ..attempt("a/b") };

    let seen = on_event(&Metrics::new(), &[RelayEvent::Dead { attempt, error: "no".into() }]);

    let key = "oksai_integration_event_processed_total\
               {mode=outbox,processor=invalid,eventName=invalid,result=invalid_envelope}";
    assert_eq!(seen.value(key), Some(1.0));
}

#[test]
fn each_outcome_of_a_delivery_has_its_own_counters() {
    let (delay, why) = (Duration::from_secs(1), "no");
    let of = |end: fn(Attempt<'static>, Duration, &'static str) -> RelayEvent<'static>| {
        on_event(&Metrics::new(), &[end(attempt("a/b"), delay, why)]).counted()
    };

    let delivered = of(|attempt, _, _| RelayEvent::Delivered(attempt));
    let retried =
        of(|attempt, delay, why| RelayEvent::Retried { attempt, delay, error: why.into() });
    let deferred =
        of(|attempt, delay, why| RelayEvent::Deferred { attempt, delay, error: why.into() });
    let dead = of(|attempt, _, why| RelayEvent::Dead { attempt, error: why.into() });
    let held = of(|attempt, _, why| RelayEvent::Held { attempt, error: why.into() });

    assert_eq!(delivered, [name::PROCESSED, name::SUCCESS]);
    assert_eq!(retried, [name::PROCESSED, name::FAILURE, name::RETRY]);
    assert_eq!(deferred, [name::DEFERRED]);
    assert_eq!(dead, [name::PROCESSED, name::DEAD, name::FAILED_PERMANENT]);
    assert_eq!(held, dead);
}

#[test]
fn other_metrics_are_counted_by_store() {
    let gauges = Gauges {
        pending: 21,
        waiting: 22,
        dead: 23,
        held_keys: 24,
        oldest_lag: Duration::from_millis(1500),
        owners: 25,
        owned_shards: 26,
        own_shards: 27,
        hot_depth: 28,
        cold_depth: 29,
    };
    let owner = || Cow::Owned(OwnerId::generate());

    let seen = on_event(
        &Metrics::new(),
        &[
            RelayEvent::Counted(gauges),
            RelayEvent::FromLocalQueue { events: 2 },
            RelayEvent::LocalQueueFull { events: 3 },
            RelayEvent::Read { rows: 4 },
            RelayEvent::Purged { kind: "done", rows: 5 },
            RelayEvent::Settled { rows: 6, took: Duration::from_millis(7) },
            RelayEvent::ShardsTaken { owner: owner(), shards: 8, lapsed: 1 },
            RelayEvent::LeaseLost { owner: owner() },
            RelayEvent::Fenced { event_id: "e".into() },
            RelayEvent::failed_with(Component::Read, "gone"),
            RelayEvent::VerdictRefused { seq: Seq(1), error: "no".into() },
        ],
    );

    let of_store = |name: &str| seen.value(&format!("{name}{{store=outbox}}"));
    for (name, value) in [
        (name::HOT, 2.0),
        (name::HOT_DROPPED, 3.0),
        (name::COLD, 4.0),
        (name::SETTLED, 6.0),
        (name::SETTLE_DURATION, 7.0),
        (name::SHARDS_TAKEN, 8.0),
        (name::LEASE_LOST, 1.0),
        (name::FENCED, 1.0),
        (name::PENDING, 21.0),
        (name::WAITING_EVENTS, 22.0),
        (name::DEAD_EVENTS, 23.0),
        (name::HELD_KEYS, 24.0),
        (name::OLDEST_LAG, 1500.0),
        (name::OWNERS, 25.0),
        (name::OWNED_SHARDS, 26.0),
        (name::OWN_SHARDS, 27.0),
        (name::HOT_DEPTH, 28.0),
        (name::COLD_DEPTH, 29.0),
    ] {
        assert_eq!(of_store(name), Some(value), "{name}");
    }
    assert_eq!(seen.value("outbox_purged_rows_total{store=outbox,kind=done}"), Some(5.0));
    assert_eq!(seen.value("outbox_errors_total{store=outbox,component=read}"), Some(1.0));
    assert_eq!(seen.value("outbox_errors_total{store=outbox,component=verdict}"), Some(1.0));
}
