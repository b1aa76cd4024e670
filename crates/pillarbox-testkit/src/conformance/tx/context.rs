//! Context: who acts is written with the event.

use pillarbox::{Context, Envelope, Outbox, context};

use super::{begin, envelope};
use crate::backend::{Backend, OwnTx};

/// Events have the tenant, actor, request, locale and trace of the current context.
pub async fn the_context_lands_in_tenant_and_headers<B: Backend>(backend: &B) {
    let work = async {
        let mut tx = begin(backend).await;
        let first = tx.emit_envelope(envelope(1)).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        let mut own = backend.own().await;
        let second = own.emit(&Outbox::new(), envelope(2)).await.unwrap().unwrap();
        own.commit().await.unwrap();
        [first, second]
    };

    for id in context::scope(request(), work).await {
        let stored = event(backend, &id).await;
        let header = |name| stored.header_map().get(name);
        assert_eq!(stored.tenant_id(), Some("acme"));
        assert_eq!((header("actor"), header("request-id")), (Some("ada"), Some("r-17")));
        assert_eq!((header("locale"), header("traceparent")), (Some("de-CH"), Some("00-1-2-01")));
    }
}

/// The event's own context wins.
pub async fn an_event_keeps_its_own_context<B: Backend>(backend: &B) {
    let own = envelope(1).tenant("own").unwrap().header("actor", "bot").unwrap();
    let work = async {
        let mut tx = begin(backend).await;
        let id = tx.emit_envelope(own).await.unwrap().unwrap();
        tx.commit().await.unwrap();
        id
    };

    let id = context::scope(request(), work).await;

    let stored = event(backend, &id).await;
    assert_eq!((stored.tenant_id(), stored.header_map().get("actor")), (Some("own"), Some("bot")));
    assert_eq!(stored.header_map().get("request-id"), Some("r-17"));
}

/// Without a context nothing is added.
pub async fn no_context_leaves_nothing<B: Backend>(backend: &B) {
    let mut tx = begin(backend).await;
    let id = tx.emit_envelope(envelope(1)).await.unwrap().unwrap();
    tx.commit().await.unwrap();

    let stored = event(backend, &id).await;
    assert_eq!((stored.tenant_id(), stored.header_map().len()), (None, 0));
}

fn request() -> Context {
    let context = Context::new().tenant("acme").actor("ada").request_id("r-17");
    context.locale("de-CH").traceparent("00-1-2-01")
}

async fn event<B: Backend>(backend: &B, id: &pillarbox::EventId) -> Envelope {
    backend.store().event(id).await.unwrap().unwrap().event.unwrap()
}
