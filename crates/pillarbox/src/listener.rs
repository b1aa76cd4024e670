//! Listeners: who hears of which event.

mod cx;
mod erased;
mod pattern;
mod routes;
mod upcast;

use std::{error::Error as StdError, fmt, sync::Arc};

use serde_json::Value;

pub use self::cx::Cx;
pub use self::erased::Unroutable;
pub(crate) use self::erased::{ErasedListener, Rules};
use self::erased::{Raw, Typed};
pub use self::pattern::Pattern;
pub(crate) use self::routes::Route;
use self::routes::Table;
use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::event::{AggregateType, Event, EventType};
use crate::verdict::Failure;

/// Reacts to events of one type.
///
/// Implemented by every `async fn(E, Cx) -> Result<(), impl Into<Failure>>`; implement it on a
/// struct when there is state to keep. `E` is a typed [`Event`], or [`Envelope`] to take the
/// event as it is.
///
/// It is called at least once per event: after a crash it may be called again with the same
/// [`Cx::id`].
///
/// # Examples
/// ```
/// use pillarbox::{Cx, Event, Failure, Listener, Listeners};
/// use serde::{Deserialize, Serialize};
///
/// #[derive(Serialize, Deserialize, Event)]
/// #[event("order.placed")]
/// struct OrderPlaced { email: String }
///
/// struct Receipts { from: String }
///
/// impl Listener<OrderPlaced> for Receipts {
///     async fn on_event(&self, order: OrderPlaced, cx: Cx) -> Result<(), Failure> {
///         println!("{} writes to {} ({})", self.from, order.email, cx.id());
///         Ok(())
///     }
/// }
///
/// let listeners = Listeners::new().on(Receipts { from: "shop@example.com".into() });
/// # assert_eq!(listeners.len(), 1);
/// ```
#[diagnostic::on_unimplemented(
    message = "`{Self}` does not listen to `{E}`",
    note = "a listener is `async fn(E, Cx) -> Result<(), impl Into<Failure>>`, or a struct that \
            implements `Listener<E>`; every error type that `Box<dyn Error + Send + Sync>` takes \
            will do"
)]
pub trait Listener<E>: Send + Sync + 'static {
    /// Hears of one event.
    fn on_event(&self, event: E, cx: Cx) -> impl Future<Output = Result<(), Failure>> + Send;
}

impl<E, F, Fut, X> Listener<E> for F
where
    F: Fn(E, Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), X>> + Send,
    X: Into<Failure>,
    E: Send + 'static,
{
    async fn on_event(&self, event: E, cx: Cx) -> Result<(), Failure> {
        self(event, cx).await.map_err(Into::into)
    }
}

/// The routing table: exactly one listener hears of an event.
///
/// The listener of its pair of aggregate type and event type; else that of the best [`Pattern`]:
/// one with an aggregate type beats one without, then the longer text before the `*` wins; else
/// the fallback. Two for the same pair or pattern are refused when the second is registered.
///
/// # Examples
/// ```
/// use pillarbox::{Cx, Envelope, Failure, Listeners};
///
/// async fn forward(event: Envelope, _: Cx) -> Result<(), Failure> {
///     println!("{}", event.to_json());
///     Ok(())
/// }
///
/// let listeners = Listeners::new()
///     .on_type("order", "order.placed", forward)     // this pair, as it is
///     .on_pattern("invoice.*", forward)              // every other that begins like this
///     .fallback(|_: Envelope, _: Cx| async { Err(Failure::dead("unknown event")) });
/// # assert_eq!(listeners.len(), 3);
/// ```
#[derive(Default)]
pub struct Listeners {
    table: Table,
    rules: Rules,
}

