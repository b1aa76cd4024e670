//! The board: which rows are in hand, which may start, which keys wait. Pure, no I/O.
//!
//! Rules it keeps: a row in hand is never taken twice; per key one event is under way at a time
//! and later ones wait behind it, also while it waits for a retry or is held; a row that is
//! settled stays in hand until every read that began before has been taken in.

mod lane;
mod take;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, HashMap, VecDeque};

use tokio::time::Instant;

use self::lane::{Lane, Parked};
use crate::id::{Epoch, Seq, ShardId};
use crate::store::{Pending, ReadKey, ShardRead};
use crate::verdict::Verdict;

/// Keys remembered as waiting; beyond that, each sweep finds them again.
const MOST_PARKED: usize = 100_000;

type LaneKey = (ShardId, String);

#[derive(Debug)]
pub(super) struct Board {
    pages: Pages,
    shards: BTreeMap<ShardId, Shard>,
    /// Every row in hand, from its read to the end of its settle.
    known: HashMap<Seq, ShardId>,
    lanes: HashMap<LaneKey, Lane>,
    /// The rows that lanes wait for, in order, to notice one that vanishes.
    parked: BTreeMap<(ShardId, Seq), String>,
    /// The lanes whose wait ends by itself, in order of time.
    due: BTreeSet<(Instant, LaneKey)>,
    ready: VecDeque<Pending>,
    key_reads: VecDeque<LaneKey>,
    /// Settled while a read was under way, which may still show them as they were.
    settled_during_read: Vec<Seq>,
    /// Lanes to be read once the read under way, which may show them as they were, has ended.
    doubtful: Vec<LaneKey>,
    read_under_way: bool,
    /// Whether the last read was of a key: keys and shards take turns.
    key_was_last: bool,
}

/// How much to read at a time.
#[derive(Clone, Copy, Debug)]
pub(super) struct Pages {
    /// Rows of all shards together.
    pub(super) batch: u32,
    /// Rows of each shard, at least.
    pub(super) least: u32,
}

#[derive(Debug)]
struct Shard {
    epoch: Epoch,
    /// Nothing at or below it is worth reading before the next sweep.
    floor: Seq,
    /// Whether a read may find something new.
    hungry: bool,
    /// The read under way was begun for it. One begun before it was lost and taken again shows
    /// what was decided since as undecided: its rows do not count.
    asked: bool,
    /// The last page was full: there are rows behind it.
    more: bool,
    /// To be read from its head, once the pass under way has come to its end: a pass that is cut
    /// short again and again would never reach the rows behind a crowd that waits.
    again: bool,
    /// When the first delayed row without a key is due.
    next_due: Option<Instant>,
}

/// A row under way, as the board knows it.
#[derive(Clone, Debug)]
pub(super) struct Ticket {
    pub(super) seq: Seq,
    pub(super) shard: ShardId,
    pub(super) key: Option<String>,
}

/// A read to be done.
#[derive(Clone, Debug)]
pub(super) enum Wanted {
    Shards { shards: Vec<ShardRead>, limit: u32 },
    Key(ReadKey),
}

impl Board {
    pub(super) fn new(pages: Pages) -> Self {
        Self {
            pages,
            shards: BTreeMap::new(),
            known: HashMap::new(),
            lanes: HashMap::new(),
            parked: BTreeMap::new(),
            due: BTreeSet::new(),
            ready: VecDeque::new(),
            key_reads: VecDeque::new(),
            settled_during_read: Vec::new(),
            doubtful: Vec::new(),
            read_under_way: false,
            key_was_last: false,
        }
    }

    /// Works on the shards now held; forgets what waited in those that are not.
    pub(super) fn hold(&mut self, held: &BTreeMap<ShardId, Epoch>) {
        let moved = |(shard, state): &(&ShardId, &Shard)| held.get(shard) != Some(&state.epoch);
        let lost: Vec<ShardId> =
            self.shards.iter().filter(moved).map(|(shard, _)| *shard).collect();
        lost.into_iter().for_each(|shard| self.drop_shard(shard));
        for (shard, epoch) in held {
            self.shards.entry(*shard).or_insert(Shard {
                epoch: *epoch,
                floor: Seq::START,
                hungry: true,
                asked: false,
                more: false,
                again: false,
                next_due: None,
            });
        }
    }

