//! Audit: what failed and what was done about it, for the one who asks later.

use std::time::Duration;

use pillarbox::store::{
    Action, AuditEntry, FAILED_PERMANENT, MAX_BATCH, Operation, Promote, SEND_FAILED, Status,
};
use pillarbox::{ErrorText, EventId, MAX_ERROR_TEXT, Verdict};

use super::operate::{ACTIONS, given_up};
use crate::backend::Backend;
use crate::conformance::owner::{
    Owner, dead, emit, emit_one, held, keyed, replay, retry, row, status,
};

/// Every failed attempt is noted with its number and its cause, oldest first.
pub async fn failed_attempts_are_counted_in_the_trail<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    for cause in ["first", "second"] {
        let error = ErrorText::new(cause);
        owner.settle_event(&id, Verdict::Retry { delay: Duration::ZERO, error }).await;
    }
    owner.settle_event(&id, dead()).await;

    let trail = said(backend, &id).await;

    let expected = [
        (SEND_FAILED, 1, Some("first")),
        (SEND_FAILED, 2, Some("second")),
        (FAILED_PERMANENT, 3, Some("no such customer")),
    ];
    assert_eq!(trail, expected.map(|(action, n, error)| line(action, n, error)));
}

/// Giving up is noted the same way, whether the event holds its key or not.
pub async fn giving_up_is_audited<B: Backend>(backend: &B) {
    for verdict in [dead(), held()] {
        let id = given_up(backend, verdict).await;

        let trail = said(backend, &id).await;

        assert_eq!(trail, [line(FAILED_PERMANENT, 1, Some("no such customer"))]);
        backend.store().operate(&Operation::discard([id])).await.unwrap();
    }
}

/// A delivery, and one that is put off, leave nothing.
pub async fn verdicts_without_a_failure_are_not_audited<B: Backend>(backend: &B) {
    let defer = Verdict::Defer { delay: Duration::ZERO, error: ErrorText::new("later") };
    let ids = emit(backend, ["done", "delete", "defer"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;

    for (id, verdict) in ids.iter().zip([Verdict::Done, Verdict::Delete, defer]) {
        owner.settle_event(id, verdict).await;
        assert!(said(backend, id).await.is_empty());
    }
}

/// The failures of a batch are audited, each with its own error.
pub async fn only_the_failures_of_a_mixed_batch_are_audited<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..30).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let error = |n: usize| ErrorText::new(&format!("cause {n}"));
    let verdict = |n: usize| match n % 3 {
        0 => Verdict::Done,
        1 => Verdict::Retry { delay: Duration::ZERO, error: error(n) },
        _ => Verdict::Dead { error: error(n) },
    };
    let settlements = ids.iter().enumerate();
    let settlements = settlements.map(|(n, id)| owner.settlement(row(&rows, id), verdict(n)));

    owner.settle(settlements.collect()).await;

    for (n, id) in ids.iter().enumerate() {
        let cause = format!("cause {n}");
        let expected = match n % 3 {
            0 => vec![],
            1 => vec![line(SEND_FAILED, 1, Some(&cause))],
            _ => vec![line(FAILED_PERMANENT, 1, Some(&cause))],
        };
        assert_eq!(said(backend, id).await, expected, "event {n}");
    }
}

/// A verdict that a fence stops is not noted.
pub async fn a_fenced_verdict_is_not_audited<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let stale = Owner::of_all(backend).await;
    let rows = stale.read().await;
    let mut successor = Owner::joined(backend).await;
    backend.expire(&stale.id).await;
    successor.acquire(u16::MAX).await;
    stale.settle_one(&rows[0], dead()).await;
    assert!(said(backend, &id).await.is_empty(), "another holds the shard");

    successor.settle_one(&rows[0], retry(Duration::ZERO)).await;
    successor.settle_one(&rows[0], retry(Duration::ZERO)).await;

    assert_eq!(said(backend, &id).await.len(), 1, "the second had an old token");
}

/// A cause is noted up to the limit, whole characters only.
pub async fn a_long_cause_is_truncated_in_the_audit_trail<B: Backend>(backend: &B) {
    let error = ErrorText::new(&format!("\0{}", "ß🦀".repeat(2500)));
    let id = given_up(backend, Verdict::Dead { error }).await;

    let trail = said(backend, &id).await;

    assert_eq!(trail[0].2.as_deref(), Some(&*"ß🦀".repeat(MAX_ERROR_TEXT / 2)));
}

/// Every operation is noted, with the attempts before it, who did it and why.
pub async fn every_operation_is_audited<B: Backend>(backend: &B) {
    for action in ACTIONS {
        let id = given_up(backend, held()).await;
        let operation = Operation::of(action, [id.clone()])
            .by("ana \"the\" ß🦀")
            .unwrap()
            .reason("line one\nline two \\ {}")
            .unwrap();

        backend.store().operate(&operation).await.unwrap();

        let trail = backend.store().audit_trail(id.as_str()).await.unwrap();
        let entry = trail.last().unwrap();
        assert_eq!((&*entry.action, entry.attempts), (action.as_str(), 1));
        assert_eq!(entry.error, None);
        assert_eq!(entry.by.as_deref(), Some("ana \"the\" ß🦀"));
        assert_eq!(entry.reason.as_deref(), Some("line one\nline two \\ {}"));
        assert!(entry.at >= trail[0].at);
        remove(backend, &id).await;
    }
}

