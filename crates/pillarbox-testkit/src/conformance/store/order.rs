//! Order: in which rows are read, and which of them must wait.

use std::collections::HashMap;
use std::sync::Arc;

use pillarbox::store::{Budget, KeyRead, Pending, Predecessor, Read, ReadKeys, ShardRead};
use pillarbox::{Envelope, EventId, Key, Outbox, Seq, ShardId, Verdict};

use crate::backend::{Backend, Need, OwnTx, from_head};
use crate::conformance::claimer::seqs;
use crate::conformance::owner::{
    ALL, HOUR, Owner, dead, emit, emit_one, find, free, held, id_of, keyed, promote_all,
    read_above, read_all, replay, retry, row, seqs_of, shards, stored,
};
use crate::run::lacks;

/// Events of one transaction have growing seqs, in the order they were emitted.
pub async fn rows_come_in_the_order_of_their_transaction<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..50).map(|_| keyed("a"))).await;

    let rows = read_all(backend).await;

    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), ids.iter().collect::<Vec<_>>());
    assert!(rows.is_sorted_by(|one, next| one.seq < next.seq));
}

/// Each shard's rows come by seq, whichever transaction and key they are of.
pub async fn rows_come_by_seq_within_a_shard<B: Backend>(backend: &B) {
    for round in 0..3 {
        emit(backend, (0..40).map(|n| keyed(&format!("{n}")))).await;
        emit(backend, (0..20).map(|_| free())).await;
        assert_eq!(read_all(backend).await.len(), (round + 1) * 60);
    }

    let mut last: HashMap<ShardId, Seq> = HashMap::new();
    for row in read_all(backend).await {
        let before = last.insert(row.shard, row.seq);
        assert!(before.is_none_or(|before| before < row.seq), "shard {:?}", row.shard);
    }
}

/// A key has one shard, whether it is given or comes from the aggregate.
pub async fn a_key_is_always_in_one_shard<B: Backend>(backend: &B) {
    let about = |id: &str| free().aggregate("order", id).unwrap();
    let given = |id: &str| about("other").key(Key::Given(format!("order/{id}"))).unwrap();
    emit(backend, (0..30).map(|n| about(&n.to_string()))).await;
    emit(backend, (0..30).map(|n| given(&n.to_string()))).await;

    let mut shard_of: HashMap<Arc<str>, ShardId> = HashMap::new();
    for row in read_all(backend).await {
        let key = row.key.expect("every one of them is ordered");
        assert_eq!(*shard_of.entry(key).or_insert(row.shard), row.shard);
    }
    assert_eq!(shard_of.len(), 30, "`order/7` is one key, however it came about");
}

/// Keys that differ in case, accents, normal form or trailing spaces are different lines.
pub async fn keys_are_compared_byte_for_byte<B: Backend>(backend: &B) {
    let keys = ["a", "A", "a ", "a  ", " a", "á", "a\u{301}", "ß", "ss", " ", "  "];
    emit(backend, keys.iter().map(|key| keyed(key))).await;
    let ids = emit(backend, keys.iter().map(|key| keyed(key))).await;
    let store = backend.store();

    let rows = read_all(backend).await;
    for (key, id) in keys.iter().zip(&ids) {
        assert_eq!(row(&rows, id).key.as_deref(), Some(*key));
        let read = key_of(row(&rows, id));
        assert_eq!(&*read.key, *key);
        let line = store
            .read_keys(&ReadKeys { keys: vec![read], limit: ALL, budget: Budget::unlimited() })
            .await
            .unwrap();
        assert_eq!(line.len(), 2, "{key:?} is a line of two");
        assert_eq!(id_of(&line[1]), id);
    }

    // Only the first `a` is left below the floor: of all the later ones, only `a` waits for it.
    let owner = Owner::of_all(backend).await;
    let firsts: Vec<_> = rows.iter().filter(|row| !ids.contains(id_of(row))).collect();
    let (first, others) = (firsts.iter().map(|row| row.seq).min().unwrap(), firsts.iter());
    let others = others.filter(|row| row.seq != first);
    let settled = owner.settle(others.map(|row| owner.settlement(row, Verdict::Done)).collect());
    assert_eq!(settled.await.applied.len(), keys.len() - 1);
    for row in read_above(backend, first).await {
        let is_a = row.key.as_deref() == Some("a");
        let expected = if is_a { Predecessor::Unread } else { Predecessor::Nothing };
        assert_eq!(row.before, expected, "{:?}", row.key);
    }
}

