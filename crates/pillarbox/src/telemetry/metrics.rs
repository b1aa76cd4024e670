//! Metrics: counts relay events through the `metrics` facade.

mod route;

use std::collections::HashMap;
use std::sync::{Arc, OnceLock, PoisonError, RwLock};
use std::time::Duration;

use metrics::{Counter, Gauge, Histogram, SharedString, counter, gauge, histogram};

use self::route::RouteMeters;
use super::{Attempt, Gauges, Observer, RelayEvent, name};

/// Records counters, gauges and histograms through the [`metrics`](https://docs.rs/metrics) facade.
///
/// Install the program's recorder first: a metric belongs to the recorder that is installed when
/// the metric is first used. `docs/observability.md` lists names and labels. The number of route
/// labels is limited: after 100 routes, further routes are counted as `other`.
///
/// # Examples
/// ```
/// use pillarbox::telemetry::Metrics;
/// use pillarbox::{Listeners, MemoryStore, Relay};
///
/// let relay = Relay::new(MemoryStore::new(), Listeners::new())
///     .observer(Metrics::new().store("orders"));
/// # let _ = relay;
/// ```
#[derive(Debug)]
pub struct Metrics {
    store: SharedString,
    max_routes: usize,
    routes: RwLock<HashMap<String, Arc<RouteMeters>>>,
    other: OnceLock<Arc<RouteMeters>>,
    meters: OnceLock<Meters>,
}

/// The label of routes beyond the limit.
const OTHER: &str = "other";
/// The label of rows that are not valid events, and so have no route.
const INVALID: &str = "invalid";

impl Metrics {
    /// Creates the metrics of one outbox, with the label `store="outbox"`.
    pub fn new() -> Self {
        Self {
            store: SharedString::const_str("outbox"),
            max_routes: 100,
            routes: RwLock::default(),
            other: OnceLock::new(),
            meters: OnceLock::new(),
        }
    }

    /// Sets the `store` label. Use different labels if a process has several outboxes.
    #[must_use]
    pub fn store(mut self, name: impl Into<String>) -> Self {
        self.store = SharedString::from_owned(name.into());
        self
    }

    /// Sets the maximum number of route labels. Defaults to 100.
    #[must_use]
    pub fn most_routes(mut self, most: usize) -> Self {
        self.max_routes = most;
        self
    }

    fn meters(&self) -> &Meters {
        self.meters.get_or_init(|| Meters::new(&self.store))
    }

    fn route(&self, attempt: &Attempt<'_>) -> Arc<RouteMeters> {
        let route = attempt.route.as_deref().unwrap_or(INVALID);
        let known = self.routes.read().unwrap_or_else(PoisonError::into_inner);
        if let Some(meters) = known.get(route) {
            return Arc::clone(meters);
        }
        drop(known);
        let mut routes = self.routes.write().unwrap_or_else(PoisonError::into_inner);
        if routes.len() >= self.max_routes && !routes.contains_key(route) {
            let other = || Arc::new(RouteMeters::new(&self.store, OTHER, OTHER));
            return Arc::clone(self.other.get_or_init(other));
        }
        let event_type = attempt.event_type.as_deref().unwrap_or(INVALID);
        let meters = || Arc::new(RouteMeters::new(&self.store, route, event_type));
        Arc::clone(routes.entry(route.to_owned()).or_insert_with(meters))
    }
}

impl Default for Metrics {
    fn default() -> Self {
        Self::new()
    }
}

impl Observer for Metrics {
    fn on_event(&self, event: &RelayEvent<'_>) {
        match event.attempt() {
            Some(attempt) => self.route(attempt).on_event(event, attempt),
            None => self.meters().on_event(event),
        }
    }
}

/// The metrics without a route.
#[derive(Debug)]
struct Meters {
    store: SharedString,
    hot: Counter,
    hot_dropped: Counter,
    cold: Counter,
    fenced: Counter,
    settled: Counter,
    settle_duration: Histogram,
    lease_lost: Counter,
    shards_taken: Counter,
    gauges: GaugeMeters,
}

