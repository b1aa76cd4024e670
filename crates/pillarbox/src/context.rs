//! Who is acting: travels from the request through the event to the listener.

use crate::envelope::{Envelope, Headers};
use crate::error::Result;

/// Tenant, actor, request, locale and trace of the work at hand.
///
/// Give it to [`scope`], and every emit inside picks it up; around a delivery the relay restores
/// it, so that events emitted by a listener carry it on.
///
/// # Examples
/// ```
/// use pillarbox::context::{self, Context};
///
/// # tokio::runtime::Builder::new_current_thread().build()?.block_on(async {
/// let request = Context::new().tenant("acme").request_id("r-17");
///
/// context::scope(request, async {
///     assert_eq!(context::current().and_then(|now| now.tenant), Some("acme".into()));
/// })
/// .await;
///
/// assert_eq!(context::current(), None);
/// # });
/// # Ok::<(), std::io::Error>(())
/// ```
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Context {
    /// Whose data is worked on.
    pub tenant: Option<String>,
    /// Who acts: a user, a service.
    pub actor: Option<String>,
    /// The request this is part of.
    pub request_id: Option<String>,
    /// Language and region of the actor.
    pub locale: Option<String>,
    /// W3C trace context: which trace this is part of, and below which span.
    pub traceparent: Option<String>,
    /// W3C trace context: what tracing systems add to it. Counts only beside a `traceparent`.
    pub tracestate: Option<String>,
}

tokio::task_local! {
    static CURRENT: Context;
}

/// Runs a future with this context; emits inside it pick the context up.
///
/// # Cancel safety
/// As the future's own: dropping one drops the other.
pub async fn scope<F: Future>(context: Context, future: F) -> F::Output {
    CURRENT.scope(context, future).await
}

/// The context of the work at hand, if there is one.
pub fn current() -> Option<Context> {
    CURRENT.try_with(Clone::clone).ok()
}

/// The headers that carry each part, beside `tenant_id`, which has a column.
const ACTOR: &str = "actor";
const REQUEST_ID: &str = "request-id";
const LOCALE: &str = "locale";
const TRACEPARENT: &str = "traceparent";
const TRACESTATE: &str = "tracestate";

impl Context {
    /// Nothing known.
    pub fn new() -> Self {
        Self::default()
    }

    /// With this tenant.
    #[must_use]
    pub fn tenant(mut self, tenant: impl Into<String>) -> Self {
        self.tenant = Some(tenant.into());
        self
    }

    /// With this actor.
    #[must_use]
    pub fn actor(mut self, actor: impl Into<String>) -> Self {
        self.actor = Some(actor.into());
        self
    }

    /// With this request id.
    #[must_use]
    pub fn request_id(mut self, request_id: impl Into<String>) -> Self {
        self.request_id = Some(request_id.into());
        self
    }

    /// With this locale.
    #[must_use]
    pub fn locale(mut self, locale: impl Into<String>) -> Self {
        self.locale = Some(locale.into());
        self
    }

    /// With this W3C trace context.
    #[must_use]
    pub fn traceparent(mut self, traceparent: impl Into<String>) -> Self {
        self.traceparent = Some(traceparent.into());
        self
    }

    /// With this W3C trace state.
    #[must_use]
    pub fn tracestate(mut self, tracestate: impl Into<String>) -> Self {
        self.tracestate = Some(tracestate.into());
        self
    }

    /// The envelope with what it does not say itself.
    pub(crate) fn fill(&self, mut envelope: Envelope) -> Result<Envelope> {
        if let (None, Some(tenant)) = (envelope.tenant_id(), &self.tenant) {
            envelope = envelope.tenant(tenant.clone())?;
        }
        for (name, value) in self.named() {
            if envelope.header_map().get(name).is_none() {
                envelope = envelope.header(name, value)?;
            }
        }
        Ok(self.fill_trace(envelope))
    }

    /// A trace often comes from outside: one that cannot be kept is left out, and never costs the
    /// caller a transaction. An envelope that names its trace keeps it, and a state is of one
    /// trace only.
    fn fill_trace(&self, envelope: Envelope) -> Envelope {
        let Some(parent) = &self.traceparent else { return envelope };
        if envelope.header_map().get(TRACEPARENT).is_some() {
            return envelope;
        }
        let mut headers = envelope.header_map().clone();
        // Without a parent it is of a trace that nobody knows.
        headers.remove(TRACESTATE);
        if headers.insert(TRACEPARENT, parent).is_err() {
            return envelope;
        }
        if let Some(state) = &self.tracestate {
            // Refused, the trace goes on without it.
            let _ = headers.insert(TRACESTATE, state);
        }
        envelope.headers(headers)
    }

    /// The context that an event carries.
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

    /// The trace that an event was emitted in.
    pub(crate) fn traceparent_of(envelope: &Envelope) -> Option<&str> {
        envelope.header_map().get(TRACEPARENT)
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [(ACTOR, &self.actor), (REQUEST_ID, &self.request_id), (LOCALE, &self.locale)]
            .into_iter()
            .filter_map(|(name, value)| value.as_deref().map(|value| (name, value)))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_envelope_keeps_what_it_says_itself() {
        let context = Context::new().tenant("acme").actor("ada").traceparent("00-1-2-01");
        let envelope = Envelope::json("a", &1).unwrap().tenant("own").unwrap();

        let filled = context.fill(envelope).unwrap();

        assert_eq!(filled.tenant_id(), Some("own"));
        assert_eq!(Context::of(&filled), context.tenant("own"));
    }

    const TRACE: &str = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01";

    #[test]
    fn a_trace_travels_with_its_state() {
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
    fn a_trace_that_cannot_be_kept_costs_no_transaction() {
        for bad in ["00-\n".to_owned(), "x".repeat(100_000)] {
            let context = Context::new().actor("ada").traceparent(bad.clone()).tracestate(bad);

            let filled = context.fill(Envelope::json("a", &1).unwrap()).unwrap();

            assert_eq!(Context::of(&filled), Context::new().actor("ada"));
        }
    }
}
