//! Heads: one row of each key of a shard, and after the keys what has none.

use std::collections::BTreeMap;

use pillarbox::store::{Budget, Heads, HeadsCursor, Pending, Predecessor, ReadHeads};
use pillarbox::{Envelope, Key, Seq, ShardId, Verdict};

use crate::backend::Backend;
use crate::conformance::claimer::seqs;
use crate::conformance::owner::{
    ALL, HOUR, Owner, emit, emit_one, free, held, id_of, keyed, promote_all, read_all, shards,
    stored,
};

/// Of each key the oldest new row comes, in the order of the keys' bytes, and no row of other shards.
pub async fn one_row_of_each_key_comes_in_order<B: Backend>(backend: &B) {
    crowd(backend).await;
    let all = read_all(backend).await;

    for shard in shards(&*backend.store()).await {
        let read = page(backend, shard, HeadsCursor::start(), ALL).await;
        assert_eq!(seqs(&read.rows), heads(&all, shard), "{shard:?}");
        assert!(read.rows.iter().all(|row| row.shard == shard));
        assert!(read.rows.iter().all(|row| row.before == Predecessor::Nothing));
        assert_eq!(read.next, Some(HeadsCursor::Keyless(Seq::START)));
    }
}

/// After the keys come rows without one, up to the row asked for, in order of `seq`.
pub async fn rows_without_a_key_come_after_the_keys<B: Backend>(backend: &B) {
    crowd(backend).await;
    let all = read_all(backend).await;
    let up_to = all.iter().map(|row| row.seq).nth(all.len() / 2).unwrap();

    for shard in shards(&*backend.store()).await {
        let read = request(shard, HeadsCursor::Keyless(Seq::START), ALL);
        let read = backend.store().read_heads(&ReadHeads { up_to, ..read }).await.unwrap();
        assert_eq!(seqs(&read.rows), keyless(&all, shard, up_to), "{shard:?}");
        assert_eq!(read.next, None);
    }
}

/// Pages leave nothing out and show nothing twice, to the end.
pub async fn pages_go_on_to_the_end<B: Backend>(backend: &B) {
    crowd(backend).await;
    let all = read_all(backend).await;

    for shard in busiest(&all) {
        for limit in [1, 2, 3] {
            let expected = [heads(&all, shard), keyless(&all, shard, Seq(i64::MAX))].concat();
            let rows = walk(backend, shard, limit).await;
            assert_eq!(seqs(&rows), expected, "{shard:?} by {limit}");
        }
    }
}

/// A cursor is a position, not a row: the row may be gone, and newer rows are found.
pub async fn a_cursor_is_a_position<B: Backend>(backend: &B) {
    crowd(backend).await;
    let all = read_all(backend).await;
    let shard = busiest(&all)[0];
    let first = page(backend, shard, HeadsCursor::start(), 1).await;
    let next = first.next.unwrap();
    assert_eq!(next, HeadsCursor::Key(first.rows[0].key.clone().unwrap()));
    let owner = Owner::of_all(backend).await;
    let line = all.iter().filter(|row| row.key == first.rows[0].key);
    let done = line.map(|row| owner.settlement(row, Verdict::Done)).collect();
    owner.settle(done).await;

    let rest = page(backend, shard, next, ALL).await;

    assert_eq!(seqs(&rest.rows), heads(&all, shard)[1..]);
}

/// The head of a key that waits comes too, and says that it does.
pub async fn a_blocked_head_is_marked_blocked<B: Backend>(backend: &B) {
    let older = emit(backend, [keyed("a").deliver_after(HOUR), keyed("b")]).await;
    Owner::of_all(backend).await.settle_event(&older[1], held()).await;
    let tails = emit(backend, ["a", "a", "b", "b"].map(keyed)).await;

    for (old, head) in [(&older[0], &tails[0]), (&older[1], &tails[2])] {
        let head = stored(backend, head).await;
        let read = page(backend, head.shard, HeadsCursor::start(), ALL).await;
        let row = read.rows.iter().find(|row| row.seq == head.seq).expect("it is read");
        assert_eq!(row.before, Predecessor::Waiting);
        let of_key = read.rows.iter().filter(|row| row.key.as_deref() == head.key.as_deref());
        assert_eq!(of_key.count(), 1, "{old} waits, and its tail is not read");
    }

    backend.age(&older[0], HOUR).await;
    promote_all(backend).await;
    let head = stored(backend, &older[0]).await;
    let read = page(backend, head.shard, HeadsCursor::start(), ALL).await;
    let row = read.rows.iter().find(|row| row.seq == head.seq).expect("it is the head again");
    assert_eq!(row.before, Predecessor::Nothing);
}

/// However long the tail of a key is, its head is followed by that of the next key.
pub async fn the_rest_of_a_key_is_skipped<B: Backend>(backend: &B) {
    emit_one(backend, keyed("a").deliver_after(HOUR)).await;
    emit(backend, (0..1500).map(|_| keyed("a"))).await;
    let others = (0..300).map(|n| keyed(&format!("b{n}")));
    emit(backend, others).await;
    let all = read_all(backend).await;
    let shard = all.iter().find(|row| row.key.as_deref() == Some("a")).unwrap().shard;

    let read = page(backend, shard, HeadsCursor::start(), 2).await;

    assert_eq!(seqs(&read.rows), heads(&all, shard)[..2]);
    let before = read.rows.iter().map(|row| row.before).collect::<Vec<_>>();
    assert_eq!(before, [Predecessor::Waiting, Predecessor::Nothing]);
}