/// Who and why at their limits come back; what was not said is not there.
pub async fn who_and_why_may_be_long_or_absent<B: Backend>(backend: &B) {
    let id = given_up(backend, held()).await;
    let (by, reason) = ("🦀".repeat(256), "🦀".repeat(1000));
    let long = Operation::skip([id.clone()]).by(&*by).unwrap().reason(&*reason).unwrap();

    backend.store().operate(&long).await.unwrap();
    backend.store().operate(&Operation::replay([id.clone()])).await.unwrap();

    let trail = backend.store().audit_trail(id.as_str()).await.unwrap();
    assert_eq!((trail[1].by.as_ref(), trail[1].reason.as_ref()), (Some(&by), Some(&reason)));
    assert_eq!((trail[2].by.as_ref(), trail[2].reason.as_ref()), (None, None));
}

/// An operation that could not be done is not noted.
pub async fn operations_without_effect_are_not_audited<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;

    for action in ACTIONS {
        backend.store().operate(&Operation::of(action, [id.clone()])).await.unwrap();
    }

    assert!(said(backend, &id).await.is_empty());
}

/// A trail is that of one event.
pub async fn a_trail_is_of_one_event<B: Backend>(backend: &B) {
    let ids = emit(backend, ["a", "b"].map(keyed)).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], retry(Duration::ZERO)).await;
    owner.settle_event(&ids[1], dead()).await;
    owner.settle_event(&ids[0], dead()).await;

    assert_eq!(actions(backend, &ids[0]).await, [SEND_FAILED, FAILED_PERMANENT]);
    assert_eq!(actions(backend, &ids[1]).await, [FAILED_PERMANENT]);
    assert!(said(backend, &EventId::generate()).await.is_empty());
}

/// A trail outlives its event, and goes on when the id comes back.
pub async fn a_trail_outlives_its_event<B: Backend>(backend: &B) {
    let id = given_up(backend, dead()).await;
    backend.store().operate(&Operation::discard([id.clone()])).await.unwrap();
    let gone = [FAILED_PERMANENT, Action::Discard.as_str()];
    assert_eq!(actions(backend, &id).await, gone);

    emit_one(backend, keyed("a").id(id.clone())).await;
    Owner::of_all(backend).await.settle_event(&id, retry(Duration::ZERO)).await;

    assert_eq!(actions(backend, &id).await, [gone[0], gone[1], SEND_FAILED]);
}

/// A life after a replay counts its attempts from one.
pub async fn attempts_count_anew_after_a_replay<B: Backend>(backend: &B) {
    let id = given_up(backend, dead()).await;
    replay(&*backend.store(), std::slice::from_ref(&id)).await;

    Owner::of_all(backend).await.settle_event(&id, retry(Duration::ZERO)).await;

    let attempts: Vec<_> = said(backend, &id).await.into_iter().map(|said| said.1).collect();
    assert_eq!(attempts, [1, 1, 1], "given up, replayed, failed");
}

/// Of a long trail the newest entries are returned.
pub async fn a_long_trail_gives_its_newest_entries<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let owner = Owner::of_all(backend).await;
    let mut row = owner.read().await.remove(0);
    let promote = Promote { shards: vec![row.shard], limit: 1 };
    for _ in 0..MAX_BATCH + 5 {
        owner.settle_one(&row, retry(Duration::ZERO)).await;
        owner.store.promote(&promote).await.unwrap();
        row.token.0 += 1;
    }

    let attempts: Vec<_> = said(backend, &id).await.into_iter().map(|said| said.1).collect();

    let last = u32::try_from(MAX_BATCH).unwrap() + 5;
    assert_eq!(attempts, (6..=last).collect::<Vec<_>>());
}

/// Action, attempts and cause of every entry about an event.
pub(super) async fn said<B: Backend>(
    backend: &B,
    id: &EventId,
) -> Vec<(String, u32, Option<String>)> {
    let trail = backend.store().audit_trail(id.as_str()).await.unwrap();
    let said = |entry: AuditEntry| (entry.action, entry.attempts, entry.error);
    trail.into_iter().map(said).collect()
}

pub(super) async fn actions<B: Backend>(backend: &B, id: &EventId) -> Vec<String> {
    said(backend, id).await.into_iter().map(|said| said.0).collect()
}

pub(super) fn line(
    action: &str,
    attempts: u32,
    error: Option<&str>,
) -> (String, u32, Option<String>) {
    (action.to_owned(), attempts, error.map(str::to_owned))
}

/// Removes an event, whatever was done to it.
async fn remove<B: Backend>(backend: &B, id: &EventId) {
    if status(backend, id).await == Some(Status::New) {
        let owner = Owner::of_all(backend).await;
        owner.settle_event(id, dead()).await;
        owner.store.leave(&owner.id).await.unwrap();
    }
    backend.store().operate(&Operation::discard([id.clone()])).await.unwrap();
}
