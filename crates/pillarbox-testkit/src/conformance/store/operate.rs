//! Operate: what a human does about dead letters, and to which events it can be done.

use pillarbox::store::{
    Action, Changed, MAX_BATCH, Operated, Operation, Predecessor, Status, StoredEvent, Target,
};
use pillarbox::{ErrorKind, EventId, Seq, Timestamp, Token, Verdict};

use super::audit::said;
use crate::backend::Backend;
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, find, held, id_of, keyed, read_above, read_all, retry, row,
    status, stored,
};

/// Every action there is.
pub(super) const ACTIONS: [Action; 3] = [Action::Replay, Action::Skip, Action::Discard];

/// A replay is for dead and held events; what waits or is done is left alone.
pub async fn a_replay_is_for_dead_and_held_events<B: Backend>(backend: &B) {
    let after = changed(backend, Action::Replay).await;

    assert_eq!(after, [(Status::Dead, Some(Status::New)), (Status::Held, Some(Status::New))]);
}

/// A skip is for held events alone.
pub async fn a_skip_is_for_held_events<B: Backend>(backend: &B) {
    let after = changed(backend, Action::Skip).await;

    assert_eq!(after, [(Status::Held, Some(Status::Dead))]);
}

/// A discard is for dead and held events, and removes them.
pub async fn a_discard_is_for_dead_and_held_events<B: Backend>(backend: &B) {
    let after = changed(backend, Action::Discard).await;

    assert_eq!(after, [(Status::Dead, None), (Status::Held, None)]);
}

/// An id that is asked for twice is answered and noted once.
pub async fn an_id_given_twice_counts_once<B: Backend>(backend: &B) {
    for action in ACTIONS {
        let id = given_up(backend, held()).await;
        let before = token(backend, &id).await;

        let asked = [id.clone(), id.clone(), id.clone()];
        let done = backend.store().operate(&Operation::of(action, asked)).await.unwrap();

        assert_eq!(ids(&done), std::slice::from_ref(&id), "{action:?}");
        assert_eq!(done.matched, 1, "{action:?}");
        assert_eq!(said(backend, &id).await.len(), 2, "{action:?}: giving up, and this");
        if action != Action::Discard {
            assert_eq!(token(backend, &id).await, Token(before.0 + 1));
            backend.store().operate(&Operation::replay([id.clone()])).await.unwrap();
            let owner = Owner::of_all(backend).await;
            owner.settle_event(&id, Verdict::Delete).await;
            owner.store.leave(&owner.id).await.unwrap();
        }
    }
}

/// An operation on nothing, or on nothing that exists, does nothing.
pub async fn no_events_are_no_error<B: Backend>(backend: &B) {
    for action in ACTIONS {
        let unknown = EventId::generate();
        for asked in [vec![], vec![unknown.clone()]] {
            let done = backend.store().operate(&Operation::of(action, asked)).await.unwrap();
            assert_eq!(done, Operated::default());
        }
        assert!(said(backend, &unknown).await.is_empty());
    }
}

/// More than a batch is refused before anything is written.
pub async fn more_than_a_batch_is_refused<B: Backend>(backend: &B) {
    let id = given_up(backend, held()).await;
    for action in ACTIONS {
        let too_many = (0..MAX_BATCH).map(|_| EventId::generate());
        let asked = [id.clone()].into_iter().chain(too_many);

        let refused = backend.store().operate(&Operation::of(action, asked)).await.unwrap_err();

        assert_eq!(refused.kind(), ErrorKind::Invalid);
    }
    assert_eq!(status(backend, &id).await, Some(Status::Held));
    assert_eq!(said(backend, &id).await.len(), 1, "giving up, and nothing since");
}

/// A full batch goes in one call.
pub async fn a_full_batch_goes_in_one_call<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..MAX_BATCH).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    owner.settle(rows.iter().map(|row| owner.settlement(row, held())).collect()).await;

    for action in [Action::Skip, Action::Replay] {
        let operation = Operation::of(action, ids.iter().cloned());
        assert_eq!(backend.store().operate(&operation).await.unwrap().changed.len(), MAX_BATCH);
    }

    assert_eq!(backend.store().stats().await.unwrap().new, MAX_BATCH as u64);
}

/// A verdict under way through the shard finds another token after any operation.
pub async fn a_late_verdict_undoes_no_operation<B: Backend>(backend: &B) {
    for action in ACTIONS {
        let id = emit_one(backend, keyed("a")).await;
        let owner = Owner::of_all(backend).await;
        let rows = owner.read().await;
        owner.settle_one(row(&rows, &id), held()).await;
        let current = backend.store().event(&id).await.unwrap().unwrap();
        backend.store().operate(&Operation::of(action, [id.clone()])).await.unwrap();
        let after = status(backend, &id).await;

        let mut late = owner.settlement(row(&rows, &id), held());
        let repeated = owner.settle(vec![late.clone()]).await;
        late.token = current.token;
        let guessed = owner.settle(vec![late]).await;

        assert!(repeated.applied.is_empty() && guessed.applied.is_empty(), "{action:?}");
        assert_eq!(status(backend, &id).await, after, "{action:?}");
        clear(backend, &owner, &id).await;
    }
}

