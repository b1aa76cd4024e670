//! A key whose head waits: its tail is passed, and found again when the head has been decided on.

use super::*;

/// A key with a tail, and another one of the same shard.
struct Stage {
    sim: Sim,
    other: usize,
}

/// Delivers the first event of the first key with this outcome, and reads until its tail is below the
/// base of the shard.
async fn tail_behind(outcome: u8) -> Stage {
    let mut sim = Sim::new().await;
    sim.queues.reads.limits = Limits::RELAY;
    let shard = shard_of(&mut sim, 0).await;
    let mut other = 1;
    while shard_of(&mut sim, other).await != shard {
        other += 1;
    }
    sim.step(Step::Emit { key: 0, count: 7, hot: false }).await;
    sim.step(Step::Commit { key: 0 }).await;
    sim.queues.wake();
    sim.start_read().await;
    sim.end_read(Duration::ZERO);
    sim.step(Step::Start).await;
    sim.deliver(0, outcome);
    sim.start_settle().await;
    sim.end_settle();
    while sim.queues.reads.shards()[&shard].base() == Seq::START {
        sim.queues.wake();
        read(&mut sim).await;
    }
    sim.queues.reads.shards().values_mut().for_each(|shard| shard.read_nothing());
    Stage { sim, other }
}

/// Delivers one event of the key, to see which shard it is of.
async fn shard_of(sim: &mut Sim, key: usize) -> ShardId {
    sim.queues.wake();
    sim.step(Step::Emit { key, count: 1, hot: false }).await;
    sim.step(Step::Commit { key }).await;
    read(sim).await;
    sim.step(Step::Start).await;
    let shard = sim.running[0].0.shard;
    sim.deliver(0, 9);
    sim.start_settle().await;
    sim.end_settle();
    shard
}

/// Reads what is to be read; returns how many rows came.
async fn read(sim: &mut Sim) -> usize {
    let mut rows = 0;
    loop {
        sim.start_read().await;
        let Some((_, page)) = &sim.read else { return rows };
        rows += page.rows.len();
        sim.end_read(Duration::ZERO);
    }
}

/// Delivers what can be delivered, without a sweep.
async fn deliver_all(sim: &mut Sim) {
    for _ in 0..50 {
        read(sim).await;
        sim.step(Step::Start).await;
        sim.deliver(0, 9);
        sim.start_settle().await;
        sim.end_settle();
    }
}

#[tokio::test(start_paused = true)]
async fn a_new_row_is_read_without_the_tail() {
    let Stage { mut sim, other } = tail_behind(0).await;
    sim.step(Step::Emit { key: other, count: 1, hot: false }).await;
    sim.step(Step::Commit { key: other }).await;

    sim.queues.wake();

    assert_eq!(read(&mut sim).await, 3, "the row, and the heads of two keys");
    sim.step(Step::Start).await;
    assert_eq!(sim.running.len(), 1);
}

/// Or the relay would spin for as long as the read takes.
#[tokio::test(start_paused = true)]
async fn heads_that_cannot_be_read_yet_set_no_timer() {
    let Stage { mut sim, .. } = tail_behind(0).await;
    sim.queues.wake();
    sim.start_read().await;
    sim.queues.sweep();
    tokio::time::advance(Duration::from_secs(1)).await;

    sim.queues.tick(instant());

    assert!(sim.queues.reads.is_unread());
    assert_eq!(sim.queues.next_due(), None);
}

#[tokio::test(start_paused = true)]
async fn the_tail_is_found_when_an_operator_lets_its_key_go_on() {
    let Stage { mut sim, .. } = tail_behind(0).await;
    sim.replay().await;

    sim.queues.sweep();
    deliver_all(&mut sim).await;

    sim.check().await;
}

#[tokio::test(start_paused = true)]
async fn a_promoted_row_is_found_below_the_base_without_a_sweep() {
    let Stage { mut sim, .. } = tail_behind(1).await;
    sim.advance(1000).await;
    assert_eq!(read(&mut sim).await, 0);

    sim.promote(true).await;
    deliver_all(&mut sim).await;

    sim.check().await;
}

/// The relay hears that it is new before it hears that its verdict was written.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_promoted_in_hand_is_looked_for() {
    let mut sim = Sim::new().await;
    sim.step(Step::Emit { key: 0, count: 2, hot: false }).await;
    sim.step(Step::Commit { key: 0 }).await;
    read(&mut sim).await;
    sim.step(Step::Start).await;
    sim.deliver(0, 1);
    sim.start_settle().await;
    sim.advance(1000).await;
    sim.promote(true).await;
    read(&mut sim).await;

    sim.end_settle();
    deliver_all(&mut sim).await;

    sim.check().await;
}

/// A read of the key is under way that began before.
#[tokio::test(start_paused = true)]
async fn a_row_that_is_promoted_while_its_key_is_read_is_looked_for() {
    let Stage { mut sim, .. } = tail_behind(1).await;
    let mut shards = sim.queues.reads.shards().iter();
    let shard = shards.find(|(_, shard)| shard.base() > Seq::START).map(|(shard, _)| *shard);
    sim.queues.rows.keys_mut().want((shard.unwrap(), "k0".into()));
    sim.start_read().await;
    sim.advance(1000).await;

    sim.promote(true).await;
    sim.end_read(Duration::ZERO);
    deliver_all(&mut sim).await;

    sim.check().await;
}

#[tokio::test(start_paused = true)]
async fn an_empty_shard_has_no_base() {
    let Stage { mut sim, .. } = tail_behind(0).await;
    sim.replay().await;
    sim.queues.sweep();
    deliver_all(&mut sim).await;

    sim.queues.sweep();
    read(&mut sim).await;

    assert!(sim.queues.reads.shards().values().all(|shard| shard.base() == Seq::START));
}