/// Each page says which was the newest new row of the shard; rows that wait do not count.
pub async fn the_newest_row_of_the_shard_is_reported<B: Backend>(backend: &B) {
    let ids = emit(backend, [keyed("a"), keyed("a"), keyed("a").deliver_after(HOUR)]).await;
    emit(backend, (0..100).map(|_| free().deliver_after(HOUR))).await;
    let newest = stored(backend, &ids[1]).await;
    let other = shards(&*backend.store()).await.into_iter().find(|shard| *shard != newest.shard);

    for after in [HeadsCursor::start(), HeadsCursor::Keyless(Seq::START)] {
        let read = page(backend, newest.shard, after.clone(), ALL).await;
        assert_eq!(read.newest, newest.seq, "{after:?}");
        if let Some(other) = other {
            assert_eq!(page(backend, other, after.clone(), ALL).await.newest, Seq::START);
        }
    }
}

/// Content comes for heads that can start, within the budget.
pub async fn heads_keep_within_their_budget<B: Backend>(backend: &B) {
    let large = |n: usize| Envelope::bytes("large.one", vec![7; 64 << 10]).unwrap().key(given(n));
    emit(backend, (0..200).map(|n| large(n).unwrap())).await;
    let shard = busiest(&read_all(backend).await)[0];

    let budget = Budget::new((128 << 10) + 100);
    let read = ReadHeads { budget, ..request(shard, HeadsCursor::start(), ALL) };
    let rows = backend.store().read_heads(&read).await.unwrap().rows;

    let bytes: usize = rows.iter().map(|row| row.content.bytes()).sum();
    assert!(bytes <= read.budget.bytes, "{bytes} bytes came");
    let came: Vec<_> = rows.iter().map(|row| row.event().is_some()).collect();
    assert_eq!(came, (0..rows.len()).map(|at| at < 2).collect::<Vec<_>>());
    assert!(rows.len() > 2);
}

/// What is there comes whole: the same as a read from the head of the shard brings.
pub async fn a_head_equals_the_row_of_a_read<B: Backend>(backend: &B) {
    let id = emit_one(backend, keyed("a")).await;
    let all = read_all(backend).await;

    let read = page(backend, all[0].shard, HeadsCursor::start(), ALL).await;

    assert_eq!(id_of(&read.rows[0]), &id);
    let plain = |row: &Pending| (row.seq, row.token, row.status, row.attempts, row.due_in);
    assert_eq!(plain(&read.rows[0]), plain(&all[0]));
    assert_eq!(read.rows[0].event(), all[0].event());
}

/// Keys of all sorts with two rows each, and rows without a key.
async fn crowd<B: Backend>(backend: &B) {
    let odd = ["a", "A", "a ", " a", "á", "a\u{301}", "ß", "zz", "\u{10ffff}"];
    let key = |n: usize| format!("{}{}", odd[n % odd.len()], n / 3);
    for _ in 0..2 {
        emit(backend, (0..300).map(|n| keyed(&key(n)))).await;
        emit(backend, (0..100).map(|_| free())).await;
    }
}

/// The heads of keys that are among these rows, which come by shard and `seq`.
fn heads(rows: &[Pending], shard: ShardId) -> Vec<Seq> {
    let mut heads: BTreeMap<&[u8], Seq> = BTreeMap::new();
    for row in rows.iter().filter(|row| row.shard == shard) {
        if let Some(key) = row.key.as_deref() {
            heads.entry(key.as_bytes()).or_insert(row.seq);
        }
    }
    heads.into_values().collect()
}

fn keyless(rows: &[Pending], shard: ShardId, up_to: Seq) -> Vec<Seq> {
    let of_shard = rows.iter().filter(|row| row.shard == shard && row.key.is_none());
    of_shard.map(|row| row.seq).filter(|seq| *seq <= up_to).collect()
}

/// The three shards with most rows.
fn busiest(rows: &[Pending]) -> Vec<ShardId> {
    let mut counts: BTreeMap<ShardId, usize> = BTreeMap::new();
    rows.iter().for_each(|row| *counts.entry(row.shard).or_default() += 1);
    let mut shards: Vec<_> = counts.into_iter().map(|(shard, count)| (count, shard)).collect();
    shards.sort();
    shards.into_iter().rev().take(3).map(|(_, shard)| shard).collect()
}

/// Reads page after page, and checks that each has its limit.
async fn walk<B: Backend>(backend: &B, shard: ShardId, limit: u32) -> Vec<Pending> {
    let (mut after, mut rows) = (HeadsCursor::start(), Vec::new());
    loop {
        let read = page(backend, shard, after, limit).await;
        assert!(read.rows.len() <= limit as usize);
        rows.extend(read.rows);
        let Some(next) = read.next else { return rows };
        after = next;
    }
}

async fn page<B: Backend>(backend: &B, shard: ShardId, after: HeadsCursor, limit: u32) -> Heads {
    backend.store().read_heads(&request(shard, after, limit)).await.unwrap()
}

fn request(shard: ShardId, after: HeadsCursor, limit: u32) -> ReadHeads {
    ReadHeads { shard, after, up_to: Seq(i64::MAX), limit, budget: Budget::unlimited() }
}

fn given(n: usize) -> Key {
    Key::Given(n.to_string())
}
