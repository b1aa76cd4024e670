//! What a listener knows beside the event itself.

use std::sync::Arc;

use crate::context::Context;
use crate::envelope::Envelope;
use crate::id::EventId;

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
    envelope: Envelope,
    attempt: u32,
    route: Arc<str>,
}

impl Cx {
    pub(crate) fn new(envelope: Envelope, attempt: u32, route: Arc<str>) -> Self {
        Self { envelope, attempt, route }
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

    /// How its listener was registered: `order/order.placed`, `order.*`, `fallback`, or
    /// `unroutable` where there is none.
    ///
    /// There are as many routes as registrations, however many types of events come.
    pub fn route(&self) -> &str {
        &self.route
    }

    pub(crate) fn route_name(&self) -> &Arc<str> {
        &self.route
    }
}
