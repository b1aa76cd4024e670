//! Listeners: who hears of which event.

use std::{collections::HashMap, fmt, marker::PhantomData, pin::Pin, sync::Arc};

use crate::context::Context;
use crate::envelope::Envelope;
use crate::error::{Error, ErrorKind, Result};
use crate::event::{AggregateType, Event, EventType};
use crate::id::EventId;
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

/// What a listener knows beside the event itself.
///
/// # Examples
/// ```
/// use pillarbox::{Cx, Envelope, Failure};
///
/// async fn log(event: Envelope, cx: Cx) -> Result<(), Failure> {
///     println!("{} attempt {}: {}", cx.id(), cx.attempt(), event.event_type());
///     Ok(())
/// }
/// # let _ = pillarbox::Listeners::new().fallback(log);
/// ```
#[derive(Clone, Debug)]
pub struct Cx {
    envelope: Arc<Envelope>,
    attempt: u32,
}

impl Cx {
    pub(crate) fn new(envelope: Arc<Envelope>, attempt: u32) -> Self {
        Self { envelope, attempt }
    }

    /// The event's id, the same on every attempt: what to deduplicate by.
    pub fn id(&self) -> &EventId {
        self.envelope.event_id()
    }

    /// Which attempt this is, from 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// The whole event.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Who acted when it was emitted.
    pub fn context(&self) -> Context {
        Context::of(&self.envelope)
    }
}

/// The routing table: exactly one listener for each pair of aggregate type and event type.
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
///     .fallback(|_: Envelope, _: Cx| async { Err(Failure::dead("unknown event")) });
/// # assert_eq!(listeners.len(), 2);
/// ```
#[derive(Default)]
pub struct Listeners {
    routes: HashMap<Route, Arc<dyn AnyListener>>,
    fallback: Option<Arc<dyn AnyListener>>,
}

type Route = (AggregateType, EventType);

impl Listeners {
    /// Nobody listens yet.
    pub fn new() -> Self {
        Self::default()
    }

    /// A listener for a typed event.
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
    /// [`ErrorKind::Configuration`] when the event has a listener already.
    pub fn try_on<E: Event>(self, listener: impl Listener<E>) -> Result<Self> {
        self.add((E::AGGREGATE, E::TYPE), Arc::new(Typed(listener, PhantomData)))
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
    /// [`ErrorKind::Invalid`] when a name breaks its limit, [`ErrorKind::Configuration`] when the
    /// pair has a listener already.
    pub fn try_on_type(
        self,
        aggregate_type: impl TryInto<AggregateType, Error: Into<Error>>,
        event_type: impl TryInto<EventType, Error: Into<Error>>,
        listener: impl Listener<Envelope>,
    ) -> Result<Self> {
        let aggregate_type = aggregate_type.try_into().map_err(Into::into)?;
        let event_type = event_type.try_into().map_err(Into::into)?;
        self.add((aggregate_type, event_type), Arc::new(Raw(listener)))
    }

    /// A listener for every event that has no other.
    ///
    /// # Panics
    /// When there is one already.
    #[must_use]
    #[track_caller]
    pub fn fallback(mut self, listener: impl Listener<Envelope>) -> Self {
        assert!(self.fallback.is_none(), "there is a fallback listener already");
        self.fallback = Some(Arc::new(Raw(listener)));
        self
    }

    /// How many listeners there are.
    pub fn len(&self) -> usize {
        self.routes.len() + usize::from(self.fallback.is_some())
    }

    /// Whether nobody listens.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Who hears of this event.
    pub(crate) fn route(&self, envelope: &Envelope) -> Option<Arc<dyn AnyListener>> {
        let route = (envelope.aggregate_type().clone(), envelope.event_type().clone());
        self.routes.get(&route).or(self.fallback.as_ref()).cloned()
    }

    fn add(mut self, route: Route, listener: Arc<dyn AnyListener>) -> Result<Self> {
        if self.routes.contains_key(&route) {
            return Err(Error::new(
                ErrorKind::Configuration,
                format!("there is a listener for {}/{} already", route.0, route.1),
            ));
        }
        self.routes.insert(route, listener);
        Ok(self)
    }
}

impl fmt::Debug for Listeners {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut routes: Vec<_> = self.routes.keys().map(|(a, e)| format!("{a}/{e}")).collect();
        routes.sort();
        f.debug_struct("Listeners")
            .field("routes", &routes)
            .field("fallback", &self.fallback.is_some())
            .finish()
    }
}

/// A future that says how a delivery went.
pub(crate) type Hearing<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A listener whose event type was forgotten.
pub(crate) trait AnyListener: Send + Sync {
    fn hear(&self, cx: Cx) -> Hearing<'_>;
}

struct Typed<E, L>(L, PhantomData<fn(E)>);

impl<E: Event, L: Listener<E>> AnyListener for Typed<E, L> {
    fn hear(&self, cx: Cx) -> Hearing<'_> {
        Box::pin(async move {
            let event = decode::<E>(cx.envelope())?;
            self.0.on_event(event, cx).await
        })
    }
}

struct Raw<L>(L);

impl<L: Listener<Envelope>> AnyListener for Raw<L> {
    fn hear(&self, cx: Cx) -> Hearing<'_> {
        Box::pin(self.0.on_event(cx.envelope().clone(), cx))
    }
}

/// What cannot be decoded now cannot be decoded later: dead, with its cause.
fn decode<E: Event>(envelope: &Envelope) -> Result<E, Failure> {
    let version = envelope.event_version();
    if version != E::VERSION {
        let ours = E::VERSION;
        return Err(Failure::dead(format!(
            "event version is {version}, the listener reads {ours}"
        )));
    }
    // The error's own text may quote the payload, which belongs neither into logs nor columns.
    serde_json::from_slice(envelope.payload().as_bytes()).map_err(|error| {
        let (kind, line, column) = (error.classify(), error.line(), error.column());
        Failure::dead(format!(
            "the payload does not decode ({kind:?}, line {line}, column {column})"
        ))
    })
}
