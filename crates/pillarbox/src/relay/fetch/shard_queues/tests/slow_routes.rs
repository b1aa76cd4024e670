//! A slow route: its rows go back to the table, and come again in order.

use super::*;

/// The keys of one route: more than it has workers and may have in in_flight.
const SLOW: [usize; 6] = [0, 1, 2, 4, 5, 6];
/// A key of another.
const OTHER: usize = 3;

/// All workers of the slow route are taken, and its rows fill the in_flight.
async fn stuck() -> Sim {
    let mut sim = Sim::new().await;
    sim.queues.reads.limits = Limits::RELAY;
    for key in SLOW {
        sim.step(Step::Emit { key, count: 2, hot: false }).await;
        sim.step(Step::Commit { key }).await;
    }
    sim.step(Step::StartRead).await;
    sim.step(Step::Emit { key: OTHER, count: 2, hot: false }).await;
    sim.step(Step::Commit { key: OTHER }).await;
    sim.step(Step::EndRead).await;
    for _ in 0..WORKERS {
        sim.step(Step::Start).await;
    }
    assert_eq!(sim.running.len(), WORKERS - 1, "one is left to others");
    sim
}

async fn after_a_while() -> Sim {
    let mut sim = stuck().await;
    sim.advance(25).await;
    sim
}

#[tokio::test(start_paused = true)]
async fn the_hand_has_room_for_others_after_a_while() {
    let sim = stuck().await;
    assert!(!sim.queues.reads.has_room(&sim.queues.rows));
    let keys = sim.queues.rows.keys().len();
    let sim = after_a_while().await;
    assert!(sim.queues.reads.has_room(&sim.queues.rows));
    assert!(sim.queues.rows.keys().len() < keys, "a key is out of hand");
}

#[tokio::test(start_paused = true)]
async fn the_other_route_is_reached() {
    let mut sim = after_a_while().await;
    for _ in 0..10 {
        sim.start_read().await;
        sim.end_read(Duration::ZERO);
        sim.step(Step::Start).await;
    }
    let other = format!("k{OTHER}");
    assert!(sim.running.iter().any(|(row, _)| row.key.as_deref() == Some(&*other)));
}

#[tokio::test(start_paused = true)]
async fn nothing_is_lost_or_out_of_order() {
    let mut sim = after_a_while().await;
    sim.drain().await;
    sim.check().await;
}

/// Not only by a sweep.
#[tokio::test(start_paused = true)]
async fn what_was_left_is_read_when_the_rest_is_done() {
    let mut sim = after_a_while().await;
    for _ in 0..100 {
        sim.start_read().await;
        sim.end_read(Duration::ZERO);
        sim.step(Step::Start).await;
        sim.deliver(0, 9);
        sim.start_settle().await;
        sim.end_settle();
        sim.advance(25).await;
    }
    sim.check().await;
}
