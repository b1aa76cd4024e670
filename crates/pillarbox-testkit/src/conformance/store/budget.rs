//! Budget: a read brings no more content than it was asked for, whatever is in the table.

use std::collections::BTreeSet;

use pillarbox::store::{Before, Budget, Claim, Content, KeyRead, Pending, Read, ReadKeys, Status};
use pillarbox::{
    Envelope, EventId, Headers, Key, MAX_HEADERS_SIZE, MAX_PAYLOAD, Seq, ShardId, Verdict,
};

use crate::backend::{Backend, Foreign, Need, from_head};
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{
    ALL, HOUR, Owner, dead, emit, emit_one, free, id_of, keyed, read_all, replay, shards,
};
use crate::run::lacks;

/// Beyond every limit, and within what a MySQL server takes in one packet.
const OVERSIZED: usize = 12 << 20;
const KIB: usize = 1024;

/// Text beyond the limit comes as a row that is no event, packed well or not.
pub async fn an_oversized_text_stays_in_the_database<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let plain = "x".repeat(OVERSIZED - 2);
    let random = noise().take(OVERSIZED - 2).map(|number| char::from(b'a' + number % 16)).collect();
    for (id, text) in [("plain", plain), ("random", random)] {
        let payload = Some(format!("\"{text}\""));
        backend.insert_foreign(&Foreign { id, payload, ..Foreign::default() }).await;
    }

    is_refused(backend, ["plain", "random"], "payload has ", OVERSIZED, MAX_PAYLOAD).await;
}

/// Bytes beyond the limit come as a row that is no event.
pub async fn oversized_bytes_stay_in_the_database<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let payload_bytes = Some(vec![7; OVERSIZED]);
    backend.insert_foreign(&Foreign { id: "bytes", payload_bytes, ..Foreign::default() }).await;

    is_refused(backend, ["bytes"], "payload has ", OVERSIZED, MAX_PAYLOAD).await;
}

/// Headers beyond the limit come as a row that is no event.
pub async fn oversized_headers_stay_in_the_database<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let headers = Some(format!("{{\"n\":\"{}\"}}", "x".repeat(OVERSIZED - 8)));
    let payload = Some("1".to_owned());
    backend.insert_foreign(&Foreign { id: "h", payload, headers, ..Foreign::default() }).await;

    is_refused(backend, ["h"], "headers have ", OVERSIZED, MAX_HEADERS_SIZE).await;
}

/// The limits are exact.
pub async fn what_is_one_byte_too_large_is_refused<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let large = MAX_PAYLOAD + 1;
    let payload = Some(format!("\"{}\"", "x".repeat(large - 2)));
    backend.insert_foreign(&Foreign { id: "a", payload, ..Foreign::default() }).await;

    is_refused(backend, ["a"], "payload has ", large, MAX_PAYLOAD).await;
}

/// All that came at once is small, and what is fetched then is within the budget.
pub async fn a_read_keeps_within_its_budget<B: Backend>(backend: &B) {
    let small = emit(backend, (0..20).map(|_| keyed("k"))).await;
    let large = emit(backend, (0..12).map(|_| of_size("k", MAX_PAYLOAD))).await;

    let rows = read(backend, 4 << 20, BTreeSet::new(), ALL).await;

    assert_eq!(rows.len(), 32);
    assert!(bytes(&rows) <= 4 << 20, "{} bytes came", bytes(&rows));
    let came: Vec<_> = rows.iter().filter_map(|row| Some(row.event()?.event_id())).collect();
    assert_eq!(came, small.iter().chain(&large[..3]).collect::<Vec<_>>(), "the first ones");
    for left in &rows[23..] {
        let Content::Unread { size } = &left.content else { panic!("{left:?}") };
        assert!((MAX_PAYLOAD..=MAX_PAYLOAD + MAX_HEADERS_SIZE).contains(size), "{size}");
    }
}

