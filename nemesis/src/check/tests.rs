//! Every promise, broken in a history of a few lines: a check that cannot fail is none.

use super::*;

/// So many ordered events were committed by each account, and nothing else.
fn ordered_accounts(counts: &[i64]) -> Vec<Account> {
    counts.iter().map(|ordered| Account { ordered: *ordered, ..Account::default() }).collect()
}

fn unordered_account(count: i64) -> Vec<Account> {
    vec![Account { unordered: count, ..Account::default() }]
}

fn ordered(incarnation: &str, id: &str, account: i64, n: i64) -> String {
    written(incarnation, Entry::Ordered { id, account, n })
}

fn unordered(incarnation: &str, id: &str, n: i64) -> String {
    written(incarnation, Entry::Unordered { id, account: 0, n })
}

fn written(incarnation: &str, entry: Entry<'_>) -> String {
    written_at(1, incarnation, entry)
}

fn written_at(at: i64, incarnation: &str, entry: Entry<'_>) -> String {
    serde_json::to_string(&Line { incarnation, at, entry }).unwrap() + "\n"
}

fn report(committed: &[Account], lines: &[String]) -> Report {
    Report::of(committed, &lines.concat(), &Faults::default())
}

#[test]
fn a_history_without_harm_breaks_nothing() {
    let log = [
        ordered("a", "x1", 0, 1),
        ordered("a", "x2", 0, 2),
        written("nemesis", Entry::Done { id: "x1" }),
        written("a", Entry::Refused { id: "x3" }),
        written("nemesis", Entry::Replay { id: "x3" }),
        ordered("a", "x3", 0, 3),
    ];

    let report = report(&ordered_accounts(&[3]), &log);

    assert!(!report.is_broken(), "{report:?}");
    assert_eq!(report.excerpt(&log.concat()), "");
}

#[test]
fn what_is_missing_is_lost() {
    let log = [ordered("a", "x1", 1, 1), ordered("a", "x3", 1, 3)];

    let report = report(&ordered_accounts(&[0, 3]), &log);

    assert_eq!((report.committed, report.delivered, report.lost), (3, 2, 1));
    assert_eq!(report.accounts, BTreeMap::from([(1, 2)]));
    assert_eq!(report.excerpt(&log.concat()).lines().count(), 2);
}

#[test]
fn what_was_not_committed_is_a_ghost() {
    let beyond =
        report(&ordered_accounts(&[1]), &[ordered("a", "x1", 0, 1), ordered("a", "x2", 0, 2)]);
    let taken_back =
        report(&ordered_accounts(&[1]), &[ordered("a", "x1", 0, 1), ordered("a", "x0", 0, -1)]);
    let nobodys =
        report(&ordered_accounts(&[1]), &[ordered("a", "x1", 0, 1), ordered("a", "x9", 9, 9)]);

    assert_eq!([beyond.ghosts, taken_back.ghosts, nobodys.ghosts], [1, 1, 1]);
}

#[test]
fn of_two_events_with_the_same_count_one_is_a_ghost() {
    let report =
        report(&ordered_accounts(&[1]), &[ordered("a", "x1", 0, 1), ordered("a", "x2", 0, 1)]);

    assert_eq!((report.ghosts, report.duplicates), (1, 0));
}

#[test]
fn a_younger_event_first_is_an_inversion_and_a_late_duplicate_is_none() {
    let younger = [ordered("a", "x2", 0, 2), ordered("a", "x1", 0, 1)];
    let late = [ordered("a", "x1", 0, 1), ordered("a", "x2", 0, 2), ordered("b", "x1", 0, 1)];

    assert_eq!(report(&ordered_accounts(&[2]), &younger).inversions, 1);
    assert_eq!(report(&ordered_accounts(&[2]), &late).inversions, 0);
}

#[test]
fn damage_and_haste_are_counted_and_shown() {
    let log = [
        ordered("a", "x1", 0, 1),
        written("a", Entry::Damaged { id: "x2" }),
        written("a", Entry::Early { id: "x3" }),
    ];

    let report = report(&ordered_accounts(&[1]), &log);

    assert_eq!((report.damaged, report.early, report.is_broken()), (1, 1, true));
    assert_eq!(report.excerpt(&log.concat()).lines().count(), 2);
}

#[test]
fn what_is_done_before_it_is_heard_is_seen_even_if_it_is_heard_later() {
    let done = written("nemesis", Entry::Done { id: "x1" });

    let report = report(&ordered_accounts(&[1]), &[done, ordered("a", "x1", 0, 1)]);

    assert_eq!((report.done_undelivered, report.lost), (1, 0));
}