    /// Forgets a shard that is another's now. What is in delivery stays in hand until it ends.
    fn drop_shard(&mut self, shard: ShardId) {
        self.shards.remove(&shard);
        let ready = std::mem::take(&mut self.ready);
        let (gone, kept): (VecDeque<_>, VecDeque<_>) =
            ready.into_iter().partition(|row: &Pending| row.shard == shard);
        self.ready = kept;
        for row in gone {
            self.known.remove(&row.seq);
            if let Some(lane) = row.key.and_then(|key| self.lanes.get_mut(&(shard, key))) {
                lane.end_turn(row.seq);
            }
        }
        for (_, lane) in self.lanes.iter_mut().filter(|((of, _), _)| *of == shard) {
            for seq in lane.drop_queue() {
                self.known.remove(&seq);
            }
            (lane.parked, lane.reading) = (None, false);
        }
        self.lanes.retain(|(of, _), lane| *of != shard || lane.busy.is_some());
        self.parked.retain(|(of, _), _| *of != shard);
        self.due.retain(|(_, (of, _))| *of != shard);
        self.key_reads.retain(|(of, _)| *of != shard);
    }

    /// Something may have been committed anywhere.
    pub(super) fn wake(&mut self) {
        self.shards.values_mut().for_each(|shard| shard.hungry = true);
    }

    /// Everything is to be read from its head: for late commits, replays and skips.
    pub(super) fn sweep(&mut self) {
        self.shards.values_mut().for_each(Shard::start_over);
    }

    /// Turns to what has become due.
    pub(super) fn tick(&mut self, now: Instant) {
        while self.due.first().is_some_and(|(when, _)| *when <= now) {
            let Some((_, lane_key)) = self.due.pop_first() else { break };
            self.want_key(lane_key);
        }
        for shard in self.shards.values_mut() {
            if shard.next_due.is_some_and(|when| when <= now) {
                shard.next_due = None;
                shard.start_over();
            }
        }
    }