/// What the reader has is skipped, so that each read brings the next rows.
pub async fn a_read_goes_on_where_the_budget_ended<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..10).map(|_| of_size("k", MAX_PAYLOAD))).await;
    let (mut seen, mut came) = (BTreeSet::new(), Vec::new());

    for _ in 0..5 {
        let rows = read(backend, 2 * (MAX_PAYLOAD + MAX_HEADERS_SIZE), seen.clone(), ALL).await;
        assert_eq!(rows.len(), 10, "what came stays in the page");
        let with_event = rows.iter().filter_map(|row| Some((row.seq, row.event()?.event_id())));
        for (seq, id) in with_event {
            assert!(seen.insert(seq), "it came before");
            came.push(id.clone());
        }
    }

    assert_eq!(came, ids);
}

/// No shard has all of it: the first row of each comes before the second of any.
pub async fn shards_share_the_budget<B: Backend>(backend: &B) {
    let keys = ["a", "b", "c", "d", "e", "f", "g", "h"];
    emit(backend, (0..2).flat_map(|_| keys.map(|key| of_size(key, MAX_PAYLOAD)))).await;
    let rows = read_all(backend).await;
    let of_shards: BTreeSet<ShardId> = rows.iter().map(|row| row.shard).collect();

    let budget = of_shards.len() * (MAX_PAYLOAD + MAX_HEADERS_SIZE);
    let rows = read(backend, budget, BTreeSet::new(), ALL).await;

    let with_event = rows.iter().filter(|row| row.event().is_some());
    let came: BTreeSet<ShardId> = with_event.map(|row| row.shard).collect();
    assert_eq!(came, of_shards);
}

/// Without a budget nothing would ever be delivered.
pub async fn one_row_comes_whatever_its_size<B: Backend>(backend: &B) {
    let ids = emit(backend, (0..3).map(|_| of_size("k", 100 * KIB))).await;

    let rows = read(backend, 0, BTreeSet::new(), ALL).await;

    let came: Vec<_> = rows.iter().filter_map(|row| Some(row.event()?.event_id())).collect();
    assert_eq!((came, rows.len()), (vec![&ids[0]], 3));
}

/// Rows before their time, and rows behind one that waits, leave it to those that can start.
pub async fn what_cannot_start_uses_up_no_budget<B: Backend>(backend: &B) {
    let early = emit_one(backend, of_size("k", MAX_PAYLOAD)).await;
    backend.make_early(&early, HOUR).await;
    emit(backend, [of_size("late", 1).deliver_after(HOUR), of_size("late", MAX_PAYLOAD)]).await;
    let due = emit_one(backend, of_size("k", MAX_PAYLOAD)).await;

    let rows = read(backend, 0, BTreeSet::new(), ALL).await;

    let (came, left): (Vec<_>, Vec<_>) = rows.iter().partition(|row| row.event().is_some());
    assert_eq!(came.into_iter().map(id_of).collect::<Vec<_>>(), [&due]);
    assert_eq!(left.len(), 2);
    let cannot_start = |row: &Pending| row.is_early || row.before == Before::Waiting;
    assert!(left.iter().all(|row| row.content.is_unread() && cannot_start(row)), "{left:?}");
}

/// Headers take as much memory as a payload does.
pub async fn large_headers_count<B: Backend>(backend: &B) {
    let mut headers = Headers::new();
    (0..7).for_each(|n| headers.insert(format!("{n}"), "x".repeat(8000)).unwrap());
    emit(backend, (0..40).map(|_| keyed("k").headers(headers.clone()))).await;

    let rows = read(backend, KIB << 10, BTreeSet::new(), ALL).await;

    let count = rows.iter().filter(|row| row.event().is_some()).count();
    assert!((1..=18).contains(&count), "{count} came with 56 KiB each");
    assert!(bytes(&rows) <= KIB << 10, "{} bytes came", bytes(&rows));
}