#[test]
fn a_replay_is_answered_by_what_comes_after_it_only() {
    let replay = written("nemesis", Entry::Replay { id: "x1" });
    let before = [ordered("a", "x1", 0, 1), replay.clone()];
    let refused = written("a", Entry::Refused { id: "x1" });
    let after = [ordered("a", "x1", 0, 1), replay, refused];

    assert_eq!(report(&ordered_accounts(&[1]), &before).unanswered_replays, 1);
    assert_eq!(report(&ordered_accounts(&[1]), &after).unanswered_replays, 0);
}

#[test]
fn duplicates_are_charged_to_whom_something_happened() {
    let log = [
        unordered("a", "x1", 1),
        unordered("b", "x1", 1),
        unordered("a", "x2", 2),
        unordered("b", "x2", 2),
        unordered("b", "x3", 3),
        unordered("c", "x3", 3),
    ];
    let mut faults = Faults::default();
    faults.killed("a");

    let report = Report::of(&unordered_account(3), &log.concat(), &faults);

    assert_eq!((report.duplicates, report.unexplained, report.worst), (3, 1, 2));
    assert_eq!(report.accounts, BTreeMap::from([(0, 3)]));
}

/// Stopped inside its listener, `a` goes on when `b` has delivered the event: the duplicate is of
/// `a`, although its line is the last. That `b` is killed later has nothing to do with it.
#[test]
fn a_delivery_that_ends_late_is_charged_to_the_life_that_was_late() {
    let pause = written("a", Entry::Fault { kind: "stops" });
    let took = |incarnation| written(incarnation, Entry::ShardsAcquired { shards: 1 });
    let late = [pause, took("b"), unordered("b", "x1", 1), unordered("a", "x1", 1)];
    let fenced = written("a", Entry::Fenced { id: "x1" });
    let without_order = [unordered("b", "x1", 1), unordered("a", "x1", 1), fenced];
    // As many as one fault may cost: with one more it would be too many.
    let of_b = [unordered("b", "x2", 2), unordered("c", "x2", 2)];
    let mut faults = Faults::default();
    faults.paused("a");
    faults.killed("b");

    for late in [late.concat(), without_order.concat()] {
        let report = Report::of(&unordered_account(2), &(late + &of_b.concat()), &faults);

        assert_eq!((report.duplicates, report.unexplained, report.worst), (2, 0, 1));
    }
}

/// It took the shard again after its pause, and got the event from there.
#[test]
fn a_delivery_after_another_take_is_not_late() {
    let pause = written("a", Entry::Fault { kind: "stops" });
    let took = |incarnation| written(incarnation, Entry::ShardsAcquired { shards: 1 });
    let log = [
        pause,
        took("b"),
        unordered("b", "x1", 1),
        unordered("b", "x2", 2),
        took("a"),
        unordered("a", "x1", 1),
        unordered("a", "x2", 2),
    ];
    let mut faults = Faults::default();
    faults.paused("a");
    faults.killed("b");

    let report = Report::of(&unordered_account(2), &log.concat(), &faults);

    assert_eq!((report.duplicates, report.worst), (2, 2), "both are of `b`");
}

#[test]
fn a_lease_that_was_lost_without_an_order_is_a_fault_too() {
    let log = [ordered("a", "x", 0, 1), written("a", Entry::LeaseLost), ordered("b", "x", 0, 1)];

    let report = report(&ordered_accounts(&[1]), &log);

    assert_eq!((report.duplicates, report.unexplained, report.worst), (1, 0, 1));
}

/// A row's own lease ends unnoticed while its verdict waits for a busy database.
#[test]
fn a_verdict_that_took_longer_than_its_lease_is_a_fault_and_a_stolen_event_is_none() {
    let of = |fenced_after| {
        let fenced = written_at(1 + fenced_after, "a", Entry::Fenced { id: "x" });
        report(&ordered_accounts(&[1]), &[ordered("a", "x", 0, 1), ordered("b", "x", 0, 1), fenced])
    };

    let (late, stolen) = (of(MARGIN), of(MARGIN - 1));

    assert_eq!((late.unexplained, late.worst), (0, 1));
    assert_eq!((stolen.unexplained, stolen.worst), (1, 0));
}

#[test]
fn what_relays_and_writers_tell_is_added_up() {
    let log = [
        written("a", Entry::Fenced { id: "x1" }),
        written("a", Entry::FromLocalQueue { events: 3 }),
        written("w", Entry::Transactions { succeeded: 8, failed: 1 }),
        written("w", Entry::Transactions { succeeded: 1, failed: 0 }),
    ];

    let report = report(&ordered_accounts(&[]), &log);

    assert_eq!((report.fenced, report.from_local_queue, report.transactions), (1, 3, (9, 1)));
}