/// A transaction that commits late with a low `seq` is still found, in order.
pub async fn a_late_commit_is_read_from_the_head<B: Backend>(backend: &B) {
    if lacks(backend, Need::ConcurrentWriters) {
        return;
    }
    let mut slow = backend.own().await;
    let low = slow.emit(&Outbox::new(), keyed("a")).await.unwrap().unwrap();
    let high = emit_one(backend, keyed("a")).await;
    let before = read_all(backend).await;

    slow.commit().await.unwrap();
    let after = read_all(backend).await;

    assert_eq!(before.iter().map(id_of).collect::<Vec<_>>(), [&high]);
    assert_eq!(after.iter().map(id_of).collect::<Vec<_>>(), [&low, &high]);
    let above = read_above(backend, after[0].seq).await;
    assert_eq!(seqs(&above), seqs_of(backend, &[high]).await);
    assert_eq!(above[0].before, Predecessor::Unread, "its key's older row is at the floor");
}

/// Rows at or below the floor are not read.
pub async fn a_read_begins_above_its_floor<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..5).map(|_| free())).await;
    let floor = row(&read_all(backend).await, &ids[2]).seq;

    let rows = read_above(backend, floor).await;

    assert!(ids[..3].iter().all(|id| find(&rows, id).is_none()));
    assert!(ids[3..].iter().all(|id| find(&rows, id).is_some()));
}

/// An older new row of the key at or below the floor holds the younger one back.
pub async fn a_row_behind_a_new_one_of_its_key_is_marked<B: Backend>(backend: &B) {
    let rows = pair(backend, keyed("a"), None).await;

    assert_eq!(rows[0].before, Predecessor::Unread);
}

/// An older row that is not due holds its key all the same.
pub async fn a_row_behind_a_delayed_one_of_its_key_is_marked<B: Backend>(backend: &B) {
    let rows = pair(backend, keyed("a").deliver_after(HOUR), None).await;

    assert_eq!(rows[0].before, Predecessor::Waiting);
}

/// An older row that waits for another try holds its key.
pub async fn a_row_behind_a_retried_one_of_its_key_is_marked<B: Backend>(backend: &B) {
    let rows = pair(backend, keyed("a"), Some(retry(HOUR))).await;

    assert_eq!(rows[0].before, Predecessor::Waiting);
}

/// An older row that was given up and held keeps its key waiting.
pub async fn a_row_behind_a_held_one_of_its_key_is_marked<B: Backend>(backend: &B) {
    let rows = pair(backend, keyed("a"), Some(held())).await;

    assert_eq!(rows[0].before, Predecessor::Waiting);
}

/// An older row that is done, deleted or dead blocks nobody.
pub async fn a_row_behind_a_final_one_is_free<B: Backend>(backend: &B) {
    for verdict in [Verdict::Done, Verdict::Delete, dead()] {
        let rows = pair(backend, keyed("a"), Some(verdict.clone())).await;
        assert_eq!(rows[0].before, Predecessor::Nothing, "after {verdict:?}");
        let owner = Owner::of_all(backend).await;
        owner.settle_event(id_of(&rows[0]), Verdict::Delete).await;
        owner.store.leave(&owner.id).await.unwrap();
    }
}

/// Another key's older row, in whichever shard, holds nobody back.
pub async fn a_row_behind_another_key_is_free<B: Backend>(backend: &B) {
    let others = (0..100).map(|n| keyed(&format!("b{n}")));
    let ids = emit(backend, others.chain([keyed("a")])).await;
    let rows = read_all(backend).await;
    let floor = rows.iter().map(|row| row.seq).filter(|seq| *seq < row(&rows, &ids[100]).seq);

    let above = read_above(backend, floor.max().unwrap()).await;

    assert_eq!(row(&above, &ids[100]).before, Predecessor::Nothing);
}

