use std::collections::BTreeMap;
use std::sync::Mutex;

use metrics::{
    CounterFn, GaugeFn, HistogramFn, Key, KeyName, Metadata, Recorder, Unit, with_local_recorder,
};

use super::*;
use crate::observe::Part;

/// Keeps every value under its name and labels.
#[derive(Clone, Default)]
struct Notebook(Arc<Mutex<BTreeMap<String, f64>>>);

struct Line(Notebook, String);

impl Line {
    fn add(&self, value: f64) {
        *self.0.0.lock().unwrap().entry(self.1.clone()).or_default() += value;
    }
}

impl CounterFn for Line {
    fn increment(&self, value: u64) {
        self.add(number(value));
    }
    fn absolute(&self, _: u64) {}
}

impl GaugeFn for Line {
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

impl HistogramFn for Line {
    fn record(&self, value: f64) {
        self.add(value);
    }
}

impl Notebook {
    fn line(&self, key: &Key) -> Arc<Line> {
        let labels: Vec<_> = key.labels().map(|l| format!("{}={}", l.key(), l.value())).collect();
        Arc::new(Line(self.clone(), format!("{}{{{}}}", key.name(), labels.join(","))))
    }

    fn value(&self, key: &str) -> Option<f64> {
        self.0.lock().unwrap().get(key).copied()
    }
}

impl Recorder for Notebook {
    fn describe_counter(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_gauge(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn describe_histogram(&self, _: KeyName, _: Option<Unit>, _: SharedString) {}
    fn register_counter(&self, key: &Key, _: &Metadata<'_>) -> Counter {
        Counter::from_arc(self.line(key))
    }
    fn register_gauge(&self, key: &Key, _: &Metadata<'_>) -> Gauge {
        Gauge::from_arc(self.line(key))
    }
    fn register_histogram(&self, key: &Key, _: &Metadata<'_>) -> Histogram {
        Histogram::from_arc(self.line(key))
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

fn see(metrics: &Metrics, happenings: &[Happening<'_>]) -> Notebook {
    let notebook = Notebook::default();
    with_local_recorder(&notebook, || {
        happenings.iter().for_each(|happening| metrics.see(happening));
    });
    notebook
}

#[test]
fn a_delivery_is_counted_under_the_names_of_all_seeds() {
    let route = "order/order.placed";
    let dead = Happening::Dead { attempt: attempt(route), error: "no".into() };
    let retried = Happening::Retried {
        attempt: attempt(route),
        delay: Duration::from_secs(1),
        error: "no".into(),
    };

    let seen =
        see(&Metrics::new().store("shop"), &[Happening::Delivered(attempt(route)), retried, dead]);

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
        routes.iter().map(|route| Happening::Delivered(attempt(route))).collect();

    let seen = see(&Metrics::new().most_routes(3), &delivered);

    let success = |route: &str| {
        seen.value(&format!("outbox_dispatch_success_total{{store=outbox,route={route}}}"))
    };
    assert_eq!((success("a/2"), success("a/3")), (Some(1.0), None));
    assert_eq!(success("other"), Some(47.0));
}

#[test]
fn a_row_that_is_no_event_has_a_label_of_its_own() {
    let attempt = Attempt { route: None, event_type: None, ..attempt("a/b") };

    let seen = see(&Metrics::new(), &[Happening::Dead { attempt, error: "no".into() }]);

    let key = "oksai_integration_event_processed_total\
               {mode=outbox,processor=invalid,eventName=invalid,result=invalid_envelope}";
    assert_eq!(seen.value(key), Some(1.0));
}

#[test]
fn the_rest_is_counted_by_store() {
    let gauges = Gauges {
        pending: 7,
        held_keys: 2,
        oldest_lag: Duration::from_millis(1500),
        ..Gauges::default()
    };

    let seen = see(
        &Metrics::new(),
        &[
            Happening::Counted(gauges),
            Happening::HotDropped { events: 3 },
            Happening::Read { rows: 4 },
            Happening::Purged { kind: "done", rows: 5 },
            Happening::mishap(Part::Read, "gone"),
        ],
    );

    let of_store = |name: &str| seen.value(&format!("{name}{{store=outbox}}"));
    assert_eq!(of_store("outbox_pending_total"), Some(7.0));
    assert_eq!(of_store("outbox_held_keys"), Some(2.0));
    assert_eq!(of_store("outbox_lag_oldest_ms"), Some(1500.0));
    assert_eq!(of_store("outbox_enqueue_hot_dropped_total"), Some(3.0));
    assert_eq!(of_store("outbox_enqueue_cold_total"), Some(4.0));
    assert_eq!(seen.value("outbox_purged_rows_total{store=outbox,kind=done}"), Some(5.0));
    assert_eq!(seen.value("outbox_errors_total{store=outbox,part=read}"), Some(1.0));
}
