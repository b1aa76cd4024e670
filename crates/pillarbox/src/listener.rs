//! Listeners: the routing of events to the functions that process them.

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
use self::routes::RoutingTable;
use crate::envelope::Envelope;
use crate::error::{Error, Result};
use crate::event::{AggregateType, Event, EventType};
use crate::verdict::Failure;

/// Processes events of one type.
///
/// Implemented by every `async fn(E, Cx) -> Result<(), impl Into<Failure>>`; implement it on a
/// struct to keep state. `E` is a typed [`Event`], or [`Envelope`] to receive the event undecoded.
///
/// A listener is called at least once per event: after a crash it may be called again with the
/// same [`Cx::id`].
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
    message = "`{Self}` is not a listener for `{E}`",
    note = "a listener is `async fn(E, Cx) -> Result<(), impl Into<Failure>>`, or a struct that \
            implements `Listener<E>`; the error can be any type that converts into \
            `Box<dyn Error + Send + Sync>`"
)]
pub trait Listener<E>: Send + Sync + 'static {
    /// Processes one event.
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

/// The listeners of a relay. Each event is routed to exactly one of them.
///
/// An event goes to the listener of its aggregate type and event type. If there is none, it goes to
/// the listener of the most specific [`Pattern`]: a pattern with an aggregate type precedes one
/// without, then the longest text before the `*` wins. If no pattern matches, it goes to the
/// fallback. Registering a second listener for the same pair or pattern is an error.
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
///     .on_type("order", "order.placed", forward)     // this pair of names
///     .on_pattern("invoice.*", forward)              // every event type with this prefix
///     .fallback(|_: Envelope, _: Cx| async { Err(Failure::dead("unknown event")) });
/// # assert_eq!(listeners.len(), 3);
/// ```
#[derive(Default)]
pub struct Listeners {
    table: RoutingTable,
    rules: Rules,
}

impl Listeners {
    /// Creates an empty set of listeners.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds a listener for a typed event.
    ///
    /// It receives payloads of version [`Event::VERSION`]; older payloads are converted by the
    /// upcasters added with [`upcast`](Self::upcast).
    ///
    /// # Panics
    /// If the event already has a listener; see [`try_on`](Self::try_on).
    #[must_use]
    #[track_caller]
    pub fn on<E: Event>(self, listener: impl Listener<E>) -> Self {
        self.try_on(listener).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Fallible form of [`on`](Self::on).
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when the event has a
    /// listener already.
    pub fn try_on<E: Event>(mut self, listener: impl Listener<E>) -> Result<Self> {
        self.table.add_pair((E::AGGREGATE, E::TYPE), Arc::new(Typed::<E, _>::new(listener)))?;
        Ok(self)
    }

    /// Adds a listener for an aggregate type and an event type. It receives the envelope.
    ///
    /// # Panics
    /// If a name exceeds its limit or the pair already has a listener; see
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

    /// Fallible form of [`on_type`](Self::on_type).
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when a name exceeds its limit,
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when the pair already has a
    /// listener.
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

    /// Adds a listener for all events that match a pattern. It receives the envelope.
    ///
    /// # Panics
    /// If the pattern is invalid, already has a listener, or is `*`; see
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

    /// Fallible form of [`on_pattern`](Self::on_pattern).
    ///
    /// # Errors
    /// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the pattern is invalid,
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when it already has a
    /// listener, or is `*`: use [`fallback`](Self::fallback) instead.
    pub fn try_on_pattern(
        mut self,
        pattern: impl TryInto<Pattern, Error: Into<Error>>,
        listener: impl Listener<Envelope>,
    ) -> Result<Self> {
        let pattern = pattern.try_into().map_err(Into::into)?;
        self.table.add_pattern(pattern, Arc::new(Raw(listener)))?;
        Ok(self)
    }

    /// Adds a listener for every event that no other listener matches.
    ///
    /// # Panics
    /// If there already is a fallback.
    #[must_use]
    #[track_caller]
    pub fn fallback(mut self, listener: impl Listener<Envelope>) -> Self {
        if let Err(error) = self.table.add_fallback(Arc::new(Raw(listener))) {
            panic!("{error}");
        }
        self
    }

    /// Adds an upcaster, which converts payloads of version `from` to version `from + 1`.
    ///
    /// A listener of version 3 receives an event of version 1 through the upcasters from 1 and from
    /// 2. If one is missing or fails, the event becomes a dead letter whose error names it.
    /// Listeners of envelopes receive every version unchanged. Numbers are parsed as 64 bit
    /// integers if possible, otherwise as floats.
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
    ///     let total = order["total"].as_i64().ok_or("the order has no total")?;
    ///     order["total_cents"] = (total * 100).into();
    ///     Ok(order)
    /// }
    ///
    /// let listeners = Listeners::new().on(book).upcast::<OrderPlaced, _>(1, in_cents);
    /// # assert_eq!(listeners.len(), 1);
    /// ```
    ///
    /// # Panics
    /// If there already is an upcaster from this version, or the version is not between 1 and
    /// [`Event::VERSION`] - 1; see [`try_upcast`](Self::try_upcast).
    #[must_use]
    #[track_caller]
    pub fn upcast<E: Event, X: Into<Box<dyn StdError + Send + Sync>>>(
        self,
        from: u32,
        upcaster: impl Fn(Value) -> Result<Value, X> + Send + Sync + 'static,
    ) -> Self {
        self.try_upcast::<E, X>(from, upcaster).unwrap_or_else(|error| panic!("{error}"))
    }

    /// Fallible form of [`upcast`](Self::upcast).
    ///
    /// # Errors
    /// [`ErrorKind::Configuration`](crate::ErrorKind::Configuration) when there already is an
    /// upcaster from this version, or the version is not between 1 and [`Event::VERSION`] - 1.
    pub fn try_upcast<E: Event, X: Into<Box<dyn StdError + Send + Sync>>>(
        mut self,
        from: u32,
        upcaster: impl Fn(Value) -> Result<Value, X> + Send + Sync + 'static,
    ) -> Result<Self> {
        let upcaster = move |value| upcaster(value).map_err(Into::into);
        self.rules.upcasters.add::<E>(from, Box::new(upcaster))?;
        Ok(self)
    }

    /// Sets the policy for unroutable events.
    pub(crate) fn unroutable(mut self, policy: Unroutable) -> Self {
        self.rules.unroutable = policy;
        self
    }

    /// Returns the number of listeners.
    pub fn len(&self) -> usize {
        self.table.len()
    }

    /// Returns whether there are no listeners.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the route of an event.
    pub(crate) fn route(&self, envelope: &Envelope) -> &Route {
        self.table.best(envelope)
    }

    /// Returns whether events can have more than one route.
    pub(crate) fn has_many_routes(&self) -> bool {
        self.table.has_many_routes()
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
