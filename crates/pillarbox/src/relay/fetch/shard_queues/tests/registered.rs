//! Rows that are handed over after their commit, walked step by step.

use super::*;

/// Walks the steps, and says which events of the first key are under way then, by their order.
async fn walk(steps: impl IntoIterator<Item = Step>) -> (Sim, Vec<usize>) {
    let mut sim = Sim::new().await;
    for step in steps {
        sim.step(step).await;
    }
    let committed = sim.committed.get(&0).cloned().unwrap_or_default();
    let place = |row: &Pending| {
        let id = row.event().unwrap().event_id();
        committed.iter().position(|known| known == id).unwrap()
    };
    let running = sim.running.iter().map(|(row, _)| place(row)).collect();
    (sim, running)
}

const LOCAL: Step = Step::Emit { key: 0, count: 1, hot: true };
const TABLE: Step = Step::Emit { key: 0, count: 1, hot: false };
const COMMIT: Step = Step::Commit { key: 0 };

/// H6: a row that was read while its writer was about to hand it over is delivered once.
#[tokio::test(start_paused = true)]
async fn a_late_hand_over_delivers_nothing_twice() {
    use Step::{EndRead, HandOver, Message, Start, StartRead};

    let (_, running) = walk([LOCAL, COMMIT, StartRead, EndRead, Start]).await;
    assert!(running.is_empty(), "it is its writer's to hand over");

    let (_, running) =
        walk([LOCAL, COMMIT, StartRead, EndRead, HandOver, Message, Start, Start]).await;
    assert_eq!(running, [0]);
}

/// H6: the next event of the key waits for the one that is about to be handed over.
#[tokio::test(start_paused = true)]
async fn a_later_event_waits_for_one_that_is_registered() {
    use Step::{EndRead, HandOver, Message, Start, StartRead};
    let second = [LOCAL, COMMIT, TABLE, COMMIT, StartRead, EndRead, Start];

    let (_, running) = walk(second.clone()).await;
    assert!(running.is_empty(), "{running:?}");

    let deliver = Step::Deliver { which: 0, outcome: 9 };
    let (_, running) =
        walk(second.into_iter().chain([HandOver, Message, Start, deliver, Start])).await;
    assert_eq!(running, [1]);
}

/// H6: a shard that was lost and taken again between the insert and the hand-over is another's
/// doing in between: the row is an ordinary one.
#[tokio::test(start_paused = true)]
async fn a_registration_of_an_earlier_epoch_does_not_count() {
    use Step::{HandOver, LoseShards, Message, Start};

    let (_, running) = walk([LOCAL, Message, LoseShards, COMMIT, HandOver, Message, Start]).await;
    assert!(running.is_empty(), "registered before the shard was lost");

    let (_, running) = walk([LOCAL, LoseShards, COMMIT, HandOver, Message, Start]).await;
    assert!(running.is_empty(), "told after the shard was taken again");
}

/// A commit that does not come, and one that was taken back, leave the key to the table.
#[tokio::test(start_paused = true)]
async fn a_commit_that_does_not_come_is_not_waited_for() {
    use Step::{EndRead, HandOver, Message, Overdue, Start, StartRead};
    let rollback = Step::Rollback { key: 0 };

    let late =
        [LOCAL, Message, Overdue, COMMIT, StartRead, EndRead, Start, HandOver, Message, Start];
    let (_, running) = walk(late).await;
    assert_eq!(running, [0], "read from the table, and not handed over as well");

    let next =
        [LOCAL, Message, rollback, HandOver, TABLE, COMMIT, Message, StartRead, EndRead, Start];
    let (_, running) = walk(next).await;
    assert_eq!(running, [0]);
}