/// Keys take turns, each from its head.
pub async fn a_read_of_keys_keeps_within_its_budget<B: Backend>(backend: &B) {
    let keys = ["a", "b", "c"];
    emit(backend, (0..4).flat_map(|_| keys.map(|key| of_size(key, MAX_PAYLOAD)))).await;
    let rows = read_all(backend).await;
    let wanted: Vec<KeyRead> =
        keys.iter().map(|key| rows.iter().find_map(|row| key_of(row, key)).unwrap()).collect();

    let budget = Budget::new(5 * (MAX_PAYLOAD + MAX_HEADERS_SIZE));
    let read = ReadKeys { keys: wanted, limit: 10, budget };
    let rows = backend.store().read_keys(&read).await.unwrap();

    assert_eq!(rows.len(), 12);
    assert!(bytes(&rows) <= read.budget.bytes, "{} bytes came", bytes(&rows));
    let came = |key: &str| {
        let of_key = rows.iter().filter(|row| row.key.as_deref() == Some(key));
        of_key.map(|row| row.event().is_some()).collect::<Vec<_>>()
    };
    assert_eq!(came("a"), [true, true, false, false]);
    assert_eq!(came("b"), [true, true, false, false]);
    assert_eq!(came("c"), [true, false, false, false]);
}

/// What is beyond the budget is leased and comes without content; given back, it is claimed again.
pub async fn a_claim_keeps_within_its_budget<B: Backend>(backend: &B) {
    let text = "x".repeat(MAX_PAYLOAD - 2);
    let ids = emit(backend, (0..9).map(|_| Envelope::json("large.one", &text).unwrap())).await;
    let claimer = Claimer::unordered(backend).await;
    let budget = Budget::new(3 * (MAX_PAYLOAD + MAX_HEADERS_SIZE));
    let mut came: Vec<EventId> = Vec::new();

    for left in [6, 3, 0] {
        let claim = Claim { budget: budget.clone(), ..claimer.wish(ALL) };
        let rows = claimer.store.claim(&claim).await.unwrap();
        assert!(bytes(&rows) <= budget.bytes, "{} bytes came", bytes(&rows));
        came.extend(rows.iter().filter_map(|row| row.event()).map(|it| it.event_id().clone()));
        let (unread, _): (Vec<_>, Vec<_>) =
            rows.into_iter().partition(|row| row.content.is_unread());
        assert_eq!(unread.len(), left);
        assert_eq!(claimer.renew(&unread, HOUR).await.len(), left, "they are leased: {unread:?}");
        assert_eq!(claimer.release(&unread).await, left as u64, "{:?}", seqs(&unread));
    }

    came.sort();
    let mut ids = ids;
    ids.sort();
    assert_eq!(came, ids);
}

/// Whether a claim leases it or not, one verdict is written on it, once, and a stale one never is.
pub async fn an_oversized_row_takes_one_verdict<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    let id = EventId::new("large").unwrap();
    insert_oversized(backend, "large").await;
    let (one, two) = (Claimer::unordered(backend).await, Claimer::unordered(backend).await);
    let first = one.claim().await;
    let second = two.claim().await;
    let claimed: Vec<_> = first.iter().map(|row| (&one, row)).collect();
    let claimed = claimed.into_iter().chain(second.iter().map(|row| (&two, row)));

    let mut written = 0;
    for (claimer, row) in claimed.clone() {
        written += claimer.judge(row, dead()).await.len();
    }

    assert_eq!(written, 1);
    assert_eq!(backend.store().trail("large").await.unwrap().len(), 1);
    replay(&*backend.store(), std::slice::from_ref(&id)).await;
    for (claimer, row) in claimed {
        assert!(claimer.judge(row, Verdict::Delete).await.is_empty(), "it was decided on since");
    }
    assert_eq!(backend.store().event(&id).await.unwrap().unwrap().status, Status::New);
}

/// Where one relay has the shard, another does not write all of the row once more.
pub async fn an_oversized_row_is_claimed_by_one<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    insert_oversized(backend, "large").await;
    let owner = Owner::of_all(backend).await;
    let holder = Claimer { id: owner.id.clone(), ..Claimer::unordered(backend).await };
    let other = Claimer::unordered(backend).await;

    let claimed = [holder.claim().await, other.claim().await];

    let rows = claimed.iter().flatten().count();
    assert_eq!(rows, 1, "{claimed:?}");
}

