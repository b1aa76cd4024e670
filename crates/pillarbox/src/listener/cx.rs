//! The context of a delivery.

use std::sync::Arc;

use crate::context::Context;
use crate::envelope::Envelope;
use crate::id::EventId;

/// The context of one delivery: the event's envelope, the attempt and the route.
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
    envelope: Envelope,
    attempt: u32,
    route: Arc<str>,
}

impl Cx {
    pub(crate) fn new(envelope: Envelope, attempt: u32, route: Arc<str>) -> Self {
        Self { envelope, attempt, route }
    }

    /// Returns the event's id. It is the same on every attempt: use it to deduplicate.
    pub fn id(&self) -> &EventId {
        self.envelope.event_id()
    }

    /// Returns the number of this attempt, starting at 1.
    pub fn attempt(&self) -> u32 {
        self.attempt
    }

    /// Returns the event's envelope.
    pub fn envelope(&self) -> &Envelope {
        &self.envelope
    }

    /// Returns the context in which the event was emitted.
    pub fn context(&self) -> Context {
        Context::of(&self.envelope)
    }

    /// Returns the route, the name under which the listener was registered: `order/order.placed`,
    /// `order.*`, `fallback`, or `unroutable` if there is no listener.
    ///
    /// There are as many routes as registered listeners, however many event types there are.
    pub fn route(&self) -> &str {
        &self.route
    }

    pub(crate) fn route_name(&self) -> &Arc<str> {
        &self.route
    }
}
