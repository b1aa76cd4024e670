//! Operators at once: with each other, with relays and with maintenance.

use std::collections::HashSet;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use futures_util::future::{join, join_all, join3, join5};
use pillarbox::store::{
    Action, FAILED_PERMANENT, List, Operation, Pending, Predecessor, Promote, Purge, SEND_FAILED,
    Settle, Status,
};
use pillarbox::{ErrorText, EventId, Result, Store, Verdict};
use tokio::task::yield_now;

use super::audit::said;
use super::operate::ids;
use crate::backend::Backend;
use crate::conformance::claimer::{Claimer, store_apart};
use crate::conformance::owner::{Owner, emit, id_of, keyed, status};

const EVENTS: usize = 300;
const ROUNDS: usize = 40;

/// Two replays of one event at the same moment have one effect, and one line in its trail.
pub async fn two_replays_at_once_have_one_effect<B: Backend>(backend: &B) {
    let (one, two) = join(store_apart(backend), store_apart(backend)).await;
    for id in given_up(backend, dead()).await {
        let before = backend.store().event(&id).await.unwrap().unwrap().token.0;
        let replay = Operation::replay([id.clone()]);

        let (first, second) = join(one.operate(&replay), two.operate(&replay)).await;

        let done = [first, second].map(|operated| ids(&operated.unwrap())).concat();
        assert_eq!(done, std::slice::from_ref(&id));
        let stored = backend.store().event(&id).await.unwrap().unwrap();
        assert_eq!((stored.status, stored.token.0), (Status::New, before + 1));
        assert_eq!(said(backend, &id).await.len(), 2, "giving up, and one replay");
    }
}

/// Different operations on one event at the same moment come one after the other.
pub async fn operations_at_once_come_one_after_the_other<B: Backend>(backend: &B) {
    let (one, two, three) =
        join3(store_apart(backend), store_apart(backend), store_apart(backend)).await;
    for id in given_up(backend, held()).await {
        let [skip, replay, discard] = [Action::Skip, Action::Replay, Action::Discard]
            .map(|action| Operation::of(action, [id.clone()]));

        let (skipped, replayed, discarded) =
            join3(one.operate(&skip), two.operate(&replay), three.operate(&discard)).await;

        let done = [skipped, replayed, discarded].map(|operated| ids(&operated.unwrap())).concat();
        assert_eq!(
            said(backend, &id).await.len(),
            1 + done.len(),
            "each is noted, and nothing else"
        );
        assert_eq!(status(backend, &id).await, told(backend, &id).await.state());
    }
}

/// Replays, skips, purges and verdicts, all at once for a while: every event ends where its
/// trail says, and what waited for delivery was not purged.
pub async fn operators_relays_and_maintenance_do_not_conflict<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..EVENTS).map(|n| keyed(&(n % 200).to_string()))).await;
    let notes = Mutex::new(Notes::default());
    let stores = join_all((0..3).map(|_| store_apart(backend))).await;

    join5(
        claims(backend, &notes),
        reads(backend, &notes),
        operates(&stores[0], Action::Replay, &notes),
        join(
            operates(&stores[1], Action::Replay, &notes),
            operates(&stores[1], Action::Skip, &notes),
        ),
        purges(backend, &stores[2], &ids),
    )
    .await;

    let notes = notes.into_inner().unwrap();
    assert!(notes.operations.len() > ROUNDS, "hardly anything was done");
    for id in &ids {
        let (life, state) = (told(backend, id).await, status(backend, id).await);
        let is_delivered = notes.delivered.contains(id);
        let is_legal = match (life, is_delivered) {
            (Life::New | Life::Retry, true) => matches!(state, None | Some(Status::Done)),
            // A promotion leaves no trace.
            (Life::Retry, false) => matches!(state, Some(Status::Waiting | Status::New)),
            (Life::Dead, false) => matches!(state, None | Some(Status::Dead)),
            (_, false) => state == life.state(),
            (Life::Dead | Life::Held | Life::Gone, true) => false,
        };
        assert!(is_legal, "{id}: {life:?} by its trail, delivered: {is_delivered}, is {state:?}");
        let noted = said(backend, id).await;
        for action in [Action::Replay, Action::Skip] {
            let answers = notes.operations.iter().filter(|it| **it == (action, id.clone()));
            let lines = noted.iter().filter(|line| line.0 == action.as_str());
            assert_eq!(answers.count(), lines.count(), "{id}: {action:?}");
        }
    }
}

/// What the calls have answered.
#[derive(Default)]
struct Notes {
    /// Of the two relays, how many have had all their rounds.
    relays_over: usize,
    delivered: HashSet<EventId>,
    operations: Vec<(Action, EventId)>,
}

/// Where an event is by its trail.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Life {
    New,
    Retry,
    Dead,
    Held,
    Gone,
}

impl Life {
    fn state(self) -> Option<Status> {
        match self {
            Self::New => Some(Status::New),
            Self::Retry => Some(Status::Waiting),
            Self::Dead => Some(Status::Dead),
            Self::Held => Some(Status::Held),
            Self::Gone => None,
        }
    }

