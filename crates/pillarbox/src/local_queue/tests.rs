use super::*;
use crate::clock::SystemClock;
use crate::telemetry::Probe;

/// Owns the first shard only.
#[derive(Debug)]
struct First;

impl OwnedShards for First {
    fn epoch(&self, shard: ShardId) -> Option<Epoch> {
        (shard == ShardId(0)).then_some(Epoch(7))
    }
}

fn relay() -> LocalRelay {
    LocalRelay {
        owner: OwnerId::generate(),
        lease: Duration::from_secs(15),
        clock: Arc::new(SystemClock),
        observers: Observers::default(),
        shards: Some(Arc::new(First)),
    }
}

fn free() -> Envelope {
    Envelope::json("order.placed", &7).unwrap()
}

fn keyed() -> Envelope {
    free().aggregate("order", "7").unwrap()
}

fn place(seq: i64, shard: i16, is_next: bool) -> Option<Place> {
    let (seq, shard) = (Seq(seq), ShardId(shard));
    Some(Place { seq, shard, occurred_at: SystemClock.now(), is_next })
}

fn handover(queue: &LocalQueue, events: &[Envelope], places: Vec<Option<Place>>) -> Handover {
    Handover::new(queue.clone(), queue.reserve(events).unwrap(), places, events)
}

fn open(places: u32) -> (LocalQueue, LocalReceiver) {
    let (queue, events) = LocalQueue::new(places);
    queue.open(relay());
    (queue, events)
}

#[test]
fn nothing_goes_through_the_queue_before_it_is_open_or_after_it_is_closed() {
    let (queue, _events) = LocalQueue::new(10);
    assert!(queue.reserve(&[free()]).is_none());

    queue.open(relay());
    assert!(queue.reserve(&[free()]).is_some());

    queue.close();
    assert!(queue.reserve(&[free()]).is_none());
}

#[test]
fn a_transaction_has_places_for_all_of_its_events_or_for_none() {
    let (queue, _events) = open(3);
    let first = queue.reserve(&[free(), keyed()]);
    assert!(first.is_some());

    assert!(queue.reserve(&[free(), free()]).is_none());

    drop(first);
    assert!(queue.reserve(&[free(), free(), keyed()]).is_some());
}

#[test]
fn only_what_finds_no_place_is_told_as_dropped() {
    let (queue, _events) = LocalQueue::new(3);
    let probe = Probe::new();
    queue.open(LocalRelay { observers: Observers::default().and(probe.clone()), ..relay() });
    let _held = queue.reserve(&[free(), keyed()]).unwrap();
    assert!(probe.seen().is_empty(), "these have places");

    // The delayed one asks for no place.
    let later = free().deliver_after(Duration::from_secs(1));
    assert!(queue.reserve(&[free(), later.clone(), free()]).is_none());
    assert_eq!(probe.seen(), [RelayEvent::LocalQueueFull { events: 2 }]);

    assert!(queue.reserve(&[later]).is_none());
    queue.close();
    assert!(queue.reserve(&[free(), free()]).is_none());
    assert_eq!(probe.seen().len(), 1, "nothing else was to go hot");
}

#[test]
fn a_crowd_with_keys_goes_through_the_table() {
    let (queue, _events) = open(1000);
    let crowd = vec![keyed(); MOST_KEYED + 1];
    assert!(queue.reserve(&crowd).is_none());
    assert!(queue.reserve(&crowd[1..]).unwrap().hot().keyed);

    let mixed = [crowd.as_slice(), &[free()]].concat();
    assert!(!queue.reserve(&mixed).unwrap().hot().keyed);
}

#[test]
fn large_payloads_fill_the_queue_before_their_number_does() {
    let (queue, _events) = open(1000);
    let large = || Envelope::json("report.made", &"x".repeat(1_000_000)).unwrap();
    let mut held: Vec<_> = (0..40).map_while(|_| queue.reserve(&[large()])).collect();

    assert_eq!(held.len(), MOST_BYTES / 1_000_002);
    held.pop();
    assert!(queue.reserve(&[large()]).is_some(), "as much room as one has left");
}

#[test]
fn a_place_is_free_again_when_its_event_is_dropped() {
    let (queue, mut events) = open(2);
    let sent = [free(), free().deliver_after(Duration::from_secs(1)), free()];
    let all = handover(&queue, &sent, vec![place(1, 0, true), None, place(2, 0, true)]).keep(&sent);
    assert!(!all, "one of them waits");
    assert!(queue.reserve(&[free()]).is_none());

    let Some(Message::Leased(first)) = events.try_next() else { panic!("nothing came") };
    assert_eq!(first.envelope.event_id(), sent[0].event_id());
    drop(first);
    assert!(queue.reserve(&[free()]).is_some());
    let Some(Message::Leased(last)) = events.try_next() else { panic!("nothing came") };
    assert_eq!((last.envelope.event_id(), last.place.seq), (sent[2].event_id(), Seq(2)));
}

#[test]
fn events_with_a_key_are_registered_before_they_are_committed() {
    let (queue, mut events) = open(10);
    let sent = [keyed(), keyed()];

    let handover = handover(&queue, &sent, vec![place(1, 0, true), place(2, 0, true)]);

    let Some(Message::Registered(told)) = events.try_next() else { panic!("nothing came") };
    assert_eq!(told.iter().map(|it| it.seq).collect::<Vec<_>>(), [Seq(1), Seq(2)]);
    assert_eq!((told[0].epoch, &*told[0].key), (Epoch(7), "order/7"));
    assert!(events.try_next().is_none());
    assert!(handover.keep(&sent));
    let Some(Message::Committed(kept)) = events.try_next() else { panic!("nothing came") };
    assert_eq!(kept[1].envelope.event_id(), sent[1].event_id());
    assert!(events.try_next().is_none());
}

#[test]
fn a_transaction_that_does_not_commit_withdraws() {
    let (queue, mut events) = open(10);

    drop(handover(&queue, &[keyed()], vec![place(1, 0, true)]));

    assert!(matches!(events.try_next(), Some(Message::Registered(_))));
    let Some(Message::Withdrawn(told)) = events.try_next() else { panic!("nothing came") };
    assert_eq!(told[0].seq, Seq(1));
}

#[test]
fn what_is_behind_another_or_held_elsewhere_is_an_ordinary_row() {
    let (queue, mut events) = open(10);
    let sent = [keyed(), keyed(), keyed()];

    let handover = handover(&queue, &sent, vec![place(1, 0, false), place(2, 1, true), None]);

    assert!(!handover.keep(&sent));
    assert!(events.try_next().is_none());
}
