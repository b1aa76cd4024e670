//! Type-erased listeners.

use std::{marker::PhantomData, pin::Pin, time::Duration};

use serde::{Deserialize, Serialize};

use super::upcast::Upcasters;
use super::{Cx, Listener};
use crate::envelope::Envelope;
use crate::event::Event;
use crate::id::jitter;
use crate::verdict::Failure;

/// The future of a listener call.
pub(crate) type CallFuture<'a> = Pin<Box<dyn Future<Output = Result<(), Failure>> + Send + 'a>>;

/// A listener without its event type, as the relay calls it.
pub(crate) trait ErasedListener: Send + Sync {
    fn call<'a>(&'a self, cx: Cx, rules: &'a Rules) -> CallFuture<'a>;
}

/// The rules shared by all listeners of a relay.
#[derive(Default)]
pub(crate) struct Rules {
    pub(super) upcasters: Upcasters,
    pub(super) unroutable: Unroutable,
}

/// What the relay does with an unroutable event.
///
/// An event is unroutable if it has no listener, or a newer version than its listener supports.
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
    /// Makes it a dead letter on the first attempt, so that the problem is noticed.
    #[default]
    Dead,
    /// Defers it for about five seconds at a time, without counting attempts.
    ///
    /// Use it for rolling upgrades, where another process has the listener already. An event
    /// that never finds a listener waits for ever, and so do the later events of its key.
    Wait,
}

/// The average delay before an unroutable event is delivered again.
const UNROUTABLE_DELAY: Duration = Duration::from_secs(5);

impl Unroutable {
    pub(super) fn failure(self, cause: String) -> Failure {
        match self {
            Self::Dead => Failure::dead(cause),
            Self::Wait => Failure::defer(UNROUTABLE_DELAY.mul_f64(jitter()), cause),
        }
    }
}

/// A listener for a typed event.
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

/// A listener for envelopes.
pub(super) struct Raw<L>(pub(super) L);

impl<L: Listener<Envelope>> ErasedListener for Raw<L> {
    fn call<'a>(&'a self, cx: Cx, _: &'a Rules) -> CallFuture<'a> {
        Box::pin(self.0.on_event(cx.envelope().clone(), cx))
    }
}

/// Fails every delivery: the route of events without a listener.
pub(super) struct NoListener;

impl ErasedListener for NoListener {
    fn call<'a>(&'a self, cx: Cx, rules: &'a Rules) -> CallFuture<'a> {
        let (aggregate, event) = (cx.envelope().aggregate_type(), cx.envelope().event_type());
        let failure = rules.unroutable.failure(format!("no listener for {aggregate}/{event}"));
        Box::pin(async { Err(failure) })
    }
}