impl Listeners {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A listener for a typed event.
    ///
    /// It reads the event's own version; older ones come to it through
    /// [`upcast`](Self::upcast).
    ///
    /// # Panics
    /// When the event has a listener already; see [`try_on`](Self::try_on).
    #[must_use]
    #[track_caller]
    pub fn on<E: Event>(self, listener: impl Listener<E>) -> Self {
        self.try_on(listener).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A listener for a typed event, for callers that register what they do not know.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when the event has a
    /// listener already.
    pub fn try_on<E: Event>(mut self, listener: impl Listener<E>) -> Result<Self> {
        self.table.add_pair((E::AGGREGATE, E::TYPE), Arc::new(Typed::<E, _>::new(listener)))?;
        Ok(self)
    }

    /// A listener for a pair of names, which takes the envelope as it is.
    ///
    /// # Panics
    /// When a name breaks its limit or the pair has a listener already; see
    /// [`try_on_type`](Self::try_on_type).
    #[must_use]
    #[track_caller]
    pub fn on_type(
        self,
        aggregate_type: impl TryInto<AggregateType, Error: Into<Error>>,
        event_type: impl TryInto<EventType, Error: Into<Error>>,
        listener: impl Listener<Envelope>,
    ) -> Self {
        self.try_on_type(aggregate_type, event_type, listener)
            .unwrap_or_else(|error| panic!("{error}"))
    }

    /// A listener for a pair of names, for callers that register what they do not know.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a name breaks its limit,
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when the pair has a listener
    /// already.
    pub fn try_on_type(
        mut self,
        aggregate_type: impl TryInto<AggregateType, Error: Into<Error>>,
        event_type: impl TryInto<EventType, Error: Into<Error>>,
        listener: impl Listener<Envelope>,
    ) -> Result<Self> {
        let aggregate_type = aggregate_type.try_into().map_err(Into::into)?;
        let event_type = event_type.try_into().map_err(Into::into)?;
        self.table.add_pair((aggregate_type, event_type), Arc::new(Raw(listener)))?;
        Ok(self)
    }

    /// A listener for all events that match, which takes envelopes as they are.
    ///
    /// # Panics
    /// When the pattern is not one, has a listener already, or is `*`; see
    /// [`try_on_pattern`](Self::try_on_pattern).
    #[must_use]
    #[track_caller]
    pub fn on_pattern(
        self,
        pattern: impl TryInto<Pattern, Error: Into<Error>>,
        listener: impl Listener<Envelope>,
    ) -> Self {
        self.try_on_pattern(pattern, listener).unwrap_or_else(|error| panic!("{error}"))
    }

    /// A listener for all events that match, for callers that register what they do not know.
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the pattern is not one,
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when it has a listener
    /// already, or is `*`, which is what [`fallback`](Self::fallback) is for.
    pub fn try_on_pattern(
        mut self,
        pattern: impl TryInto<Pattern, Error: Into<Error>>,
        listener: impl Listener<Envelope>,
    ) -> Result<Self> {
        let pattern = pattern.try_into().map_err(Into::into)?;
        self.table.add_pattern(pattern, Arc::new(Raw(listener)))?;
        Ok(self)
    }

    /// A listener for every event that has no other.
    ///
    /// # Panics
    /// When there is one already.
    #[must_use]
    #[track_caller]
    pub fn fallback(mut self, listener: impl Listener<Envelope>) -> Self {
        if let Err(error) = self.table.add_fallback(Arc::new(Raw(listener))) {
            panic!("{error}");
        }
        self
    }

    /// Turns payloads of version `from` into those of the version after it.
    ///
    /// A listener of version 3 takes an event of version 1 through the upcasters from 1 and from
    /// 2. A missing one, or one that fails, makes the event a dead letter that says which.
    /// Listeners of raw envelopes take every version as it is. Numbers are read as 64 bit
    /// integers, else as floats.
    ///
    /// # Examples
    /// ```
    /// use pillarbox::{Cx, Event, Failure, Listeners};
    /// use serde::{Deserialize, Serialize};
    /// use serde_json::Value;
    ///
    /// #[derive(Serialize, Deserialize, Event)]
    /// #[event("order.placed", version = 2)]
    /// struct OrderPlaced { total_cents: i64 }
    ///
    /// async fn book(order: OrderPlaced, _: Cx) -> Result<(), Failure> {
    ///     println!("{} cents", order.total_cents);
    ///     Ok(())
    /// }
    ///
    /// fn in_cents(mut order: Value) -> Result<Value, &'static str> {
    ///     let total = order["total"].as_i64().ok_or("an order without a total")?;
    ///     order["total_cents"] = (total * 100).into();
    ///     Ok(order)
    /// }
    ///
    /// let listeners = Listeners::new().on(book).upcast::<OrderPlaced, _>(1, in_cents);
    /// # assert_eq!(listeners.len(), 1);
    /// ```
    ///
    /// # Panics
    /// When there is an upcaster from this version already, or it is not one before
    /// [`Event::VERSION`]; see [`try_upcast`](Self::try_upcast).
    #[must_use]
    #[track_caller]
    pub fn upcast<E: Event, X: Into<Box<dyn StdError + Send + Sync>>>(
        self,
        from: u32,
        upcaster: impl Fn(Value) -> Result<Value, X> + Send + Sync + 'static,
    ) -> Self {
        self.try_upcast::<E, X>(from, upcaster).unwrap_or_else(|error| panic!("{error}"))
    }

    /// An upcaster, for callers that register what they do not know.
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when there is an upcaster
    /// from this version already, or it is not one before [`Event::VERSION`].
    pub fn try_upcast<E: Event, X: Into<Box<dyn StdError + Send + Sync>>>(
        mut self,
        from: u32,
        upcaster: impl Fn(Value) -> Result<Value, X> + Send + Sync + 'static,
    ) -> Result<Self> {
        let upcaster = move |value| upcaster(value).map_err(Into::into);
        self.rules.upcasters.add::<E>(from, Box::new(upcaster))?;
        Ok(self)
    }

    /// What becomes of events that nobody here can read yet: a relay's settings say.
    pub(crate) fn unroutable(mut self, policy: Unroutable) -> Self {
        self.rules.unroutable = policy;
        self
    }

    /// How many listeners there are.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Who hears of this event.
    pub(crate) fn route(&self, envelope: &Envelope) -> &Route {
        self.table.best(envelope)
    }

    /// Whether there can be events of more than one route.
    pub(crate) fn are_for_many(&self) -> bool {
        self.table.is_for_many()
    }

    pub(crate) fn rules(&self) -> &Rules {
        &self.rules
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Listeners").field("routes", &self.table.names()).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests;