/// A verdict under way on a claimed row finds another token after any operation.
pub async fn a_late_verdict_on_a_row_undoes_no_operation<B: Backend>(backend: &B) {
    for action in ACTIONS {
        let id = emit_one(backend, keyed("a")).await;
        let claimer = Claimer::new(backend).await;
        let rows = claimer.claim().await;
        assert_eq!(claimer.settle_one(&rows[0], held()).await, seqs(&rows));
        backend.store().operate(&Operation::of(action, [id.clone()])).await.unwrap();
        let after = status(backend, &id).await;

        let repeated = claimer.settle_one(&rows[0], held()).await;

        assert!(repeated.is_empty(), "{action:?}");
        assert_eq!(status(backend, &id).await, after, "{action:?}");
        clear(backend, &Owner::of_all(backend).await, &id).await;
    }
}

/// Replay and skip add one to the token.
pub async fn an_operation_moves_the_token<B: Backend>(backend: &B) {
    let id = given_up(backend, held()).await;
    let before = token(backend, &id).await;

    backend.store().operate(&Operation::skip([id.clone()])).await.unwrap();
    assert_eq!(token(backend, &id).await, Token(before.0 + 1));

    backend.store().operate(&Operation::replay([id.clone()])).await.unwrap();
    assert_eq!(token(backend, &id).await, Token(before.0 + 2));
}

/// A replayed event is due at once with no attempt counted, and still shows its last error.
pub async fn a_replayed_event_starts_over<B: Backend>(backend: &B) {
    for verdict in [dead(), held()] {
        let id = given_up(backend, verdict).await;
        backend.store().operate(&Operation::replay([id.clone()])).await.unwrap();

        let stored = backend.store().event(&id).await.unwrap().unwrap();

        assert_eq!((stored.status, stored.attempts, stored.done_at), (Status::New, 0, None));
        assert_eq!(stored.last_error.as_deref(), Some("no such customer"));
        let claimer = Claimer::new(backend).await;
        let rows = claimer.claim().await;
        assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), [&id], "it is due");
        claimer.settle_one(&rows[0], Verdict::Delete).await;
    }
}

/// A skipped event is a dead letter of the day it was held, and its key goes on.
pub async fn a_skipped_event_frees_its_key<B: Backend>(backend: &B) {
    let first = given_up(backend, held()).await;
    backend.age(&first, HOUR).await;
    let next = emit_one(backend, keyed("a")).await;
    let before = backend.store().event(&first).await.unwrap().unwrap();
    assert_eq!(before_of(backend, before.seq, &next).await, Predecessor::Waiting);
    assert!(Claimer::new(backend).await.claim().await.is_empty());

    backend.store().operate(&Operation::skip([first.clone()])).await.unwrap();

    let after = backend.store().event(&first).await.unwrap().unwrap();
    assert_eq!(plain(&after), StoredPlain { status: Status::Dead, ..plain(&before) });
    assert_eq!(before_of(backend, before.seq, &next).await, Predecessor::Nothing);
    assert!(find(&read_all(backend).await, &first).is_none());
    assert_eq!(id_of(&Claimer::new(backend).await.claim().await[0]), &next);
}

/// A discarded event is gone: its key goes on, and its id can be emitted again.
pub async fn a_discarded_event_frees_its_key_and_its_id<B: Backend>(backend: &B) {
    let first = given_up(backend, held()).await;
    let next = emit_one(backend, keyed("a")).await;
    let seq = backend.store().event(&first).await.unwrap().unwrap().seq;

    backend.store().operate(&Operation::discard([first.clone()])).await.unwrap();

    assert!(backend.store().event(&first).await.unwrap().is_none());
    assert_eq!(before_of(backend, seq, &next).await, Predecessor::Nothing);
    assert_eq!(id_of(&Claimer::new(backend).await.claim().await[0]), &next);
    let again = emit_one(backend, keyed("a").id(first.clone())).await;
    assert_eq!(status(backend, &again).await, Some(Status::New));
}

/// The answer lists exactly the changed events.
pub async fn an_operation_returns_the_changed_events<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..50).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let verdict = |n: usize| if n.is_multiple_of(3) { dead() } else { retry(HOUR) };
    let settlements = ids.iter().enumerate();
    let settlements = settlements.map(|(n, id)| owner.settlement(row(&rows, id), verdict(n)));
    owner.settle(settlements.collect()).await;

    let operation = Operation::replay(ids.iter().cloned());
    let operated = backend.store().operate(&operation).await.unwrap();

    let mut done = self::ids(&operated);
    done.sort();
    let mut expected: Vec<_> = ids.iter().step_by(3).cloned().collect();
    expected.sort();
    assert_eq!(done, expected);
    assert_eq!(operated.matched, done.len() as u64);
    let again = backend.store().operate(&operation).await.unwrap();
    assert_eq!(again, Operated::default(), "once is enough");
}