/// A row without a key waits for nobody, and nobody waits for it.
pub async fn a_row_without_a_key_is_never_behind<B: Backend>(backend: &B) {
    let rows = pair(backend, free(), None).await;
    assert_eq!(rows[0].before, Predecessor::Nothing, "behind a row that has no key");

    let ids = emit(backend, (0..5).map(|_| free())).await;
    let floor = row(&read_all(backend).await, &ids[0]).seq;
    let above = read_above(backend, floor).await;
    assert!(above.iter().all(|row| row.before == Predecessor::Nothing));
}

/// From the head, the order of the rows says it all.
pub async fn a_row_read_from_the_head_is_not_behind<B: Backend>(backend: &B) {
    emit(backend, (0..5).map(|_| keyed("a"))).await;

    assert!(read_all(backend).await.iter().all(|row| row.before == Predecessor::Nothing));
}

/// `read_keys` gives the new rows of a key and no other's. Rows that wait or are held are left out,
/// and what is behind them says so.
pub async fn a_key_is_read_from_its_head<B: Backend>(backend: &B) {
    let mut envelopes = vec![keyed("a"), keyed("b"), keyed("a").deliver_after(HOUR), keyed("a")];
    envelopes.extend([keyed("a/1"), keyed("A"), free()]);
    let ids = emit(backend, envelopes).await;
    let at = seqs_of(backend, &ids).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[0], held()).await;

    let rows = read_key(backend, &ids[0], ALL).await;
    assert_eq!(befores(&rows), [(at[3], Predecessor::Waiting)]);

    replay(&*backend.store(), &ids[..1]).await;
    let rows = read_key(backend, &ids[0], ALL).await;
    assert_eq!(befores(&rows), [(at[0], Predecessor::Nothing), (at[3], Predecessor::Waiting)]);

    owner.settle_event(&ids[0], Verdict::Done).await;
    backend.age(&ids[2], HOUR).await;
    promote_all(backend).await;
    let rows = read_key(backend, &ids[0], ALL).await;
    assert_eq!(befores(&rows), [(at[2], Predecessor::Nothing), (at[3], Predecessor::Nothing)]);
}

/// `read_keys` gives no more rows than asked for, the oldest first.
pub async fn a_key_is_read_up_to_the_limit<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..5).map(|_| keyed("a"))).await;

    let rows = read_key(backend, &ids[0], 2).await;

    assert_eq!(rows.iter().map(id_of).collect::<Vec<_>>(), [&ids[0], &ids[1]]);
}

/// Each key has a limit and an order of its own, and one without rows takes nothing from others.
pub async fn many_keys_are_read_at_once<B: Backend>(backend: &B) {
    let names = ["a", "b", "a", "c", "d", "a", "b", "e", "f"];
    let ids = emit(backend, names.iter().map(|key| keyed(key))).await;
    let rows = read_all(backend).await;
    let owner = Owner::of_all(backend).await;
    owner.settle_event(&ids[3], Verdict::Done).await;
    let store = backend.store();

    let keys = [0, 1, 3, 4, 7].iter().map(|it| key_of(row(&rows, &ids[*it]))).collect();
    let rows =
        store.read_keys(&ReadKeys { keys, limit: 2, budget: Budget::unlimited() }).await.unwrap();

    let of = |name| rows.iter().filter(move |row| row.key.as_deref() == Some(name)).map(id_of);
    assert_eq!(of("a").collect::<Vec<_>>(), [&ids[0], &ids[2]]);
    assert_eq!(of("b").collect::<Vec<_>>(), [&ids[1], &ids[6]]);
    assert_eq!((of("d").count(), of("e").count()), (1, 1));
    assert_eq!(rows.len(), 6, "nothing of what is done, or was not asked for");
    assert!(
        store
            .read_keys(&ReadKeys { keys: vec![], limit: 2, budget: Budget::unlimited() })
            .await
            .unwrap()
            .is_empty()
    );
}

