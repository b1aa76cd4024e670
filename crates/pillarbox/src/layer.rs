//! Layers: what happens around every delivery.
//!
//! A layer is `async fn(Cx, Next) -> Outcome`. [`Relay::layer`](crate::Relay::layer) registers
//! it; the first one registered is the outermost.
//!
//! - A layer that fails before it runs [`Next`] keeps the listener from being called: its
//!   [`Failure`] says whether the event is retried, deferred or dead.
//! - A layer that succeeds without running `Next` makes the event count as delivered.
//! - Once the listener has answered, its outcome stands: what a layer makes of it is only logged.
//! - A layer that panics has failed the delivery. All layers together with the listener have
//!   [`delivery_timeout`](crate::RelaySettings::delivery_timeout).
//! - A layer may wait before it runs `Next`: whether the lease still holds is asked after all of
//!   them, right before the listener is called. It occupies a worker meanwhile, so the ready ones
//!   wait for a moment only and then defer the event. Do not run `Next` in another task: the
//!   relay cannot stop it there.
//!
//! The ready ones that keep count do so per [route](Cx::route).
//!
//! # Examples
//! ```
//! use std::{num::NonZeroU32, time::Duration};
//! use pillarbox::layer::{self, CircuitBreaker, Next, Outcome, Timeout};
//! use pillarbox::{Cx, Listeners, MemoryStore, Relay};
//!
//! async fn audit(cx: Cx, next: Next) -> Outcome {
//!     println!("{} comes", cx.id());
//!     let outcome = next.run().await;
//!     println!("{} went {}", cx.id(), if outcome.is_ok() { "well" } else { "wrong" });
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

/// How a delivery went.
pub type Outcome = Result<(), Failure>;

/// Stands around every delivery.
///
/// Implemented by every `async fn(Cx, Next) -> Outcome`; implement it on a struct when there is
/// state to keep. The [module](self) says what a layer may do.
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
    /// Delivers one event by running `next`, or says why not.
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

/// What is left of a delivery: the layers further in, then the listener.
pub struct Next {
    layers: Layers,
    at: usize,
    cx: Cx,
    last: Arc<dyn Last>,
}

impl Next {
    /// Goes on with the delivery.
    ///
    /// # Errors
    /// What the listener, or a layer further in, reports.
    ///
    /// # Cancel safety
    /// Dropped half-way, the listener is stopped where it was.
    pub async fn run(mut self) -> Outcome {
        let layers = self.layers.clone();
        let Some(layer) = layers.0.get(self.at) else { return self.last.call().await };
        self.at += 1;
        layer.deliver(self.cx.clone(), self).await
    }
}

impl fmt::Debug for Next {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Next").field("event_id", self.cx.id()).finish_non_exhaustive()
    }
}

/// The future of a delivery.
pub(crate) type Delivering<'a> = Pin<Box<dyn Future<Output = Outcome> + Send + 'a>>;

/// What comes after the last layer.
pub(crate) trait Last: Send + Sync {
    fn call(self: Arc<Self>) -> Delivering<'static>;
}

/// All layers of a relay, the outermost first.
#[derive(Clone, Default)]
pub(crate) struct Layers(Arc<Vec<Arc<dyn AnyLayer>>>);

impl Layers {
    pub(crate) fn push(&mut self, layer: impl Layer) {
        Arc::make_mut(&mut self.0).push(Arc::new(layer));
    }

    pub(crate) async fn deliver(&self, cx: &Cx, last: Arc<dyn Last>) -> Outcome {
        if self.0.is_empty() {
            return last.call().await;
        }
        let cx = cx.clone();
        Next { layers: self.clone(), at: 0, cx, last }.run().await
    }
}

impl fmt::Debug for Layers {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Layers({})", self.0.len())
    }
}

/// A layer whose type was forgotten.
trait AnyLayer: Send + Sync {
    fn deliver(&self, cx: Cx, next: Next) -> Delivering<'_>;
}

impl<L: Layer> AnyLayer for L {
    fn deliver(&self, cx: Cx, next: Next) -> Delivering<'_> {
        Box::pin(Layer::deliver(self, cx, next))
    }
}

/// A duration that a clock can bear: a mistake is told when the layer is made.
#[track_caller]
fn checked(what: &str, duration: Duration) -> Duration {
    const YEAR: Duration = Duration::from_secs(366 * 86_400);
    assert!(!duration.is_zero(), "{what} is zero: give it a positive duration");
    assert!(duration <= YEAR, "{what} ({duration:?}) is longer than a year: lower it");
    duration
}

#[cfg(test)]
mod tests;
