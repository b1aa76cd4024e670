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
    /// W3C trace context.
    pub traceparent: Option<String>,
}

tokio::task_local! {
    static CURRENT: Context;
}

/// Runs a future with this context; emits inside it pick the context up.
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
        Ok(envelope)
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
        }
    }

    fn named(&self) -> impl Iterator<Item = (&'static str, &str)> {
        [
            (ACTOR, &self.actor),
            (REQUEST_ID, &self.request_id),
            (LOCALE, &self.locale),
            (TRACEPARENT, &self.traceparent),
        ]
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
}