/// An event is found by its `seq` like by its id, and counts once where it is named by both.
pub async fn an_event_is_found_by_its_seq<B: Backend>(backend: &B) {
    for action in ACTIONS {
        let id = given_up(backend, held()).await;
        let seq = backend.store().event(&id).await.unwrap().unwrap().seq;
        let both = [Target::Seq(seq), Target::Id(id.clone()), Target::Seq(seq)];

        let operated = backend.store().operate(&Operation::of(action, both)).await.unwrap();

        let changed = vec![Changed { seq, event_id: id.to_string() }];
        assert_eq!(operated, Operated { matched: 1, changed }, "{action:?}");
        assert_eq!(said(backend, &id).await.len(), 2, "{action:?}: giving up, and this");
        clear(backend, &Owner::of_all(backend).await, &id).await;
    }
}

/// A dead event in the wrong status counts as matched; any other event does not.
pub async fn unchanged_events_are_counted<B: Backend>(backend: &B) {
    let dead_one = given_up(backend, dead()).await;
    let new_one = emit_one(backend, keyed("b")).await;
    let asked = [dead_one.clone(), new_one, EventId::generate()];

    let skipped = backend.store().operate(&Operation::skip(asked)).await.unwrap();

    assert_eq!(skipped, Operated { matched: 1, changed: vec![] });
    assert_eq!(status(backend, &dead_one).await, Some(Status::Dead));
}

/// The events that were changed.
pub(super) fn ids(operated: &Operated) -> Vec<EventId> {
    operated.changed.iter().map(|it| EventId::new(&it.event_id).unwrap()).collect()
}

/// An event of key `a` that was given up.
pub(super) async fn given_up<B: Backend>(backend: &B, verdict: Verdict) -> EventId {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&id, verdict).await;
    owner.store.leave(&owner.id).await.unwrap();
    id
}

/// Does it to one event in every state, and gives who was changed and into what.
async fn changed<B: Backend>(backend: &B, action: Action) -> Vec<(Status, Option<Status>)> {
    let states = [Status::New, Status::Done, Status::Waiting, Status::Dead, Status::Held];
    let ids = emit(backend, ["new", "done", "retry", "dead", "held"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    for (id, verdict) in ids[1..].iter().zip([Verdict::Done, retry(HOUR), dead(), held()]) {
        owner.settle_event(id, verdict).await;
    }
    let mut before = Vec::new();
    for id in &ids {
        before.push(token(backend, id).await);
    }

    let operation = Operation::of(action, ids.iter().cloned());
    let operated = backend.store().operate(&operation).await.unwrap();

    assert_eq!(operated.matched, 2, "the dead one and the held one");
    let done = self::ids(&operated);
    let mut changed = Vec::new();
    for ((id, state), token_before) in ids.iter().zip(states).zip(before) {
        let after = backend.store().event(id).await.unwrap();
        if done.contains(id) {
            changed.push((state, after.map(|stored| stored.status)));
        } else {
            let after = after.expect("it was not said to be done to this one");
            assert_eq!((after.status, after.token), (state, token_before));
        }
    }
    assert_eq!(done.len(), changed.len());
    changed
}

/// What is before an event, read above this floor.
async fn before_of<B: Backend>(backend: &B, floor: Seq, id: &EventId) -> Predecessor {
    let place = stored(backend, id).await.seq;
    let rows = read_above(backend, floor).await;
    rows.iter().find(|row| row.seq == place).expect("it is read").before
}

async fn token<B: Backend>(backend: &B, id: &EventId) -> Token {
    backend.store().event(id).await.unwrap().unwrap().token
}

/// Removes an event, whatever was done to it, and lets the owner go.
async fn clear<B: Backend>(backend: &B, owner: &Owner, id: &EventId) {
    backend.store().operate(&Operation::discard([id.clone()])).await.unwrap();
    if status(backend, id).await.is_some() {
        owner.settle_event(id, Verdict::Delete).await;
    }
    owner.store.leave(&owner.id).await.unwrap();
}

/// What a skip leaves as it was, but for the status.
#[derive(Debug, PartialEq)]
struct StoredPlain {
    status: Status,
    attempts: u32,
    done_at: Option<Timestamp>,
    last_error: Option<String>,
    settled_by: Option<String>,
}

fn plain(stored: &StoredEvent) -> StoredPlain {
    StoredPlain {
        status: stored.status,
        attempts: stored.attempts,
        done_at: stored.done_at,
        last_error: stored.last_error.clone(),
        settled_by: stored.settled_by.clone(),
    }
}
