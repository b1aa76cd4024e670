//! Breakdown: how much there is of what, shard by shard and type by type.

use pillarbox::store::{Breakdown, MAX_TYPES, TypeStats};
use pillarbox::{Envelope, Epoch, Verdict};

use crate::backend::Backend;
use crate::conformance::owner::{
    HOUR, Owner, dead, emit, emit_one, free, held, keyed, retry, row, shards,
};

/// Nothing there: every shard is named, and nobody has it.
pub async fn an_empty_store_names_its_shards<B: Backend>(backend: &B) {
    let all = shards(&*backend.store()).await;

    let breakdown = breakdown(backend).await;

    assert_eq!((breakdown.done, breakdown.types.len()), (0, 0));
    assert_eq!(breakdown.shards.iter().map(|it| it.shard).collect::<Vec<_>>(), all);
    for shard in &breakdown.shards {
        assert_eq!((&shard.owner, shard.epoch), (&None, Epoch(0)));
        assert_eq!((shard.new, shard.waiting, shard.held, shard.oldest_lag), (0, 0, 0, None));
    }
}

/// Each shard counts what waits in it; together they are what the gauges show.
pub async fn events_are_counted_in_their_shard<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..60).map(|n| keyed(&n.to_string()))).await;
    let owner = Owner::of_all(backend).await;
    let rows = owner.read().await;
    let kinds = [retry(HOUR), held(), dead(), Verdict::Done, Verdict::Delete];
    let settled = ids.iter().enumerate().filter(|(n, _)| n % 6 > 0);
    let settled = settled.map(|(n, id)| owner.settlement(row(&rows, id), kinds[n % 6 - 1].clone()));
    owner.settle(settled.collect()).await;

    let breakdown = breakdown(backend).await;

    for shard in &breakdown.shards {
        let of = |kind: usize| {
            let ids = ids.iter().enumerate().filter(|(n, _)| n % 6 == kind);
            ids.filter(|(_, id)| row(&rows, id).shard == shard.shard).count() as u64
        };
        assert_eq!((shard.new, shard.waiting, shard.held), (of(0), of(1), of(2)));
    }
    let stats = backend.store().stats().await.unwrap();
    let sum = |count: fn(&pillarbox::store::ShardStats) -> u64| {
        breakdown.shards.iter().map(count).sum::<u64>()
    };
    assert_eq!(stats.new, sum(|shard| shard.new));
    assert_eq!(stats.waiting, sum(|shard| shard.waiting));
    assert_eq!(stats.held, sum(|shard| shard.held));
    assert_eq!(breakdown.done, 10);
}

/// A shard has its owner and its epoch.
pub async fn owners_are_named<B: Backend>(backend: &B) {
    let first = Owner::of_all(backend).await;
    first.release(&first.owned[..1]).await;
    let mut second = Owner::joined(backend).await;
    second.acquire(u16::MAX).await;
    second.release(&second.owned).await;

    let breakdown = breakdown(backend).await;

    for shard in breakdown.shards {
        let is_given = shard.shard == first.owned[0].shard;
        assert_eq!(shard.owner, (!is_given).then(|| first.id.clone()));
        assert_eq!(shard.epoch, Epoch(if is_given { 2 } else { 1 }));
    }
}

/// The lag of a shard is that of its oldest due event.
pub async fn a_shard_has_the_lag_of_its_oldest_event<B: Backend>(backend: &B) {
    emit_one(backend, free().deliver_after(HOUR * 20)).await;
    let old = emit_one(backend, keyed("a")).await;
    backend.age(&old, HOUR).await;
    emit_one(backend, keyed("a")).await;
    let shard = backend.store().event(&old).await.unwrap().unwrap().shard;

    for stats in breakdown(backend).await.shards {
        let is_late = stats.oldest_lag.is_some_and(|lag| lag >= HOUR && lag < HOUR * 2);
        assert!(if stats.shard == shard { is_late } else { stats.oldest_lag.is_none() });
    }
}

/// Each type counts what waits, is held and is dead; those with most of it come first.
pub async fn events_are_counted_by_type<B: Backend>(backend: &B) {
    let kinds = ["b.two", "c.six", "a.two", "done", "c.six", "c.six", "c.six", "b.two", "a.two"];
    let events = kinds.iter().map(|kind| event(kind)).chain([event("c.six"), event("c.six")]);
    let ids = emit(backend, events).await;
    let owner = Owner::of_all(backend).await;
    let verdicts = [(1, retry(HOUR)), (3, Verdict::Done), (4, held()), (5, dead()), (6, dead())];
    for (at, verdict) in verdicts {
        owner.settle_event(&ids[at], verdict).await;
    }

    let types = breakdown(backend).await.types;

    let of = |event_type: &str, [new, waiting, held, dead]: [u64; 4]| TypeStats {
        event_type: event_type.to_owned(),
        new,
        waiting,
        held,
        dead,
    };
    let expected =
        [of("c.six", [2, 1, 1, 2]), of("a.two", [2, 0, 0, 0]), of("b.two", [2, 0, 0, 0])];
    assert_eq!(types, expected);
}

/// Types that differ in case, accents or spaces are different types.
pub async fn types_are_compared_byte_for_byte<B: Backend>(backend: &B) {
    let kinds = ["mail", "Mail", "mail ", "màil"];
    emit(backend, kinds.map(event)).await;

    let types = breakdown(backend).await.types;

    assert_eq!(types.len(), kinds.len());
    assert!(types.iter().all(|it| it.new == 1 && kinds.contains(&&*it.event_type)));
}

/// Of very many types, the ones with the most events are reported.
pub async fn the_largest_types_are_named<B: Backend>(backend: &B) {
    let kinds = (0..MAX_TYPES + 20).map(|n| format!("type.{n:03}"));
    let twice = (0..30).map(|n| format!("type.{:03}", MAX_TYPES + 19 - n));
    emit(backend, kinds.chain(twice).map(|kind| event(Box::leak(kind.into_boxed_str())))).await;

    let types = breakdown(backend).await.types;

    assert_eq!(types.len(), MAX_TYPES);
    assert!(types[..30].iter().all(|it| it.new == 2));
    assert!(types[30..].iter().all(|it| it.new == 1));
    let names: Vec<_> = types[30..].iter().map(|it| it.event_type.clone()).collect();
    assert_eq!(names, (0..70).map(|n| format!("type.{n:03}")).collect::<Vec<_>>());
}

async fn breakdown<B: Backend>(backend: &B) -> Breakdown {
    backend.store().breakdown().await.unwrap()
}

fn event(kind: &'static str) -> Envelope {
    Envelope::json(kind, &7).unwrap()
}
