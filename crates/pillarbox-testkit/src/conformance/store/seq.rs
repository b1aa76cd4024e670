//! Seq: each `seq` is used once.

use pillarbox::{ErrorKind, EventId, Listeners, Maintenance, Relay, Seq, Verdict};

use crate::backend::{Backend, Need};
use crate::conformance::owner::{Owner, emit, emit_one, free};
use crate::run::lacks;

/// Every later insert has a greater seq, in one transaction and across.
pub async fn seq_grows_with_every_insert<B: Backend>(backend: &B) {
    let mut ids = emit(backend, (0..20).map(|_| free())).await;
    for _ in 0..5 {
        ids.extend(emit(backend, [free(), free()]).await);
    }

    let mut seqs = Vec::new();
    for id in &ids {
        seqs.push(seq(backend, id).await);
    }

    assert!(seqs.is_sorted_by(|one, next| one < next), "{seqs:?}");
    assert!(seqs[0] > Seq::START);
}

/// The seq of the newest row is not given out again when that row is deleted.
pub async fn a_deleted_seq_is_never_used_again<B: Backend>(backend: &B) {
    let owner = Owner::of_all(backend).await;
    let mut last = Seq::START;
    for _ in 0..3 {
        let id = emit_one(backend, free()).await;
        let now = seq(backend, &id).await;
        assert!(now > last, "{now:?} after {last:?}");
        owner.settle_event(&id, Verdict::Delete).await;
        last = now;
    }
}

/// A database that begins to count anew is refused, until the statement in the message was run. How
/// far it had come, maintenance has marked.
pub async fn a_seq_that_was_set_back_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let ids = emit(backend, (0..20).map(|_| free())).await;
    let (store, newest) = (backend.store(), seq(backend, ids.last().unwrap()).await);
    let mut maintenance = Maintenance::new(backend.store()).tick().unwrap();
    maintenance.run_due().await.unwrap();
    store.config().await.unwrap();

    for emits in [0, 3] {
        backend.restart_seq().await;
        emit(backend, (0..emits).map(|_| free())).await;
        // What was marked is not forgotten.
        store.mark_seq().await.unwrap();

        let refused = store.config().await.unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::Configuration, "{refused}");
        let relay = Relay::new(backend.store(), Listeners::new());
        assert_eq!(relay.spawn().await.unwrap_err().kind(), ErrorKind::Configuration);
        let message = refused.to_string();
        let (_, repair) = message.split_once("then run: ").unwrap();
        backend.run(repair).await.unwrap();
        store.config().await.unwrap();
        let id = emit_one(backend, free()).await;
        assert!(seq(backend, &id).await > newest, "{repair}");
    }
}

async fn seq<B: Backend>(backend: &B, id: &EventId) -> Seq {
    backend.store().event(id).await.unwrap().unwrap().seq
}
