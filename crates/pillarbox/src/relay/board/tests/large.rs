//! Large events: a page ends in front of the first row whose content did not come.

use super::*;

/// One event of each of these keys, all large, in this order.
async fn committed(keys: &[usize]) -> Sim {
    let mut sim = Sim::new().await;
    for key in keys {
        assert_eq!(key / 2 % 2, 1, "the first event of such a key is large");
        sim.step(Step::Emit { key: *key, count: 1, hot: false }).await;
        sim.step(Step::Commit { key: *key }).await;
    }
    sim
}

async fn read(sim: &mut Sim) -> usize {
    sim.start_read().await;
    sim.end_read(Duration::ZERO);
    sim.board.hand.len()
}

#[tokio::test(start_paused = true)]
async fn a_page_ends_in_front_of_what_does_not_fit() {
    let mut sim = committed(&[2, 3, 6, 7, 2, 3, 6, 7]).await;

    assert_eq!(read(&mut sim).await, 3, "as many as fit");
    assert!(sim.board.shards.values().any(|shard| shard.more && shard.hungry));
    assert_eq!(read(&mut sim).await, 3, "there is no room for more");
    sim.drain().await;
    sim.check().await;
}

#[tokio::test(start_paused = true)]
async fn what_is_delivered_makes_room_before_it_is_settled() {
    let mut sim = committed(&[2, 3, 6, 7, 2, 3, 6, 7]).await;
    read(&mut sim).await;

    for _ in 0..3 {
        sim.step(Step::Start).await;
        sim.deliver(0, 9);
    }

    assert_eq!(sim.board.hand.bytes(), 0);
    assert!(read(&mut sim).await > 3);
}

/// Content for rows in hand would use up the budget, and nothing behind them would come.
#[tokio::test(start_paused = true)]
async fn what_is_in_hand_is_not_asked_for_again() {
    let mut sim = committed(&[2, 3, 6, 7, 2, 3, 6, 7]).await;
    read(&mut sim).await;
    for _ in 0..3 {
        sim.step(Step::Start).await;
    }
    sim.deliver(0, 9);
    sim.deliver(0, 9);

    sim.start_read().await;

    let Some((Wanted::Shards(read), page)) = &sim.read else { panic!("{:?}", sim.read) };
    assert_eq!(read.budget.skip.len(), 3);
    let came = page.rows.iter().filter(|row| row.event().is_some());
    assert!(came.clone().count() > 0);
    assert!(came.into_iter().all(|row| !read.budget.skip.contains(&row.seq)));
}

/// The shard that got nothing is the first of the next read.
#[tokio::test(start_paused = true)]
async fn a_shard_that_got_nothing_is_read_first() {
    let mut sim = committed(&[2, 3, 6, 7]).await;
    let shards: Vec<ShardId> = sim.held.keys().copied().collect();
    sim.board.limits = Limits { most: LARGEST, largest: LARGEST };

    assert_eq!(read(&mut sim).await, 1);
    sim.step(Step::Start).await;
    let first = sim.running[0].0.shard;
    sim.deliver(0, 9);
    let other = shards.into_iter().find(|shard| *shard != first).unwrap();
    assert_eq!(sim.board.first_shard, other);
    sim.start_read().await;

    let Some((Wanted::Shards(read), _)) = &sim.read else { panic!("{:?}", sim.read) };
    assert_eq!(read.shards[0].shard, other);
}

#[tokio::test(start_paused = true)]
async fn fewer_rows_are_asked_for_where_content_is_left_behind() {
    let mut sim = committed(&[2, 3, 6, 7, 2, 3, 6, 7]).await;
    let before = sim.board.pace.rows();

    read(&mut sim).await;

    assert_eq!(sim.board.pace.rows(), before / 2);
}

/// They have no content in memory. Where large events have made pages small, as few as half a page
/// would keep everything else from being read for as long as their rows are locked.
#[tokio::test(start_paused = true)]
async fn what_waits_for_its_verdict_stops_no_read_of_small_pages() {
    let mut sim = committed(&[2, 3]).await;
    read(&mut sim).await;
    for _ in 0..2 {
        sim.step(Step::Start).await;
        sim.deliver(0, 9);
    }
    (0..4).for_each(|_| sim.board.pace.came(0, false));
    assert_eq!((sim.board.pages().batch, sim.board.hand.len(), sim.board.hand.bytes()), (1, 2, 0));

    sim.board.wake();
    sim.start_read().await;

    assert!(matches!(&sim.read, Some((Wanted::Shards(_), _))), "{:?}", sim.read);
}

#[tokio::test(start_paused = true)]
async fn a_key_whose_head_did_not_come_is_read_again() {
    let mut sim = committed(&[2, 3]).await;
    let keys: Vec<LaneKey> = {
        let wanted = sim.store.read(&everything(&sim)).await.unwrap();
        wanted.iter().map(|row| (row.shard, row.key.clone().unwrap())).collect()
    };
    sim.board.limits = Limits { most: LARGEST, largest: LARGEST };
    keys.into_iter().for_each(|key| sim.board.want_key(key));

    assert_eq!(read(&mut sim).await, 1);
    assert_eq!(sim.board.key_reads.len(), 1, "the other one is still to be read");
    sim.drain().await;
    sim.check().await;
}

fn everything(sim: &Sim) -> Read {
    let floor = Seq::START;
    let shards = sim.held.keys().map(|shard| ShardRead { shard: *shard, floor }).collect();
    Read { shards, limit: 100, budget: Budget::unlimited() }
}
