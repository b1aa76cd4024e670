//! Less time than the relay allows.

use std::time::Duration;

use super::{Layer, Next, Outcome, checked};
use crate::listener::Cx;
use crate::verdict::Failure;

/// Stops a delivery that takes too long; it has failed and is retried.
///
/// The relay's own [`delivery_timeout`](crate::RelaySettings::delivery_timeout) still holds: this
/// one is for routes that should be quicker, with [`only`](super::only).
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
    /// No longer than this, layers further in included.
    ///
    /// # Panics
    /// When it is zero or longer than a year.
    #[track_caller]
    pub fn new(longest: Duration) -> Self {
        Self(checked("the timeout", longest))
    }
}

impl Layer for Timeout {
    async fn deliver(&self, _: Cx, next: Next) -> Outcome {
        let longest = self.0;
        tokio::time::timeout(longest, next.run()).await.unwrap_or_else(|_| {
            Err(Failure::retry(format!("the delivery took longer than {longest:?}")))
        })
    }
}
