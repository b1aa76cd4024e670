//! A tracing span around every delivery, with the trace context of the event.

use tracing::{Instrument, field::Empty, info_span};

use super::{Layer, Next, Outcome};
use crate::listener::Cx;
use crate::verdict::Next as Action;

/// Creates a `tracing` span named `deliver` around every delivery.
///
/// Its fields are `event_id`, `event_type`, `route`, `attempt` and `outcome`, and from the event's
/// W3C trace context `trace_id` and `parent_id`. To set a parent for OpenTelemetry, add a layer
/// after this one: there the span is the current one, and [`Cx::context`] has the trace context.
///
/// # Examples
/// ```
/// use pillarbox::layer::TraceSpan;
/// use pillarbox::{Listeners, MemoryStore, Relay};
///
/// let relay = Relay::new(MemoryStore::new(), Listeners::new()).layer(TraceSpan);
/// # drop(relay);
/// ```
#[derive(Clone, Copy, Debug)]
pub struct TraceSpan;

impl Layer for TraceSpan {
    async fn deliver(&self, cx: Cx, next: Next) -> Outcome {
        let span = info_span!(
            "deliver",
            event_id = %cx.id(),
            event_type = %cx.envelope().event_type(),
            route = cx.route(),
            attempt = cx.attempt(),
            trace_id = Empty,
            parent_id = Empty,
            outcome = Empty,
        );
        let context = cx.context();
        if let Some((trace_id, parent_id)) = context.traceparent.as_deref().and_then(parse) {
            span.record("trace_id", trace_id).record("parent_id", parent_id);
        }
        let outcome = next.run().instrument(span.clone()).await;
        span.record("outcome", label(&outcome));
        outcome
    }
}

fn label(outcome: &Outcome) -> &'static str {
    match outcome.as_ref().map_err(|failure| failure.next()) {
        Ok(()) => "done",
        Err(Action::Retry | Action::RetryAfter(_)) => "retry",
        Err(Action::Defer(_)) => "defer",
        Err(Action::Dead) => "dead",
    }
}

/// Returns the trace id and the parent id of `00-<32 hex>-<16 hex>-<2 hex>`. Later versions may
/// append more.
///
/// Any other text is untrusted input and must not appear in logs.
fn parse(traceparent: &str) -> Option<(&str, &str)> {
    let mut parts = traceparent.split('-');
    let version = hex(parts.next()?, 2)?;
    let trace_id = hex(parts.next()?, 32)?;
    let parent_id = hex(parts.next()?, 16)?;
    hex(parts.next()?, 2)?;
    let is_whole = version != "00" || parts.next().is_none();
    let is_set = |id: &str| id.bytes().any(|digit| digit != b'0');
    (version != "ff" && is_whole && is_set(trace_id) && is_set(parent_id))
        .then_some((trace_id, parent_id))
}

fn hex(part: &str, length: usize) -> Option<&str> {
    let is_hex = |byte| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    (part.len() == length && part.bytes().all(is_hex)).then_some(part)
}

#[cfg(test)]
mod tests {
    use std::fmt::Debug;
    use std::sync::{Arc, Mutex};

    use tracing::field::{Field, Visit};
    use tracing::span::{Attributes, Id, Record};
    use tracing::{Event, Metadata, Subscriber};

    use super::*;
    use crate::layer::tests::{Around, event, failing};

    const TRACE: &str = "4bf92f3577b34da6a3ce929d0e0e4736";
    const PARENT: &str = "00f067aa0ba902b7";

    #[test]
    fn only_a_valid_trace_context_is_parsed() {
        assert_eq!(parse(&format!("00-{TRACE}-{PARENT}-01")), Some((TRACE, PARENT)));
        assert_eq!(parse(&format!("cc-{TRACE}-{PARENT}-01-more")), Some((TRACE, PARENT)));

        let zeros = "0".repeat(32);
        for wrong in [
            String::new(),
            format!("00-{TRACE}-{PARENT}"),
            format!("00-{TRACE}-{PARENT}-01-more"),
            format!("ff-{TRACE}-{PARENT}-01"),
            format!("00-{zeros}-{PARENT}-01"),
            format!("00-{}-{PARENT}-01", TRACE.to_uppercase()),
            format!("00-{TRACE}-{PARENT}ß-01"),
        ] {
            assert_eq!(parse(&wrong), None, "{wrong}");
        }
    }

    /// Records the fields of spans, and when they are entered.
    #[derive(Clone, Default)]
    struct Recorder(Arc<Mutex<Vec<String>>>);

    impl Visit for Recorder {
        fn record_debug(&mut self, field: &Field, value: &dyn Debug) {
            self.0.lock().unwrap().push(format!("{field}={value:?}").replace('"', ""));
        }
    }

    impl Subscriber for Recorder {
        fn enabled(&self, _: &Metadata<'_>) -> bool {
            true
        }

        fn new_span(&self, span: &Attributes<'_>) -> Id {
            span.record(&mut self.clone());
            Id::from_u64(1)
        }

        fn record(&self, _: &Id, values: &Record<'_>) {
            values.record(&mut self.clone());
        }

        fn record_follows_from(&self, _: &Id, _: &Id) {}

        fn event(&self, _: &Event<'_>) {}

        fn enter(&self, _: &Id) {
            self.0.lock().unwrap().push("enter".to_owned());
        }

        fn exit(&self, _: &Id) {
            self.0.lock().unwrap().push("exit".to_owned());
        }
    }

    #[tokio::test]
    async fn the_span_has_the_trace_of_the_event_and_the_outcome() {
        let recorder = Recorder::default();
        let _guard = tracing::subscriber::set_default(recorder.clone());
        let envelope = event().header("traceparent", format!("00-{TRACE}-{PARENT}-01")).unwrap();

        let outcome = Around::layer(TraceSpan).deliver_event(envelope, "a", failing).await;

        assert!(outcome.is_err());
        let records = recorder.0.lock().unwrap().clone();
        for part in ["route=a", "attempt=1", &format!("trace_id={TRACE}"), "enter", "outcome=retry"]
        {
            assert!(records.iter().any(|record| record == part), "{part} is not in {records:?}");
        }
        let parent = format!("parent_id={PARENT}");
        let position = |record: &str| records.iter().position(|other| other == record);
        assert!(position(&parent) < position("enter"), "{records:?}");
    }
}
