//! A time limit for deliveries.

use std::time::Duration;

use super::{Layer, Next, Outcome, checked};
use crate::listener::Cx;
use crate::verdict::Failure;

/// Stops a delivery that takes too long. The delivery has failed and is retried.
///
/// The relay's own [`delivery_timeout`](crate::RelaySettings::delivery_timeout) still applies. Use
/// this layer with [`only`](super::only) for routes that need a shorter one.
///
/// # Examples
/// ```
/// use std::time::Duration;
/// use pillarbox::layer::{self, Timeout};
///
/// let quick = layer::only("payment.*", Timeout::new(Duration::from_secs(2)))?;
/// # drop(quick);
/// # Ok::<(), pillarbox::Error>(())
/// ```
#[derive(Clone, Copy, Debug)]
pub struct Timeout(Duration);

impl Timeout {
    /// Creates a time limit for the listener and the inner layers.
    ///
    /// # Panics
    /// If it is zero or longer than a year.
    #[track_caller]
    pub fn new(timeout: Duration) -> Self {
        Self(checked("the timeout", timeout))
    }
}

impl Layer for Timeout {
    async fn deliver(&self, _: Cx, next: Next) -> Outcome {
        let timeout = self.0;
        tokio::time::timeout(timeout, next.run()).await.unwrap_or_else(|_| {
            Err(Failure::retry(format!("the delivery took longer than {timeout:?}")))
        })
    }
}