impl Meters {
    fn new(store: &SharedString) -> Self {
        let count = |name: &'static str| counter!(name, "store" => store.clone());
        Self {
            hot: count(name::HOT),
            hot_dropped: count(name::HOT_DROPPED),
            cold: count(name::COLD),
            fenced: count(name::FENCED),
            settled: count(name::SETTLED),
            settle_duration: histogram!(name::SETTLE_DURATION, "store" => store.clone()),
            lease_lost: count(name::LEASE_LOST),
            shards_taken: count(name::SHARDS_TAKEN),
            gauges: GaugeMeters::new(store),
            store: store.clone(),
        }
    }

    fn on_event(&self, event: &RelayEvent<'_>) {
        match event {
            RelayEvent::FromLocalQueue { events } => self.hot.increment(*events as u64),
            RelayEvent::LocalQueueFull { events } => self.hot_dropped.increment(*events as u64),
            RelayEvent::Read { rows } => self.cold.increment(*rows as u64),
            RelayEvent::Fenced { .. } => self.fenced.increment(1),
            RelayEvent::Settled { rows, took } => {
                self.settled.increment(*rows as u64);
                self.settle_duration.record(millis(*took));
            }
            RelayEvent::LeaseLost { .. } => self.lease_lost.increment(1),
            RelayEvent::ShardsTaken { shards, .. } => self.shards_taken.increment(*shards as u64),
            RelayEvent::Counted(gauges) => self.gauges.set(gauges),
            RelayEvent::Purged { kind, rows } => {
                counter!(name::PURGED, "store" => self.store.clone(), "kind" => *kind)
                    .increment(*rows);
            }
            RelayEvent::ComponentFailed { component, .. } => self.error(component.as_str()),
            RelayEvent::RowLocked { .. } => self.error("lock"),
            RelayEvent::VerdictRefused { .. } => self.error("verdict"),
            _ => {}
        }
    }

    fn error(&self, component: &'static str) {
        counter!(name::ERRORS, "store" => self.store.clone(), "component" => component)
            .increment(1);
    }
}

#[derive(Debug)]
struct GaugeMeters {
    pending: Gauge,
    waiting: Gauge,
    dead: Gauge,
    held_keys: Gauge,
    oldest_lag: Gauge,
    owners: Gauge,
    owned_shards: Gauge,
    own_shards: Gauge,
    hot_depth: Gauge,
    cold_depth: Gauge,
}

impl GaugeMeters {
    fn new(store: &SharedString) -> Self {
        let gauge = |name: &'static str| gauge!(name, "store" => store.clone());
        Self {
            pending: gauge(name::PENDING),
            waiting: gauge(name::WAITING_EVENTS),
            dead: gauge(name::DEAD_EVENTS),
            held_keys: gauge(name::HELD_KEYS),
            oldest_lag: gauge(name::OLDEST_LAG),
            owners: gauge(name::OWNERS),
            owned_shards: gauge(name::OWNED_SHARDS),
            own_shards: gauge(name::OWN_SHARDS),
            hot_depth: gauge(name::HOT_DEPTH),
            cold_depth: gauge(name::COLD_DEPTH),
        }
    }

    fn set(&self, gauges: &Gauges) {
        self.pending.set(number(gauges.pending));
        self.waiting.set(number(gauges.waiting));
        self.dead.set(number(gauges.dead));
        self.held_keys.set(number(gauges.held_keys));
        self.oldest_lag.set(millis(gauges.oldest_lag));
        self.owners.set(number(gauges.owners));
        self.owned_shards.set(number(gauges.owned_shards));
        self.own_shards.set(number(gauges.own_shards));
        self.hot_depth.set(number(gauges.hot_depth));
        self.cold_depth.set(number(gauges.cold_depth));
    }
}

fn millis(duration: Duration) -> f64 {
    duration.as_secs_f64() * 1000.0
}

/// Converts a count. The result is exact below 2^53.
fn number(count: u64) -> f64 {
    count as f64
}

#[cfg(test)]
mod tests;
