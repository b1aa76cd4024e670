//! Entry points for the fuzzers: private parsers of untrusted input.

use crate::connect;
use crate::context::Context;
use crate::envelope::Envelope;
use crate::error::Result;

/// Parses a URL as [`connect`](crate::connect()) does, without connecting.
pub fn read_url(url: &str) -> Result<()> {
    connect::read(url)
}

/// Adds a context to an envelope, as an emit does.
pub fn fill(context: &Context, envelope: Envelope) -> Result<Envelope> {
    context.fill(envelope)
}

/// Returns the context in which a listener receives an event.
pub fn context_of(envelope: &Envelope) -> Context {
    Context::of(envelope)
}
