//! The context of a request, whose parts a stranger may have sent.

use pillarbox::{Context, Envelope, ErrorKind, Headers, fuzzing};

use crate::field::{Fields, joined, repeated};
use crate::sound::assert_sound;

/// An envelope keeps what it says, a trace never costs an emit, and no trace is mixed with another.
pub fn run(data: &[u8]) {
    let mut fields = Fields::of(data);
    let context = Context {
        tenant: fields.text(),
        actor: fields.text(),
        request_id: fields.text(),
        locale: fields.text(),
        traceparent: fields.text(),
        tracestate: fields.text(),
    };
    let Some(envelope) = envelope(&mut fields) else { return };
    assert_trace_is_free(&context, &envelope);
    match fuzzing::fill(&context, envelope.clone()) {
        Ok(filled) => {
            assert_sound(&filled);
            assert_kept(&envelope, &filled);
            assert_one_trace(&context, &envelope, &filled);
        }
        Err(error) => assert_eq!(error.kind(), ErrorKind::Invalid, "{error}"),
    }
}

fn envelope(fields: &mut Fields<'_>) -> Option<Envelope> {
    let envelope = Envelope::json("a", &1).ok()?;
    let envelope = match fields.text() {
        Some(tenant) => envelope.tenant(tenant).ok()?,
        None => envelope,
    };
    match fields.text() {
        Some(headers) => Some(envelope.headers(Headers::from_json(&headers).ok()?)),
        None => Some(envelope),
    }
}

fn assert_trace_is_free(context: &Context, envelope: &Envelope) {
    let trace = Context {
        traceparent: context.traceparent.clone(),
        tracestate: context.tracestate.clone(),
        ..Context::new()
    };
    let filled = fuzzing::fill(&trace, envelope.clone());
    assert_sound(&filled.expect("a trace costs no transaction"));
}

fn assert_kept(envelope: &Envelope, filled: &Envelope) {
    if envelope.tenant_id().is_some() {
        assert_eq!(filled.tenant_id(), envelope.tenant_id());
    }
    let state = |name: &&str| *name != "tracestate";
    for name in envelope.header_map().iter().map(|(name, _)| name).filter(state) {
        assert_eq!(filled.header_map().get(name), envelope.header_map().get(name), "{name}");
    }
}

fn assert_one_trace(context: &Context, envelope: &Envelope, filled: &Envelope) {
    let (before, after) = (fuzzing::context_of(envelope), fuzzing::context_of(filled));
    if after.traceparent == before.traceparent {
        assert_eq!(after.tracestate, before.tracestate, "a state of another trace");
        return;
    }
    assert_eq!(after.traceparent, context.traceparent);
    let own = after.tracestate.is_none() || after.tracestate == context.tracestate;
    assert!(own, "a state of another trace: {after:?}");
}

/// A whole context, parts that cannot be kept, and envelopes that say something themselves.
pub fn seeds() -> Vec<Vec<u8>> {
    let parent = Some("00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-01");
    let who = [Some("acme"), Some("ada"), Some("r-17"), Some("de-AT")];
    let with = |rest: &[Option<&'static str>]| joined(who.iter().chain(rest).copied());
    let full: String = (0..99).map(|n| format!(r#""h{n}":"","#)).collect();
    let full = format!(r#"{{{full}"h":""}}"#);
    vec![
        with(&[parent, Some("congo=t61rcWkgMzE")]),
        with(&[parent, Some("a\nb"), Some("own")]),
        with(&[parent, Some("s"), None, Some(r#"{"traceparent":"00-own","tracestate":"t"}"#)]),
        with(&[None, Some("stray"), None, Some(r#"{"actor":"eve","tracestate":"t"}"#)]),
        joined([None, None, None, None, parent, None, None, Some(&full)]),
        [joined([None; 4]), vec![0xff], repeated("x", 100), vec![0xff], repeated("y", 90)].concat(),
    ]
}
