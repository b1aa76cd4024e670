//! Odd ids: rows of other programs whose id is no [`EventId`](pillarbox::EventId).

use pillarbox::store::{Action, Changed, Filter, Operated, Operation, Pending, Status};
use pillarbox::{Admin, Progress};

use super::operate::ACTIONS;
use crate::backend::{Backend, Need};
use crate::conformance::owner::{Owner, held};
use crate::run::lacks;

/// Ids that a database may take and an `EventId` cannot be. Each database refuses some of them.
const ODD: [&str; 5] = ["", "order 7", "Bestellung für Ödön", "a\tb", "😀"];

/// Whatever the id looks like, a held event can be replayed, skipped and discarded by its `seq`, its
/// key goes on, and the trail has it under the id.
pub async fn a_held_event_is_operated_on_by_its_seq<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let mut taken = 0;
    for (id, action) in ODD.into_iter().flat_map(|id| ACTIONS.map(|action| (id, action))) {
        let Some(row) = hold(backend, id).await else { continue };
        taken += 1;

        let operation = Operation::of(action, [row.seq]).by("ana").unwrap();
        let operated = backend.store().operate(&operation).await.unwrap();

        let changed = vec![Changed { seq: row.seq, event_id: id.to_owned() }];
        assert_eq!(operated, Operated { matched: 1, changed }, "{action:?} {id:?}");
        let held = backend.store().stats().await.unwrap().held;
        assert_eq!(held, 0, "{action:?} {id:?}: its key goes on");
        let trail = backend.store().audit_trail(id).await.unwrap();
        let last = trail.last().unwrap();
        assert_eq!((&*last.action, last.by.as_deref()), (action.as_str(), Some("ana")), "{id:?}");
        backend.run("delete from outbox_event; delete from outbox_audit").await.unwrap();
    }
    assert!(taken >= ACTIONS.len(), "every database takes one of them");
}

/// A bulk operation reaches every matching event.
pub async fn a_bulk_operation_skips_no_event<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let mut taken = 0;
    for id in ODD {
        taken += u64::from(hold(backend, id).await.is_some());
    }
    let admin = Admin::new(backend.store());

    let walk = admin.operate_matching(Action::Skip, Filter::default());
    assert_eq!(walk.run().await.unwrap(), Progress { matched: taken, changed: taken });

    let dead = Filter { status: Some(Status::Dead), ..Filter::default() };
    assert_eq!(admin.count(&dead).await.unwrap(), taken);
}

/// Writes a row with this id as another program would, and holds it; `None` where it is refused.
async fn hold<B: Backend>(backend: &B, id: &str) -> Option<Pending> {
    let insert = format!(
        "insert into outbox_event (event_id, event_type, payload, partition_key)
        values ('{id}', 'order.placed', '7', 'key of {id}')"
    );
    backend.run(&insert).await.ok()?;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let row = rows.into_iter().find(|row| row.status == Status::New).unwrap();
    assert!(row.event().is_none(), "{id:?} is no event id");
    assert_eq!(owner.settle_one(&row, held()).await.applied, [row.seq]);
    owner.store.leave(&owner.id).await.unwrap();
    Some(row)
}
