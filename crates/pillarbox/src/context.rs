//! The context of the current work, which events carry from the request to the listener.

use crate::envelope::{Envelope, Headers};
use crate::error::Result;

/// The tenant, actor, request, locale and trace of the current work.
///
/// Events emitted inside [`scope`] carry its context. The relay restores the context of an event
/// around its delivery, so events emitted by a listener carry it as well.
///
/// # Examples
/// ```
/// use pillarbox::context::{self, Context};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let request = Context::new().tenant("acme").request_id("r-17");
///
/// context::scope(request, async {
///     assert_eq!(context::current().and_then(|context| context.tenant), Some("acme".into()));
/// })
/// .await;
///
/// assert_eq!(context::current(), None);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// The tenant whose data is processed.
    pub tenant: Option<String>,
    /// The user or service that acts.
    pub actor: Option<String>,
    /// The id of the request.
    pub request_id: Option<String>,
    /// The language and region of the actor.
    pub locale: Option<String>,
    /// The W3C trace context: the trace and the parent span.
    pub traceparent: Option<String>,
    /// The vendor-specific part of the W3C trace context. It is ignored without a `traceparent`.
    pub tracestate: Option<String>,
}

tokio::task_local! {
    static CURRENT: Context;
}

/// Runs a future with this context. Events emitted inside it carry the context.
///
/// # Cancel safety
/// The same as that of the future.
pub async fn scope<F: Future>(context: Context, future: F) -> F::Output {
    CURRENT.scope(context, future).await
}

/// Returns the current context, if there is one.
pub fn current() -> Option<Context> {
    CURRENT.try_with(Clone::clone).ok()
}

// The headers that carry each part. The tenant has a column.
const ACTOR: &str = "actor";
const REQUEST_ID: &str = "request-id";
const LOCALE: &str = "locale";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

impl Context {
    /// Creates an empty context.
    pub fn new() -> Self {
        Self::default()
    }

    /// Sets the tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// Sets the actor.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// Sets the request id.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// Sets the locale.
    #[must_use]
    pub fn locale(mut self, locale: impl Into<String>) -> Self {
        self.locale = Some(locale.into());
        self
    }

    /// Sets the W3C `traceparent`.
    #[must_use]
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// Sets the W3C `tracestate`.
    #[must_use]
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.tracestate = Some(tracestate.into());
        self
    }

    /// Adds the context to an envelope. Values that the envelope already has are kept.
    pub(crate) fn fill(&self, mut envelope: Envelope) -> Result<Envelope> {
        if let (None, Some(tenant)) = (envelope.tenant_id(), &self.tenant) {
            envelope = envelope.tenant(tenant.clone())?;
        }
        for (name, value) in self.headers() {
            if envelope.header_map().get(name).is_none() {
                envelope = envelope.header(name, value)?;
            }
        }
        Ok(self.fill_trace(envelope))
    }

    /// Adds the trace context, unless the envelope has one.
    ///
    /// A trace context often comes from another system. An invalid one is left out, so that it
    /// never fails the caller's transaction.
    fn fill_trace(&self, envelope: Envelope) -> Envelope {
        let Some(parent) = &self.traceparent else { return envelope };
        if envelope.header_map().get(TRACEPARENT).is_some() {
            return envelope;
        }
        let mut headers = envelope.header_map().clone();
        // A `tracestate` without a `traceparent` belongs to an unknown trace.
        headers.remove(TRACESTATE);
        if headers.insert(TRACEPARENT, parent).is_err() {
            return envelope;
        }
        if let Some(state) = &self.tracestate {
            // An invalid `tracestate` is left out.
            let _ = headers.insert(TRACESTATE, state);
        }
        envelope.headers(headers)
    }

    /// Returns the context of an event.
    pub(crate) fn of(envelope: &Envelope) -> Self {
        let headers: &Headers = envelope.header_map();
        let header = |name| headers.get(name).map(str::to_owned);
        Self {
            tenant: envelope.tenant_id().map(str::to_owned),
            actor: header(ACTOR),
            request_id: header(REQUEST_ID),
            locale: header(LOCALE),
            traceparent: header(TRACEPARENT),
            tracestate: header(TRACESTATE),
        }
    }

    /// Returns the `traceparent` of an event.
    pub(crate) fn traceparent_of(envelope: &Envelope) -> Option<&str> {
        envelope.header_map().get(TRACEPARENT)
    }

    fn headers(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(ACTOR, &self.actor), (REQUEST_ID, &self.request_id), (LOCALE, &self.locale)]
            .into_iter()
            .filter_map(|(name, value)| value.as_deref().map(|value| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_keeps_its_own_values() {
        let context = Context::new().tenant("acme").actor("ada").traceparent("00-1-2-01");
        let envelope = Envelope::json("a", &1).unwrap().tenant("own").unwrap();

        let filled = context.fill(envelope).unwrap();

        assert_eq!(filled.tenant_id(), Some("own"));
        assert_eq!(Context::of(&filled), context.tenant("own"));
    }

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_is_stored_with_its_state() {
        let context = Context::new().traceparent(TRACE).tracestate("congo=t61rcWkgMzE");

        let filled = context.fill(Envelope::json("a", &1).unwrap()).unwrap();

        assert_eq!(Context::of(&filled), context);
        assert_eq!(Context::traceparent_of(&filled), Some(TRACE));
    }

    #[test]
    fn a_state_is_never_mixed_into_another_trace() {
        let context = Context::new().traceparent(TRACE).tracestate("congo=t61rcWkgMzE");
        let own = Envelope::json("a", &1).unwrap().header("traceparent", "00-own").unwrap();

        let filled = context.fill(own).unwrap();

        assert_eq!(Context::of(&filled), Context::new().traceparent("00-own"));
        let stray = Context::new().tracestate("congo=t61rcWkgMzE");
        let filled = stray.fill(Envelope::json("a", &1).unwrap()).unwrap();
        assert_eq!(Context::of(&filled), Context::new());
        let own = Envelope::json("a", &1).unwrap().header("tracestate", "of=another").unwrap();
        let filled = Context::new().traceparent(TRACE).fill(own).unwrap();
        assert_eq!(Context::of(&filled), Context::new().traceparent(TRACE));
    }

    #[test]
    fn an_invalid_trace_does_not_fail_the_emit() {
        for bad in ["00-\n".to_owned(), "x".repeat(100_000)] {
            let context = Context::new().actor("ada").traceparent(bad.clone()).tracestate(bad);

            let filled = context.fill(Envelope::json("a", &1).unwrap()).unwrap();

            assert_eq!(Context::of(&filled), Context::new().actor("ada"));
        }
    }
}
