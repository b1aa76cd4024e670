//! Competing claimers: a row has one owner at a time.

use std::collections::{HashMap, HashSet};
use std::pin::pin;
use std::sync::{Arc, Mutex};

use futures_util::future::{Either, join, join_all, select};
use pillarbox::store::Pending;
use pillarbox::{Seq, Verdict};
use tokio::task::yield_now;

use crate::backend::{Backend, Hold, Need};
use crate::conformance::claimer::{Claimer, seqs};
use crate::conformance::owner::{HOUR, dead, emit, free, keyed, read_all};
use crate::run::lacks;

const CLAIMERS: usize = 8;
const EVENTS: usize = 2000;
const KEYS: usize = 50;

/// Eight claimers settle every event once; none has what another has, and keys go by seq.
pub async fn eight_claimers_never_overlap<B: Backend>(backend: &B) {
    let keyed = |n: usize| keyed(&(n % KEYS).to_string());
    let event = |n: usize| if n.is_multiple_of(2) { free() } else { keyed(n / 2) };
    emit(backend, (0..EVENTS).map(event)).await;
    let owners = Mutex::new(Owners::default());
    let claimers = join_all((0..CLAIMERS).map(|_| Claimer::apart(backend))).await;

    let work = claimers.iter().enumerate();
    join_all(work.map(|(number, claimer)| compete(number, claimer, &owners))).await;

    let owners = owners.into_inner().unwrap();
    assert_eq!(owners.done.len(), EVENTS);
    assert!(owners.rows.is_empty() && owners.keys.is_empty());
    assert!(read_all(backend).await.is_empty());
    assert_eq!(backend.store().breakdown().await.unwrap().done, EVENTS as u64);
}

/// A claim passes a row that another call is at work on, and does not wait for it.
pub async fn a_claim_passes_a_locked_row<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    emit(backend, (0..20).map(|_| free())).await;
    let claimer = Claimer::new(backend).await;
    let all = read_all(backend).await;
    let lock = backend.hold(Hold::Event(all[0].seq)).await;

    let claimed = claim_passing(backend, &claimer).await;

    lock.commit().await;
    assert_eq!(seqs(&claimed), seqs(&all[1..]));
    assert_eq!(seqs(&claimer.claim().await), seqs(&all[..1]), "it was only passed by");
}

/// A head that another call is at work on is passed by with all that is behind it.
pub async fn a_locked_head_blocks_its_key<B: Backend>(backend: &B) {
    if lacks(backend, Need::RowLocks) {
        return;
    }
    emit(backend, ["a", "a"].map(keyed)).await;
    let all = read_all(backend).await;
    let lock = backend.hold(Hold::Event(all[0].seq)).await;
    let claimer = Claimer::new(backend).await;

    let claimed = claim_passing(backend, &claimer).await;

    lock.commit().await;
    assert!(claimed.is_empty());
    assert_eq!(seqs(&claimer.claim().await), seqs(&all[..1]));
}

/// A claim of a few rows leaves the others to be claimed, also while it is under way.
pub async fn two_claims_at_once_share_the_rows<B: Backend>(backend: &B) {
    let (one, two) = join(Claimer::apart(backend), Claimer::apart(backend)).await;
    for _ in 0..20 {
        emit(backend, (0..10).map(|_| free())).await;

        let (first, second) = join(one.claim_up_to(5), two.claim_up_to(5)).await;
        let rest = one.claim().await;

        let rows: Vec<Seq> = [&first, &second, &rest].into_iter().flat_map(|r| seqs(r)).collect();
        assert_eq!(rows.iter().collect::<HashSet<_>>().len(), rows.len(), "a row went twice");
        assert_eq!(rows.len(), 10);
        for (claimer, rows) in [(&one, &first), (&two, &second), (&one, &rest)] {
            let applied = claimer.settle(rows.iter().map(|row| (row, Verdict::Delete))).await;
            assert_eq!(applied.len(), rows.len());
        }
    }
}

