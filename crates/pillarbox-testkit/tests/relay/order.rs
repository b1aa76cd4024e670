//! Order per key, whatever fails.

use std::num::NonZeroU32;
use std::sync::Arc;
use std::time::Duration;

use pillarbox::store::{ClaimMode, Operation, Status};
use pillarbox::{Cx, Envelope, Failure, Listeners, OnDead, RelaySettings};
use tokio::sync::{Semaphore, mpsc};

use crate::fixture::{ALWAYS, LONGEST, Place, Script, free, keyed, next, quick, relay};

/// A failing head keeps its place in line.
pub(crate) async fn events_of_a_key_come_in_order_through_retries(place: &Place) {
    let script = Script::default().fail(1, 2).fail(5, 1).fail(9, 2);
    let (listeners, mut hears) = script.listeners();
    let relay = relay(place, listeners);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    for number in 1..=10 {
        place.commit(&outbox, vec![keyed("k", number)]).await;
    }

    assert_eq!(next(&mut hears, 10).await, (1..=10).collect::<Vec<_>>());
    handle.stop().await.unwrap();
}

/// Neither other keys nor events without one.
pub(crate) async fn one_key_that_waits_does_not_stop_the_others(place: &Place, claim: ClaimMode) {
    let (listeners, mut hears) = Script::default().fail(1, ALWAYS).listeners();
    let settings = RelaySettings { claim, max_attempts: NonZeroU32::MAX, ..quick() };
    let relay = relay(place, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    place.commit(&outbox, vec![keyed("bad", 1), keyed("bad", 2)]).await;
    for number in 10..30 {
        place.commit(&outbox, vec![keyed("good", number), free(number + 100)]).await;
    }

    let heard = next(&mut hears, 40).await;
    assert!(!heard.contains(&2), "the second of the bad key overtook the first");
    assert!(heard.iter().filter(|n| **n < 100).is_sorted());
    handle.stop().await.unwrap();
}

/// Visible while it waits, in order when it goes on.
pub(crate) async fn a_held_key_waits_for_a_replay_and_goes_on_in_order(
    place: &Place,
    claim: ClaimMode,
) {
    let script = Script::default().fail(1, ALWAYS);
    let (listeners, mut hears) = script.listeners();
    let relay = relay(place, listeners).settings(RelaySettings { claim, ..quick() });
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();
    let ids = place.commit(&outbox, (1..=5).map(|n| keyed("k", n)).collect()).await;
    let held = place.event_with(&ids[0], Status::Held).await;
    assert_eq!((held.attempts, held.last_error.as_deref()), (3, Some("told to fail")));
    assert_eq!(place.store().stats().await.unwrap().held, 1);
    place.commit(&outbox, vec![keyed("other", 9)]).await;
    assert_eq!(next(&mut hears, 1).await, [9], "others go on");

    script.mend(1);
    place.store().operate(&Operation::replay(ids[..1].to_vec())).await.unwrap();

    assert_eq!(next(&mut hears, 5).await, [1, 2, 3, 4, 5]);
    handle.stop().await.unwrap();
}

/// The other policy: a dead letter blocks nobody.
pub(crate) async fn a_skipped_event_lets_its_key_go_on(place: &Place) {
    let (listeners, mut hears) = Script::default().fail(2, ALWAYS).listeners();
    let settings = RelaySettings { on_dead: OnDead::Skip, ..quick() };
    let relay = relay(place, listeners).settings(settings);
    let outbox = relay.outbox();
    let handle = relay.spawn().await.unwrap();

    let ids = place.commit(&outbox, (1..=4).map(|n| keyed("k", n)).collect()).await;

    assert_eq!(next(&mut hears, 3).await, [1, 3, 4]);
    place.event_with(&ids[1], Status::Dead).await;
    handle.stop().await.unwrap();
}

/// Far more rows wait in front of it than one page holds.
pub(crate) async fn a_crowd_of_waiting_keys_does_not_hide_a_new_one(place: &Place) {
    let (listeners, mut hears) = Script::default().listeners();
    let hour = Duration::from_secs(3600);
    let relay = relay(place, listeners).settings(RelaySettings { sweep: hour, ..quick() });
    let outbox = relay.outbox();
    let later = |n: i64| -> Envelope { keyed(&format!("later-{n}"), n).deliver_after(hour) };
    place.commit(&outbox, (0..3000).map(later).collect()).await;
    place.commit(&outbox, (0..3000).map(|n| free(n).deliver_after(hour)).collect()).await;
    let handle = relay.spawn().await.unwrap();

    place.commit(&outbox, vec![keyed("now", 5000), keyed("later-7", 5001), free(5002)]).await;

    let mut heard = next(&mut hears, 2).await;
    heard.sort_unstable();
    assert_eq!(heard, [5000, 5002], "the tail of a delayed key must wait");
    handle.stop().await.unwrap();
}

/// The pass that reaches it is longer than the time between two reasons to start over.
pub(crate) async fn a_long_tail_and_a_restless_head_do_not_starve_a_new_key(place: &Place) {
    let (heard, mut hears) = mpsc::unbounded_channel();
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number: i64 = event.payload().as_json().unwrap().parse().unwrap();
        let heard = heard.clone();
        async move {
            match number {
                0 => Err(Failure::dead("held")),
                1..100 => Err(Failure::defer(Duration::from_millis(5), "restless")),
                _ => {
                    heard.send(number).ok();
                    Ok(())
                }
            }
        }
    });
    let settings = RelaySettings { batch: NonZeroU32::new(32).unwrap(), ..quick() };
    let relay = relay(place, listeners).settings(settings);
    let outbox = relay.outbox();
    place.commit(&outbox, (1..20).map(free).collect()).await;
    place.commit(&outbox, (0..1).chain(1000..3000).map(|n| keyed("held", n)).collect()).await;
    place.commit(&outbox, vec![keyed("new", 100)]).await;

    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [100]);
    handle.stop().await.unwrap();
}

/// The backlog fills more than the relay has in hand, and its listener waits for the other key.
pub(crate) async fn a_backlog_of_one_key_leaves_room_for_the_others(place: &Place) {
    let (heard, mut hears) = mpsc::unbounded_channel();
    let gate = Arc::new(Semaphore::new(0));
    let opens = Arc::clone(&gate);
    let listeners = Listeners::new().fallback(move |event: Envelope, _: Cx| {
        let number: i64 = event.payload().as_json().unwrap().parse().unwrap();
        let (heard, opens) = (heard.clone(), Arc::clone(&opens));
        async move {
            if number < 1000 {
                opens.acquire().await?.forget();
            }
            heard.send(number).ok();
            Ok::<_, Failure>(())
        }
    });
    let (lease, delivery_timeout) = (2 * LONGEST, LONGEST);
    let batch = NonZeroU32::new(64).unwrap();
    let settings = RelaySettings { batch, lease, delivery_timeout, ..quick() };
    let relay = relay(place, listeners).settings(settings);
    let outbox = relay.outbox();
    place.commit(&outbox, (0..1000).map(|n| keyed("slow", n)).collect()).await;
    place.commit(&outbox, vec![keyed("quick", 1000)]).await;

    let handle = relay.spawn().await.unwrap();

    assert_eq!(next(&mut hears, 1).await, [1000], "it waits for a backlog that is not its own");
    gate.add_permits(100);
    assert_eq!(next(&mut hears, 100).await, (0..100).collect::<Vec<_>>());
    gate.close();
    handle.stop().await.unwrap();
}
