//! Order per key through failures.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimMode, Operation, Status};
use pillarbox::{Cx, Envelope, Failure, Listeners, OnDead, RelaySettings};
use tokio::sync::{Semaphore, mpsc};

use crate::fixture::{ALWAYS, Script, TestDatabase, WAIT_TIMEOUT, free, keyed, next, quick, relay};

/// A failing head keeps its db in line.
pub(crate) async fn events_of_a_key_come_in_order_through_retries(db: &TestDatabase) {
    let script = Script::default().fail(1, 2).fail(5, 1).fail(9, 2);
    let (listeners, mut received) = script.listeners();
    let relay = relay(db, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 1..=10 {
        db.commit(&outbox, vec![keyed("k", number)]).await;
    }

    assert_eq!(next(&mut received, 10).await, (1..=10).collect::<Vec<_>>());
    handle.stop().await.unwrap();
}

/// Neither other keys nor events without a key wait.
pub(crate) async fn a_failing_key_does_not_block_the_others(db: &TestDatabase, claim: ClaimMode) {
    let (listeners, mut received) = Script::default().fail(1, ALWAYS).listeners();
    let settings = RelaySettings { claim, max_attempts: NonZeroU32::MAX, ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![keyed("bad", 1), keyed("bad", 2)]).await;
    for number in 10..30 {
        db.commit(&outbox, vec![keyed("good", number), free(number + 100)]).await;
    }

    let numbers = next(&mut received, 40).await;
    assert!(!numbers.contains(&2), "the second of the bad key overtook the first");
    assert!(numbers.iter().filter(|n| **n < 100).is_sorted());
    handle.stop().await.unwrap();
}

/// The held event is counted while it waits; its key goes on in order.
pub(crate) async fn a_held_key_waits_for_a_replay_and_goes_on_in_order(
    db: &TestDatabase,
    claim: ClaimMode,
) {
    let script = Script::default().fail(1, ALWAYS);
    let (listeners, mut received) = script.listeners();
    let relay = relay(db, listeners).settings(RelaySettings { claim, ..quick() });
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let ids = db.commit(&outbox, (1..=5).map(|n| keyed("k", n)).collect()).await;
    let held = db.event_with(&ids[0], Status::Held).await;
    assert_eq!((held.attempts, held.last_error.as_deref()), (3, Some("told to fail")));
    assert_eq!(db.store().stats().await.unwrap().held, 1);
    db.commit(&outbox, vec![keyed("other", 9)]).await;
    assert_eq!(next(&mut received, 1).await, [9], "others go on");

    script.stop_failing(1);
    db.store().operate(&Operation::replay(ids[..1].to_vec())).await.unwrap();

    assert_eq!(next(&mut received, 5).await, [1, 2, 3, 4, 5]);
    handle.stop().await.unwrap();
}

/// With the other policy a dead letter blocks no key.
pub(crate) async fn a_skipped_event_unblocks_its_key(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().fail(2, ALWAYS).listeners();
    let settings = RelaySettings { on_dead: OnDead::Skip, ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = db.commit(&outbox, (1..=4).map(|n| keyed("k", n)).collect()).await;

    assert_eq!(next(&mut received, 3).await, [1, 3, 4]);
    db.event_with(&ids[1], Status::Dead).await;
    handle.stop().await.unwrap();
}

/// More rows wait before it than one page holds.
pub(crate) async fn many_waiting_keys_do_not_hide_a_new_one(db: &TestDatabase) {
    let (listeners, mut received) = Script::default().listeners();
    let hour = Duration::from_secs(3600);
    let relay = relay(db, listeners).settings(RelaySettings { sweep: hour, ..quick() });
    let outbox = relay.outbox();
    let later = |n: i64| -> Envelope { keyed(&format!("later-{n}"), n).deliver_after(hour) };
    db.commit(&outbox, (0..3000).map(later).collect()).await;
    db.commit(&outbox, (0..3000).map(|n| free(n).deliver_after(hour)).collect()).await;
    let handle = relay.spawn().await.unwrap();

    db.commit(&outbox, vec![keyed("now", 5000), keyed("later-7", 5001), free(5002)]).await;

    let mut numbers = next(&mut received, 2).await;
    numbers.sort_unstable();
    assert_eq!(numbers, [5000, 5002], "the tail of a delayed key must wait");
    handle.stop().await.unwrap();
}

/// The pass that reaches it is longer than the time between two reasons to start over.
pub(crate) async fn a_long_backlog_with_retries_does_not_starve_a_new_key(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number: i64 = event.payload().as_json().unwrap().parse().unwrap();
        let sender = sender.clone();
        async move {
            match number {
                0 => Err(Failure::dead("held")),
                1..100 => Err(Failure::defer(Duration::from_millis(5), "restless")),
                _ => {
                    sender.send(number).ok();
                    Ok(())
                }
            }
        }
    });
    let settings = RelaySettings { batch: NonZeroU32::new(32).unwrap(), ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    db.commit(&outbox, (1..20).map(free).collect()).await;
    db.commit(&outbox, (0..1).chain(1000..3000).map(|n| keyed("held", n)).collect()).await;
    db.commit(&outbox, vec![keyed("new", 100)]).await;

    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [100]);
    handle.stop().await.unwrap();
}

/// The backlog is larger than the relay's memory, and its listener waits for the other key.
pub(crate) async fn a_backlog_of_one_key_leaves_room_for_the_others(db: &TestDatabase) {
    let (sender, mut received) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number: i64 = event.payload().as_json().unwrap().parse().unwrap();
        let (sender, opens) = (sender.clone(), Arc::clone(&opens));
        async move {
            if number < 1000 {
                opens.acquire().await?.forget();
            }
            sender.send(number).ok();
            Ok::<_, Failure>(())
        }
    });
    let (lease, delivery_timeout) = (2 * WAIT_TIMEOUT, WAIT_TIMEOUT);
    let batch = NonZeroU32::new(64).unwrap();
    let settings = RelaySettings { batch, lease, delivery_timeout, ..quick() };
    let relay = relay(db, listeners).settings(settings);
    let outbox = relay.outbox();
    db.commit(&outbox, (0..1000).map(|n| keyed("slow", n)).collect()).await;
    db.commit(&outbox, vec![keyed("quick", 1000)]).await;

    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut received, 1).await, [1000], "it waits for a backlog that is not its own");
    gate.add_permits(100);
    assert_eq!(next(&mut received, 100).await, (0..100).collect::<Vec<_>>());
    gate.close();
    handle.stop().await.unwrap();
}
