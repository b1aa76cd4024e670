//! View: dead letters in SQL.

use pillarbox::store::{Action, Operation};
use pillarbox::{Envelope, EventType, Key, Payload, Verdict};

use crate::backend::{Backend, Need};
use crate::conformance::owner::{HOUR, Owner, dead, emit, free, held, keyed, retry};
use crate::run::lacks;

/// Dead letters and held events are in the view, and nothing else is.
pub async fn the_view_shows_dead_and_held_events<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let ids = emit(backend, ["new", "done", "retry", "dead", "held"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in ids[1..].iter().zip([Verdict::Done, retry(HOUR), dead(), held()]) {
        owner.settle_event(id, verdict).await;
    }

    let rows = backend.view().await;

    let shown: Vec<_> = rows.iter().map(|row| (row[1].as_deref(), row[9].as_deref())).collect();
    let expected = [(Some(ids[3].as_str()), Some("3")), (Some(ids[4].as_str()), Some("4"))];
    assert_eq!(shown, expected, "with the number of their status");
}

/// A row of the view has what the event and its last attempt had.
pub async fn the_view_has_the_fields_of_the_row<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let payload = Payload::json_text(r#"{"b": 1.10, "a": "ß"}"#).unwrap();
    let event = Envelope::new(EventType::from_static("order.placed"), payload)
        .version(7)
        .unwrap()
        .aggregate("order", "42")
        .unwrap()
        .key(Key::Given("customer-9".to_owned()))
        .unwrap()
        .tenant("acme")
        .unwrap();
    let ids = emit(backend, [event, free()]).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], dead()).await;
    owner.settle_event(&ids[1], dead()).await;
    let seq =
        async |at: usize| backend.store().event(&ids[at]).await.unwrap().unwrap().seq.0.to_string();

    let rows = backend.view().await;

    let (first, second) = (seq(0).await, seq(1).await);
    let full = [
        Some(&*first),
        Some(ids[0].as_str()),
        Some("order.placed"),
        Some("7"),
        Some("order"),
        Some("42"),
        Some("customer-9"),
        Some("acme"),
        Some(r#"{"b": 1.10, "a": "ß"}"#),
        Some("3"),
        Some("1"),
        Some("no such customer"),
        Some("mailer"),
        None,
    ];
    assert_eq!(plain(&rows[0]), full);
    let global = Some("__GLOBAL__");
    let bare = [Some("mail.sent"), Some("1"), global, None, None, None, Some("7")];
    assert_eq!(plain(&rows[1])[..2], [Some(&*second), Some(ids[1].as_str())]);
    assert_eq!(plain(&rows[1])[2..9], bare);
}

/// A letter that was replayed or discarded is not in the view any more.
pub async fn the_view_drops_events_that_are_no_longer_dead<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let ids = emit(backend, ["a", "b", "c"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    for id in &ids {
        owner.settle_event(id, held()).await;
    }
    let store = backend.store();
    let of = |action, at: usize| Operation::of(action, [ids[at].clone()]);

    store.operate(&of(Action::Replay, 0)).await.unwrap();
    store.operate(&of(Action::Discard, 1)).await.unwrap();
    store.operate(&of(Action::Skip, 2)).await.unwrap();

    let rows = backend.view().await;
    let shown: Vec<_> = rows.iter().map(|row| (row[1].as_deref(), row[9].as_deref())).collect();
    assert_eq!(shown, [(Some(ids[2].as_str()), Some("3"))]);
}

fn plain(row: &[Option<String>]) -> Vec<Option<&str>> {
    row.iter().map(Option::as_deref).collect()
}
