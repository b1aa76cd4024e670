//! Layers: middleware around every delivery.
//!
//! A layer is `async fn(Cx, Next) -> Outcome`. [`Relay::layer`](crate::Relay::layer) adds it; the
//! layer added first is the outermost.
//!
//! - If a layer fails before it runs [`Next`], the listener is not called. The [`Failure`] decides
//!   whether the event is retried, deferred or dead.
//! - If a layer succeeds without running `Next`, the event counts as delivered.
//! - Once the listener has returned, its outcome is final: a different outcome of a layer is only
//!   logged.
//! - A panic in a layer fails the delivery. All layers and the listener together have
//!   [`delivery_timeout`](crate::RelaySettings::delivery_timeout).
//! - A layer may wait before it runs `Next`: the lease is checked after all layers, right before the
//!   listener is called. A waiting layer occupies a worker, so the provided layers wait only
//!   briefly and then defer the event. Do not run `Next` in another task: the relay cannot stop it
//!   there.
//!
//! The provided limits count per [route](Cx::route).
//!
//! # Examples
//! ```
//! use std::{num::NonZeroU32, time::Duration};
//! use pillarbox::layer::{self, CircuitBreaker, Next, Outcome, Timeout};
//! use pillarbox::{Cx, Listeners, MemoryStore, Relay};
//!
//! async fn audit(cx: Cx, next: Next) -> Outcome {
//!     println!("{}: started", cx.id());
//!     let outcome = next.run().await;
//!     println!("{}: {}", cx.id(), if outcome.is_ok() { "delivered" } else { "failed" });
//!     outcome
//! }
//!
//! let five = NonZeroU32::new(5).expect("five is not zero");
//! let relay = Relay::new(MemoryStore::new(), Listeners::new())
//!     .layer(audit)
//!     .layer(CircuitBreaker::new(five, Duration::from_secs(30)))
//!     .layer(layer::only("payment.*", Timeout::new(Duration::from_secs(2)))?);
//! # drop(relay);
//! # Ok::<(), pillarbox::Error>(())
//! ```

mod breaker;
mod concurrency;
mod hook;
mod rate;
mod route;
mod span;
mod timeout;

use std::{fmt, pin::Pin, sync::Arc, time::Duration};

pub use self::breaker::CircuitBreaker;
pub use self::concurrency::ConcurrencyLimit;
pub use self::hook::{after, before, only};
pub use self::rate::RateLimit;
pub use self::span::TraceSpan;
pub use self::timeout::Timeout;
use crate::listener::Cx;
use crate::verdict::Failure;

/// The result of a delivery.
pub type Outcome = Result<(), Failure>;

/// Middleware around every delivery.
///
/// Implemented by every `async fn(Cx, Next) -> Outcome`; implement it on a struct to keep state.
/// The [module](self) documents what a layer may do.
///
/// # Examples
/// ```
/// use std::sync::atomic::{AtomicU64, Ordering};
/// use pillarbox::layer::{Layer, Next, Outcome};
/// use pillarbox::Cx;
///
/// #[derive(Default)]
/// struct Count(AtomicU64);
///
/// impl Layer for Count {
///     async fn deliver(&self, _: Cx, next: Next) -> Outcome {
///         self.0.fetch_add(1, Ordering::Relaxed);
///         next.run().await
///     }
/// }
/// # let _ = Count::default();
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` is not a layer",
    note = "a layer is `async fn(Cx, Next) -> Outcome`, or a struct that implements `Layer`"
)]
pub trait Layer: Send + Sync + 'static {
    /// Delivers one event by running `next`, or returns a failure.
    fn deliver(&self, cx: Cx, next: Next) -> impl Future<Output = Outcome> + Send;
}

impl<F, Fut> Layer for F
where
    F: Fn(Cx, Next) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Outcome> + Send,
{
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        self(cx, next).await
    }
}

/// The rest of a delivery: the inner layers, then the listener.
pub struct Next {
    layers: Layers,
    index: usize,
    cx: Cx,
    endpoint: Arc<dyn Endpoint>,
}

impl Next {
    /// Runs the inner layers and the listener.
    ///
    /// # Errors
    /// Returns the failure of the listener or of an inner layer.
    ///
    /// # Cancel safety
    /// If the future is dropped, the listener's future is dropped as well.
    pub async fn run(mut self) -> Outcome {
        let layers = self.layers.clone();
        let Some(layer) = layers.0.get(self.index) else { return self.endpoint.call().await };
        self.index += 1;
        layer.deliver(self.cx.clone(), self).await
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("event_id", self.cx.id()).finish_non_exhaustive()
    }
}

/// The future of a delivery.
pub(crate) type DeliveryFuture<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// The call of the listener, after the innermost layer.
pub(crate) trait Endpoint: Send + Sync {
    fn call(self: Arc<Self>) -> DeliveryFuture<'static>;
}

/// The layers of a relay, the outermost first.
#[derive(Clone, Default)]
pub(crate) struct Layers(Arc<Vec<Arc<dyn ErasedLayer>>>);

impl Layers {
    pub(crate) fn push(&mut self, layer: impl Layer) {
        Arc::make_mut(&mut self.0).push(Arc::new(layer));
    }

    pub(crate) async fn deliver(&self, cx: &Cx, endpoint: Arc<dyn Endpoint>) -> Outcome {
        if self.0.is_empty() {
            return endpoint.call().await;
        }
        let cx = cx.clone();
        Next { layers: self.clone(), index: 0, cx, endpoint }.run().await
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layers({})", self.0.len())
    }
}

/// A type-erased layer.
trait ErasedLayer: Send + Sync {
    fn deliver(&self, cx: Cx, next: Next) -> DeliveryFuture<'_>;
}

impl<L: Layer> ErasedLayer for L {
    fn deliver(&self, cx: Cx, next: Next) -> DeliveryFuture<'_> {
        Box::pin(Layer::deliver(self, cx, next))
    }
}

/// Panics if a duration is zero or so long that adding it to the clock could overflow.
#[track_caller]
fn checked(what: &str, duration: Duration) -> Duration {
    const YEAR: Duration = Duration::from_secs(366 * 86_400);
    assert!(!duration.is_zero(), "{what} is zero: give it a positive duration");
    assert!(duration <= YEAR, "{what} ({duration:?}) is longer than a year: lower it");
    duration
}

#[cfg(test)]
mod tests;