/// The same verdicts on claimed rows, sent twice at the same moment, are written once.
pub async fn two_settles_of_claimed_rows_apply_once<B: Backend>(backend: &B) {
    for _ in 0..20 {
        let ids = emit(backend, (0..5).map(|_| free())).await;
        let claimer = Claimer::new(backend).await;
        let rows = claimer.claim().await;
        // The state of the rows tells a failed claim from a settle that writes nothing.
        let state = |row: &Pending| (row.seq, row.token, row.due_in, row.lapsed);
        let pending: Vec<_> = read_all(backend).await.iter().map(state).collect();
        assert_eq!(rows.len(), 5, "claimed of {pending:?}");
        let verdicts = || rows.iter().map(|row| (row, dead()));

        let (one, two) = join(claimer.settle(verdicts()), claimer.settle(verdicts())).await;

        assert_eq!(one.len() + two.len(), 5);
        for id in &ids {
            assert_eq!(backend.store().audit_trail(id.as_str()).await.unwrap().len(), 1);
        }
    }
}

async fn claim_passing<B: Backend>(backend: &B, claimer: &Claimer) -> Vec<Pending> {
    match select(pin!(claimer.claim()), pin!(backend.blocked(1))).await {
        Either::Left((claimed, _)) => claimed,
        Either::Right(_) => panic!("the claim waits for a row that it could pass"),
    }
}

/// The owner of each leased row, as far as the claimers know.
#[derive(Default)]
struct Owners {
    rows: HashMap<Seq, usize>,
    keys: HashMap<Arc<str>, usize>,
    /// The last row of a key that was leased.
    last: HashMap<Arc<str>, Seq>,
    done: HashSet<Seq>,
}

impl Owners {
    fn claim(&mut self, who: usize, rows: &[Pending]) {
        for row in rows {
            assert!(!self.done.contains(&row.seq), "{:?} was claimed after its end", row.seq);
            let other = self.rows.insert(row.seq, who);
            assert_eq!(other, None, "{:?} is claimed by two at once", row.seq);
            let Some(key) = row.key.clone() else { continue };
            let other = self.keys.insert(key.clone(), who);
            assert_eq!(other, None, "two of key {key} are claimed at once");
            let last = self.last.insert(key.clone(), row.seq);
            assert!(last <= Some(row.seq), "key {key}: {last:?} before {:?}", row.seq);
        }
    }

    fn give_up(&mut self, rows: &[Pending]) {
        for row in rows {
            self.rows.remove(&row.seq);
            self.keys.remove(row.key.as_deref().unwrap_or_default());
        }
    }
}

/// Claims, gives some back, renews some and settles the rest, until there is nothing left.
async fn compete(number: usize, claimer: &Claimer, owners: &Mutex<Owners>) {
    while owners.lock().unwrap().done.len() < EVENTS {
        let rows = claimer.claim_up_to(10 + u32::try_from(number).unwrap()).await;
        owners.lock().unwrap().claim(number, &rows);
        // Where a call is one step, the others run here.
        yield_now().await;
        let is_new = |row: &Pending| row.token.0 == 1 && row.seq.0 % 7 == 0;
        let (back, kept): (Vec<_>, Vec<_>) = rows.into_iter().partition(is_new);

        // From here on others may claim them.
        owners.lock().unwrap().give_up(&back);
        assert_eq!(claimer.release(&back).await, back.len() as u64);
        renew(claimer, &kept[..kept.len() / 2]).await;
        yield_now().await;
        owners.lock().unwrap().give_up(&kept);
        let settled = claimer.settle(kept.iter().map(|row| (row, Verdict::Done))).await;
        let settled: HashSet<_> = settled.into_iter().collect();
        assert_eq!(settled, seqs(&kept).into_iter().collect(), "a lease was lost");
        owners.lock().unwrap().done.extend(settled);
    }
}

/// Another claim may lock a row while it checks whether the row is due. A renewal skips the row then,
/// and the next one renews it.
async fn renew(claimer: &Claimer, rows: &[Pending]) {
    let mut left: Vec<Pending> = rows.to_vec();
    for _ in 0..1000 {
        let renewed = claimer.renew(&left, HOUR).await;
        left.retain(|row| !renewed.contains(&row.seq));
        if left.is_empty() {
            return;
        }
        yield_now().await;
    }
    panic!("leases were lost: {:?}", seqs(&left));
}