    /// When [`tick`](Self::tick) has something to do next.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let lanes = self.due.first().map(|(when, _)| *when);
        let rows = self.shards.values().filter_map(|shard| shard.next_due).min();
        [lanes, rows].into_iter().flatten().min()
    }

    /// The next read, if one is worth doing and none is under way.
    pub(super) fn next_read(&mut self) -> Option<Wanted> {
        if self.read_under_way {
            return None;
        }
        let wanted = if self.key_was_last {
            self.next_shard_read().or_else(|| self.next_key_read())?
        } else {
            self.next_key_read().or_else(|| self.next_shard_read())?
        };
        self.key_was_last = matches!(wanted, Wanted::Key(_));
        self.read_under_way = true;
        Some(wanted)
    }

    fn next_key_read(&mut self) -> Option<Wanted> {
        // Keys are read ahead of room, but not without bound.
        if self.known.len() > usize::try_from(self.pages.batch).unwrap_or(usize::MAX) {
            return None;
        }
        let (shard, key) = self.key_reads.pop_front()?;
        if let Some(state) = self.shards.get_mut(&shard) {
            state.asked = true;
        }
        Some(Wanted::Key(ReadKey { shard, key, limit: self.pages.least }))
    }

    /// Reads hungry shards together, except those whose page would show mostly rows in hand:
    /// they are read one at a time, with a larger page.
    fn next_shard_read(&mut self) -> Option<Wanted> {
        // Only when half empty, so that every page brings rows that are not in hand yet.
        if self.known.len() > usize::try_from(self.pages.batch / 2).unwrap_or(usize::MAX) {
            return None;
        }
        let in_hand = self.in_hand();
        let of = |shard: &ShardId| in_hand.get(shard).copied().unwrap_or(0);
        let hungry = self.shards.iter().filter(|(_, state)| state.hungry).map(|(shard, _)| *shard);
        let hungry: Vec<ShardId> = hungry.collect();
        let count = u32::try_from(hungry.len()).ok().filter(|count| *count > 0)?;
        let fair = (self.pages.batch / count).max(self.pages.least);
        let light: Vec<ShardId> = hungry.iter().filter(|shard| of(shard) < fair).copied().collect();
        let (wanted, limit) = match (light.is_empty(), hungry.first()) {
            (true, Some(heavy)) => (vec![*heavy], of(heavy).saturating_add(fair)),
            _ => (light, fair.saturating_mul(2)),
        };
        Some(Wanted::Shards { shards: self.feed(&wanted), limit })
    }

    fn feed(&mut self, wanted: &[ShardId]) -> Vec<ShardRead> {
        let mut reads = Vec::new();
        for shard in wanted {
            if let Some(state) = self.shards.get_mut(shard) {
                (state.hungry, state.asked) = (false, true);
                reads.push(ShardRead { shard: *shard, floor: state.floor });
            }
        }
        reads
    }

    fn in_hand(&self) -> HashMap<ShardId, u32> {
        let mut counts = HashMap::new();
        self.known.values().for_each(|shard| *counts.entry(*shard).or_default() += 1);
        counts
    }

    /// A read failed: what it was for is still to be read.
    pub(super) fn read_failed(&mut self, wanted: Wanted) {
        match wanted {
            Wanted::Key(read) => self.key_reads.push_back((read.shard, read.key)),
            Wanted::Shards { shards, .. } => {
                for read in shards {
                    if let Some(shard) = self.shards.get_mut(&read.shard) {
                        shard.hungry = true;
                    }
                }
            }
        }
        self.read_ended();
    }

    /// The next row to start, and the epoch its shard is held at.
    pub(super) fn next_start(&mut self) -> Option<(Pending, Epoch)> {
        let row = self.ready.pop_front()?;
        let shard = self.shards.get(&row.shard).expect("a dropped shard takes its rows along");
        Some((row, shard.epoch))
    }

    /// A delivery is over, and its verdict is to be written.
    pub(super) fn judged(&mut self, ticket: &Ticket, verdict: &Verdict) {
        // After a success the next one may start before this is written: a crash would repeat
        // both, in order. After anything else the key waits for what is written.
        if !matches!(verdict, Verdict::Done | Verdict::Delete) {
            return;
        }
        let Some(lane_key) = ticket.lane() else { return };
        self.end_turn(&lane_key, ticket.seq);
        self.go_on(&lane_key);
    }

    /// A verdict was written.
    pub(super) fn settled(&mut self, ticket: &Ticket, verdict: &Verdict, now: Instant) {
        self.forget(ticket.seq);
        let until = match verdict {
            Verdict::Done | Verdict::Delete => return,
            Verdict::Retry { delay, .. } | Verdict::Defer { delay, .. } => Some(now + *delay),
            Verdict::Dead { .. } | Verdict::Held { .. } => None,
        };
        let Some(lane_key) = ticket.lane() else {
            return until.into_iter().for_each(|when| self.note_due(ticket.shard, when));
        };
        self.end_turn(&lane_key, ticket.seq);
        if matches!(verdict, Verdict::Dead { .. }) {
            return self.go_on(&lane_key);
        }
        self.drop_queue(&lane_key);
        self.park(&lane_key, Parked { seq: ticket.seq, until });
        self.leave_if_lost(&lane_key);
    }

    /// A verdict did not apply: written before, or overtaken by an operator or another owner.
    pub(super) fn overtaken(&mut self, ticket: &Ticket, verdict: &Verdict) {
        self.forget(ticket.seq);
        if let Some(shard) = self.shards.get_mut(&ticket.shard) {
            shard.start_over();
        }
        let Some(lane_key) = ticket.lane() else { return };
        if matches!(verdict, Verdict::Done | Verdict::Delete) {
            // It was delivered, and its successor may be under way: only look again.
            if let Some(lane) = self.lanes.get_mut(&lane_key) {
                lane.tail_unread = true;
            }
            return self.go_on(&lane_key);
        }
        self.read_again(&lane_key, ticket.seq);
    }

    /// A row was not delivered after all: it is to be read again.
    pub(super) fn put_back(&mut self, ticket: &Ticket) {
        self.forget(ticket.seq);
        if let Some(shard) = self.shards.get_mut(&ticket.shard) {
            shard.start_over();
        }
        if let Some(lane_key) = ticket.lane() {
            self.read_again(&lane_key, ticket.seq);
        }
    }

    /// Nothing of the key starts before it has been read from its head, by a read that begins
    /// later than now.
    fn read_again(&mut self, lane_key: &LaneKey, seq: Seq) {
        self.end_turn(lane_key, seq);
        self.drop_queue(lane_key);
        self.park(lane_key, Parked { seq, until: None });
        if self.read_under_way {
            self.doubtful.push(lane_key.clone());
        } else {
            self.want_key(lane_key.clone());
        }
    }

    fn end_turn(&mut self, lane_key: &LaneKey, seq: Seq) {
        if let Some(lane) = self.lanes.get_mut(lane_key) {
            lane.end_turn(seq);
        }
    }

    /// A lane that outlived its shard, because something of it was under way, ends.
    fn leave_if_lost(&mut self, lane_key: &LaneKey) {
        if !self.shards.contains_key(&lane_key.0) {
            self.unpark(lane_key);
            self.lanes.remove(lane_key);
        }
    }

    /// Lets a lane go on: with its queue, with a read of its tail, or to its end.
    fn go_on(&mut self, lane_key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        if let Some(row) = lane.pop() {
            self.ready.push_back(row);
            return;
        }
        if lane.is_idle() && lane.parked.is_none() && lane.tail_unread {
            lane.tail_unread = false;
            self.want_key(lane_key.clone());
        } else if lane.is_over() {
            self.lanes.remove(lane_key);
        }
    }

    /// Whether the read under way was begun for the shard as it is held now.
    fn has_asked(&self, shard: ShardId) -> bool {
        self.shards.get(&shard).is_some_and(|state| state.asked)
    }

    /// Wants a key read from its head, once.
    fn want_key(&mut self, lane_key: LaneKey) {
        if !self.shards.contains_key(&lane_key.0) {
            return self.leave_if_lost(&lane_key);
        }
        let lane = self.lanes.entry(lane_key.clone()).or_default();
        if !std::mem::replace(&mut lane.reading, true) {
            self.key_reads.push_back(lane_key);
        }
    }

    fn park(&mut self, lane_key: &LaneKey, parked: Parked) {
        self.unpark(lane_key);
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        lane.parked = Some(parked);
        self.parked.insert((lane_key.0, parked.seq), lane_key.1.clone());
        if let Some(when) = parked.until {
            self.due.insert((when, lane_key.clone()));
        }
    }

    fn unpark(&mut self, lane_key: &LaneKey) {
        let lane = self.lanes.get_mut(lane_key);
        let Some(parked) = lane.and_then(|lane| lane.parked.take()) else { return };
        self.parked.remove(&(lane_key.0, parked.seq));
        if let Some(when) = parked.until {
            self.due.remove(&(when, lane_key.clone()));
        }
    }

    fn drop_queue(&mut self, lane_key: &LaneKey) {
        let Some(lane) = self.lanes.get_mut(lane_key) else { return };
        for seq in lane.drop_queue() {
            self.known.remove(&seq);
        }
    }

    fn note_due(&mut self, shard: ShardId, when: Instant) {
        if let Some(shard) = self.shards.get_mut(&shard) {
            shard.next_due = Some(shard.next_due.map_or(when, |next| next.min(when)));
        }
    }

    /// Forgets a row, but not before the read under way has been taken in.
    fn forget(&mut self, seq: Seq) {
        if let Some(shard) = self.known.get(&seq).and_then(|shard| self.shards.get_mut(shard)) {
            shard.hungry |= shard.more;
        }
        if self.read_under_way {
            self.settled_during_read.push(seq);
        } else {
            self.known.remove(&seq);
        }
    }

    fn read_ended(&mut self) {
        self.read_under_way = false;
        self.shards.values_mut().for_each(|shard| shard.asked = false);
        for seq in std::mem::take(&mut self.settled_during_read) {
            self.known.remove(&seq);
        }
        for lane_key in std::mem::take(&mut self.doubtful) {
            self.want_key(lane_key);
        }
        self.forget_a_crowd();
    }

    /// Keeps the number of waiting keys within bounds; a sweep finds the others again.
    fn forget_a_crowd(&mut self) {
        while self.parked.len() > MOST_PARKED {
            let Some(((shard, _), key)) = self.parked.pop_last() else { return };
            let lane_key = (shard, key);
            self.unpark(&lane_key);
            if self.lanes.get(&lane_key).is_some_and(|lane| lane.is_idle() && !lane.reading) {
                self.lanes.remove(&lane_key);
            }
        }
    }
}

impl Shard {
    /// From the head: at once, or when the pass under way has come to its end.
    fn start_over(&mut self) {
        self.hungry = true;
        if self.more && self.floor > Seq::START {
            self.again = true;
        } else {
            self.floor = Seq::START;
        }
    }

    /// A page that was not full ends the pass.
    fn end_pass(&mut self) {
        if std::mem::take(&mut self.again) {
            (self.hungry, self.floor) = (true, Seq::START);
        }
    }
}

impl Ticket {
    fn lane(&self) -> Option<LaneKey> {
        self.key.clone().map(|key| (self.shard, key))
    }
}