/// A busy shard does not use up the limit of the others.
pub async fn the_limit_counts_for_each_shard<B: Backend>(backend: &B) {
    emit(backend, (0..300).map(|n| keyed(&format!("{}", n % 30)))).await;
    let all = read_all(backend).await;
    let store = backend.store();
    let wanted = shards(&*store).await.into_iter().map(from_head).collect();

    let rows =
        store.read(&Read { shards: wanted, limit: 3, budget: Budget::unlimited() }).await.unwrap();

    for shard in shards(&*store).await {
        let of = |rows: &[Pending]| -> Vec<Seq> {
            rows.iter().filter(|row| row.shard == shard).map(|row| row.seq).collect()
        };
        let first: Vec<_> = of(&all).into_iter().take(3).collect();
        assert_eq!(of(&rows), first, "shard {shard:?}");
    }
}

/// However much waits, a page of each shard is the first that is above its floor.
pub async fn many_rows_are_read_page_by_page<B: Backend>(backend: &B) {
    emit(backend, (0..1500).map(|n| keyed(&format!("{}", n % 200)))).await;
    let all = read_all(backend).await;
    let store = backend.store();
    let middle = all[all.len() / 2].seq;

    // Twice, for a store may remember from the first time that there are many rows.
    for floor in [Seq::START, middle, Seq::START, middle] {
        let want = |shard| ShardRead { shard, floor };
        let wanted = shards(&*store).await.into_iter().map(want).collect();
        let rows = store
            .read(&Read { shards: wanted, limit: 4, budget: Budget::unlimited() })
            .await
            .unwrap();

        for shard in shards(&*store).await {
            let page: Vec<_> = rows.iter().filter(|row| row.shard == shard).collect();
            let above = all.iter().filter(|row| row.shard == shard && row.seq > floor).take(4);
            let expected: Vec<Seq> = above.map(|row| row.seq).collect();
            assert_eq!(page.iter().map(|row| row.seq).collect::<Vec<_>>(), expected, "{shard:?}");
            let is_below = |row: &Pending| all.iter().any(|o| o.key == row.key && o.seq <= floor);
            let before =
                |row| if is_below(row) { Predecessor::Unread } else { Predecessor::Nothing };
            assert!(page.iter().all(|row| row.before == before(row)), "above {floor:?}");
        }
    }
}

/// A read gives rows of the shards it names and no others.
pub async fn only_the_shards_asked_for_are_read<B: Backend>(backend: &B) {
    emit(backend, (0..100).map(|n| keyed(&n.to_string()))).await;
    let store = backend.store();
    let shard = read_all(backend).await[0].shard;

    let rows = store
        .read(&Read { shards: vec![from_head(shard)], limit: ALL, budget: Budget::unlimited() })
        .await
        .unwrap();
    let none = store
        .read(&Read { shards: vec![], limit: ALL, budget: Budget::unlimited() })
        .await
        .unwrap();

    assert!(!rows.is_empty() && rows.iter().all(|row| row.shard == shard));
    assert!(none.is_empty());
}

/// Emits an older event, settles it, emits a younger one of key `a`, and reads it above the older.
async fn pair<B: Backend>(backend: &B, older: Envelope, verdict: Option<Verdict>) -> Vec<Pending> {
    let id = emit_one(backend, older).await;
    let floor = stored(backend, &id).await.seq;
    if let Some(verdict) = verdict {
        let owner = Owner::of_all(backend).await;
        owner.settle_event(&id, verdict).await;
        owner.store.leave(&owner.id).await.unwrap();
    }
    let younger = emit_one(backend, keyed("a")).await;
    let rows = read_above(backend, floor).await;
    assert_eq!(seqs(&rows), seqs_of(backend, &[younger]).await);
    rows
}

async fn read_key<B: Backend>(backend: &B, id: &EventId, limit: u32) -> Vec<Pending> {
    let stored = stored(backend, id).await;
    let keys = vec![KeyRead { shard: stored.shard, key: stored.key.unwrap().into() }];
    backend.store().read_keys(&ReadKeys { keys, limit, budget: Budget::unlimited() }).await.unwrap()
}

fn befores(rows: &[Pending]) -> Vec<(Seq, Predecessor)> {
    rows.iter().map(|row| (row.seq, row.before)).collect()
}

fn key_of(row: &Pending) -> KeyRead {
    KeyRead { shard: row.shard, key: row.key.clone().unwrap() }
}