/// A row whose verdict cannot be written now keeps no other from being claimed.
pub async fn an_oversized_row_is_passed_by<B: Backend>(backend: &B) {
    if lacks(backend, Need::Tables) {
        return;
    }
    insert_oversized(backend, "first").await;
    insert_oversized(backend, "second").await;
    let claimer = Claimer::unordered(backend).await;
    let mut claimed = claimer.claim().await;

    let budget = Budget { skip: seqs(&claimed).into_iter().collect(), ..Budget::unlimited() };
    let claim = Claim { budget, ..claimer.wish(ALL) };
    claimed.extend(claimer.store.claim(&claim).await.unwrap());

    assert_eq!(seqs(&claimed), seqs(&read_all(backend).await));
}

async fn insert_oversized<B: Backend>(backend: &B, id: &'static str) {
    let payload_bytes = Some(vec![7; MAX_PAYLOAD + 1]);
    backend.insert_foreign(&Foreign { id, payload_bytes, ..Foreign::default() }).await;
}

/// Reads, claims and shows the rows, which are refused with their size and the limit each time.
async fn is_refused<B: Backend, const N: usize>(
    backend: &B,
    ids: [&str; N],
    part: &str,
    size: usize,
    limit: usize,
) {
    let legal = emit_one(backend, free()).await;
    let is_told = |cause: &str| {
        // A database that did not look at all of it tells the size as it is stored.
        let is_exact = cause == format!("{part}{size} bytes, the limit is {limit}");
        is_exact
            || cause.starts_with(&format!("{part}at least ")) && cause.ends_with(&limit.to_string())
    };
    let check = |rows: &[Pending]| {
        for id in ids {
            let is_of =
                |row: &&Pending| matches!(&row.content, Content::Invalid(it) if it.event_id == id);
            let found = rows.iter().find(is_of).unwrap_or_else(|| panic!("{id} among {rows:?}"));
            let Content::Invalid(bad) = &found.content else { unreachable!() };
            assert!(is_told(&bad.cause), "{}", bad.cause);
        }
        let of_legal = rows.iter().find(|row| row.event().is_some()).unwrap();
        assert_eq!(of_legal.event().unwrap().event_id(), &legal);
    };
    check(&read_all(backend).await);
    check(&read(backend, 4 << 20, BTreeSet::new(), 100).await);
    let claimer = Claimer::unordered(backend).await;
    let mut claimed = claimer.claim().await;
    // Those that are too large may come one by one, each until it is decided on.
    loop {
        for row in claimed.iter().filter(|row| row.event().is_none()) {
            claimer.judge(row, dead()).await;
        }
        if claimed.len() > N {
            break;
        }
        let more = claimer.claim().await;
        assert!(!more.is_empty(), "{} of {} rows were claimed", claimed.len(), N + 1);
        claimed.extend(more);
    }
    check(&claimed);
    for id in ids {
        let stored = backend.store().event(&EventId::new(id).unwrap()).await.unwrap().unwrap();
        let bad = stored.event.unwrap_err();
        assert!(is_told(&bad.cause) && bad.event_id == id, "{bad:?}");
    }
}

/// Reads every shard from its head.
async fn read<B: Backend>(
    backend: &B,
    bytes: usize,
    skip: BTreeSet<Seq>,
    limit: u32,
) -> Vec<Pending> {
    let store = backend.store();
    let shards = shards(&*store).await.into_iter().map(from_head).collect();
    store.read(&Read { shards, limit, budget: Budget { bytes, skip } }).await.unwrap()
}

fn bytes(rows: &[Pending]) -> usize {
    rows.iter().map(|row| row.content.bytes()).sum()
}

fn key_of(row: &Pending, key: &str) -> Option<KeyRead> {
    let key = row.key.clone().filter(|known| **known == *key)?;
    Some(KeyRead { shard: row.shard, key })
}

/// An event of a key whose payload has so many bytes.
fn of_size(key: &str, size: usize) -> Envelope {
    let envelope = Envelope::bytes("large.one", noise().take(size).collect::<Vec<_>>()).unwrap();
    envelope.key(Key::Given(key.to_owned())).unwrap()
}

/// What cannot be packed, the same each time.
fn noise() -> impl Iterator<Item = u8> {
    std::iter::successors(Some(0x9e37_79b9_7f4a_7c15_u64), |last| {
        Some(last.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407))
    })
    .map(|number| number.to_be_bytes()[0])
}
