//! Layers made from a function, and layers for matching events only.

use tracing::warn;

use super::{Layer, Next, Outcome};
use crate::error::{Error, Result};
use crate::listener::{Cx, Pattern};
use crate::verdict::{ErrorText, Failure};

/// Creates a layer that runs a hook before the listener. If the hook fails, the listener is not
/// called.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::{Cx, Failure, layer};
///
/// let quota = layer::before(|cx: Cx| async move {
///     match cx.envelope().tenant_id() {
///         Some("blocked") => Err(Failure::defer(Duration::from_secs(60), "over quota")),
///         _ => Ok(()),
///     }
/// });
/// # let _ = pillarbox::Relay::new(pillarbox::MemoryStore::new(), pillarbox::Listeners::new()).layer(quota);
/// ```
pub fn before<F, Fut, X>(hook: F) -> impl Layer
where
    F: Fn(Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), X>> + Send,
    X: Into<Failure> + Send + 'static,
{
    Before(hook)
}

struct Before<F>(F);

impl<F, Fut, X> Layer for Before<F>
where
    F: Fn(Cx) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), X>> + Send,
    X: Into<Failure> + Send + 'static,
{
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        (self.0)(cx).await.map_err(Into::into)?;
        next.run().await
    }
}

/// Creates a layer that runs a hook after the listener, with the outcome of the delivery. A failure
/// of the hook is only logged.
///
/// The hook runs before the verdict is written, so the event may still be delivered again. It also
/// receives failures of inner layers.
///
/// # Examples
/// ```
/// use pillarbox::{Cx, ErrorText, Failure, layer};
///
/// let log = layer::after(|cx: Cx, outcome: Result<(), ErrorText>| async move {
///     println!("{}: {:?}", cx.id(), outcome.err());
///     Ok::<_, Failure>(())
/// });
/// # let _ = pillarbox::Relay::new(pillarbox::MemoryStore::new(), pillarbox::Listeners::new()).layer(log);
/// ```
pub fn after<F, Fut, X>(hook: F) -> impl Layer
where
    F: Fn(Cx, Result<(), ErrorText>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), X>> + Send,
    X: Into<Failure> + Send + 'static,
{
    After(hook)
}

struct After<F>(F);

impl<F, Fut, X> Layer for After<F>
where
    F: Fn(Cx, Result<(), ErrorText>) -> Fut + Send + Sync + 'static,
    Fut: Future<Output = Result<(), X>> + Send,
    X: Into<Failure> + Send + 'static,
{
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let outcome = next.run().await;
        let result = match &outcome {
            Ok(()) => Ok(()),
            Err(failure) => Err(ErrorText::new(&failure.to_string())),
        };
        let event_id = cx.id().clone();
        if let Err(failure) = (self.0)(cx, result).await.map_err(Into::into) {
            warn!(%event_id, error = %failure, "`after` hook failed, the delivery is not affected");
        }
        outcome
    }
}

/// Creates a layer that applies `layer` to the events that match a pattern, and no others.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::layer::{self, Timeout};
///
/// let quick = layer::only("payment.*", Timeout::new(Duration::from_secs(2)))?;
/// # let _ = pillarbox::Relay::new(pillarbox::MemoryStore::new(), pillarbox::Listeners::new()).layer(quick);
/// # Ok::<(), pillarbox::Error>(())
/// ```
///
/// # Errors
/// [`ErrorKind::Invalid`](crate::ErrorKind::Invalid) when the pattern is invalid.
pub fn only<L: Layer>(
    pattern: impl TryInto<Pattern, Error: Into<Error>>,
    layer: L,
) -> Result<impl Layer> {
    Ok(Only { pattern: pattern.try_into().map_err(Into::into)?, layer })
}

struct Only<L> {
    pattern: Pattern,
    layer: L,
}

impl<L: Layer> Layer for Only<L> {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        if self.pattern.matches(cx.envelope()) {
            self.layer.deliver(cx, next).await
        } else {
            next.run().await
        }
    }
}
