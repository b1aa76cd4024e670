//! Entrances for the fuzzers: what takes texts from outside, and is private.

use crate::connect;
use crate::context::Context;
use crate::envelope::Envelope;
use crate::error::Result;

/// Reads a URL as [`connect`](crate::connect()) does, and connects to nothing.
pub fn read_url(url: &str) -> Result<()> {
    connect::read(url)
}

/// The envelope as an emit in this context writes it.
pub fn fill(context: &Context, envelope: Envelope) -> Result<Envelope> {
    context.fill(envelope)
}

/// The context in which a listener gets the event.
pub fn context_of(envelope: &Envelope) -> Context {
    Context::of(envelope)
}
