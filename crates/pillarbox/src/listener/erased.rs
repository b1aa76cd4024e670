//! Behind the registry: listeners whose event type was forgotten.

use std::{marker::PhantomData, pin::Pin, time::Duration};

use serde::{Deserialize, Serialize};

use super::upcast::Upcasters;
use super::{Cx, Listener};
use crate::envelope::Envelope;
use crate::event::Event;
use crate::id::jitter;
use crate::verdict::Failure;

/// A future that says how a delivery went.
pub(crate) type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// Whatever a route leads to: a typed listener, a raw one, nobody.
///
/// The relay knows no more of them than this. Whoever forwards events or keeps subscribers of
/// its own comes in here.
pub(crate) trait ErasedListener: Send + Sync {
    fn call<'a>(&'a self, cx: Cx, rules: &'a Rules) -> CallFuture<'a>;
}

/// What all listeners of one registry go by.
#[derive(Default)]
pub(crate) struct Rules {
    pub(super) upcasters: Upcasters,
    pub(super) unroutable: Unroutable,
}

/// What becomes of an event that nobody here can read yet.
///
/// That is an event without a listener, or of a newer version than its listener reads.
///
/// # Examples
/// ```
/// use pillarbox::{RelaySettings, Unroutable};
///
/// let settings: RelaySettings = serde_json::from_str(r#"{"unroutable": "wait"}"#)?;
///
/// assert_eq!(settings.unroutable, Unroutable::Wait);
/// # Ok::<(), serde_json::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Deserialize, Serialize)]
#[serde(rename_all = "lowercase")]
pub enum Unroutable {
    /// It is a dead letter at once, so that it is noticed.
    #[default]
    Dead,
    /// It comes again every few seconds, and no attempt is counted.
    ///
    /// For rolling upgrades, where the listener is on its way. An event that never finds one
    /// waits for ever, and the later events of its key with it.
    Wait,
}

/// About how long an event waits for a listener that is on its way.
const WAIT: Duration = Duration::from_secs(5);

impl Unroutable {
    pub(super) fn failure(self, cause: String) -> Failure {
        match self {
            Self::Dead => Failure::dead(cause),
            Self::Wait => Failure::defer(WAIT.mul_f64(jitter()), cause),
        }
    }
}

/// Listens to a typed event.
pub(super) struct Typed<E, L>(L, PhantomData<fn(E)>);

impl<E, L> Typed<E, L> {
    pub(super) fn new(listener: L) -> Self {
        Self(listener, PhantomData)
    }
}

impl<E: Event, L: Listener<E>> ErasedListener for Typed<E, L> {
    fn call<'a>(&'a self, cx: Cx, rules: &'a Rules) -> CallFuture<'a> {
        Box::pin(async move {
            let event = rules.decode::<E>(cx.envelope())?;
            self.0.on_event(event, cx).await
        })
    }
}

/// Takes events as they are.
pub(super) struct Raw<L>(pub(super) L);

impl<L: Listener<Envelope>> ErasedListener for Raw<L> {
    fn call<'a>(&'a self, cx: Cx, _: &'a Rules) -> CallFuture<'a> {
        Box::pin(self.0.on_event(cx.envelope().clone(), cx))
    }
}

/// Where no route leads anywhere.
pub(super) struct Nobody;

impl ErasedListener for Nobody {
    fn call<'a>(&'a self, cx: Cx, rules: &'a Rules) -> CallFuture<'a> {
        let (aggregate, event) = (cx.envelope().aggregate_type(), cx.envelope().event_type());
        let failure = rules.unroutable.failure(format!("no listener for {aggregate}/{event}"));
        Box::pin(async { Err(failure) })
    }
}