    fn then(self, action: &str, error: Option<&str>) -> Self {
        let is_open = matches!(self, Self::New | Self::Retry);
        let is_given_up = matches!(self, Self::Dead | Self::Held);
        match action {
            SEND_FAILED if is_open => Self::Retry,
            FAILED_PERMANENT if is_open && error == Some("held") => Self::Held,
            FAILED_PERMANENT if is_open => Self::Dead,
            "outbox-replayed" if is_given_up => Self::New,
            "outbox-skipped" if self == Self::Held => Self::Dead,
            "outbox-discarded" if is_given_up => Self::Gone,
            _ => panic!("{action} after {self:?}"),
        }
    }
}

async fn told<B: Backend>(backend: &B, id: &EventId) -> Life {
    let trail = said(backend, id).await;
    trail.iter().fold(Life::New, |life, line| life.then(&line.0, line.2.as_deref()))
}

/// A relay that claims rows.
async fn claims<B: Backend>(backend: &B, notes: &Mutex<Notes>) {
    let claimer = Claimer::apart(backend).await;
    for round in 0..ROUNDS {
        let promote = Promote { shards: claimer.shards.clone(), limit: 40 };
        unless_busy(claimer.store.promote(&promote).await);
        let rows = unless_busy(claimer.store.claim(&claimer.request(40)).await);
        yield_now().await;
        let verdicts = rows.iter().enumerate().map(|(n, row)| (row, verdict(n + round)));
        let settled = claimer.settlement(verdicts);
        let applied = unless_busy(claimer.store.settle_rows(&settled).await);
        for (row, written) in rows.iter().zip(&settled.verdicts) {
            if written.verdict == Verdict::Done && applied.contains(&row.seq) {
                notes.lock().unwrap().delivered.insert(id_of(row).clone());
            }
        }
    }
    notes.lock().unwrap().relays_over += 1;
}

/// A relay that reads its shards.
async fn reads<B: Backend>(backend: &B, notes: &Mutex<Notes>) {
    let mut owner = Owner::of_all(backend).await;
    owner.store = store_apart(backend).await;
    let shards: Vec<_> = owner.owned.iter().map(|shard| shard.shard).collect();
    for round in 0..ROUNDS {
        let promote = Promote { shards: shards.clone(), limit: 40 };
        unless_busy(owner.store.promote(&promote).await);
        let can_start = |row: &Pending| row.before == Predecessor::Nothing;
        let rows: Vec<_> = owner.read().await.into_iter().filter(can_start).take(40).collect();
        yield_now().await;
        let settlements: Vec<_> = rows
            .iter()
            .enumerate()
            .map(|(n, row)| owner.settlement(row, verdict(2 * n + round)))
            .collect();
        let settle = Settle { owner: owner.id.clone(), settlements };
        let applied = unless_busy(owner.store.settle(&settle).await).applied;
        for (row, written) in rows.iter().zip(&settle.settlements) {
            if written.verdict == Verdict::Done && applied.contains(&row.seq) {
                notes.lock().unwrap().delivered.insert(id_of(row).clone());
            }
        }
    }
    notes.lock().unwrap().relays_over += 1;
}

/// Only a round with something to operate on counts, as long as there can be more of them.
async fn operates(store: &Arc<dyn Store>, action: Action, notes: &Mutex<Notes>) {
    let mut rounds = 0;
    while rounds < ROUNDS {
        let are_over = notes.lock().unwrap().relays_over == 2;
        let letters = store.dead_letters(&List::default()).await.unwrap();
        rounds += usize::from(are_over || !letters.is_empty());
        yield_now().await;
        let seqs = letters.into_iter().map(|letter| letter.seq);
        let done = unless_busy(store.operate(&Operation::of(action, seqs)).await);
        notes.lock().unwrap().operations.extend(ids(&done).into_iter().map(|id| (action, id)));
    }
}

async fn purges<B: Backend>(backend: &B, store: &Arc<dyn Store>, ids: &[EventId]) {
    for round in 0..ROUNDS {
        // Where the clock stands still, this turns it.
        backend.age(&ids[round % ids.len()], Duration::from_millis(1)).await;
        unless_busy(store.purge(&Purge::dead(Duration::ZERO).limit(2)).await);
        unless_busy(store.purge(&Purge::done(Duration::ZERO).limit(2)).await);
        yield_now().await;
    }
}

/// What calls that wait for each other in a circle are told may pass: then nothing was done.
fn unless_busy<T: Default>(result: Result<T>) -> T {
    result.unwrap_or_else(|error| {
        assert!(error.is_transient(), "{error}");
        T::default()
    })
}

fn verdict(n: usize) -> Verdict {
    match n % 7 {
        0 => Verdict::Done,
        1 | 2 => Verdict::Retry { delay: Duration::ZERO, error: ErrorText::new("again") },
        3 | 4 => dead(),
        _ => held(),
    }
}

fn dead() -> Verdict {
    Verdict::Dead { error: ErrorText::new("dead") }
}

fn held() -> Verdict {
    Verdict::Held { error: ErrorText::new("held") }
}

/// Twenty events that were given up.
async fn given_up<B: Backend>(backend: &B, verdict: Verdict) -> Vec<EventId> {
    let ids = emit(backend, (0..20).map(|n| keyed(&n.to_string()))).await;
    let claimer = Claimer::new(backend).await;
    let rows = claimer.claim().await;
    claimer.settle(rows.iter().map(|row| (row, verdict.clone()))).await;
    ids
}
