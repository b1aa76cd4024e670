//! Reads: what they see when they begin, and what is made of it when they are taken in.

use super::database::{Before, Row, first};
use super::{InFlight, Relay, Set, State, Step, Waiting, bit};

/// A read under way: what its snapshot has shown of the key.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub(super) struct Read {
    kind: Kind,
    /// Rows that may start.
    rows: Set,
    /// The key is to be read when this is taken in.
    wants_key: bool,
    /// A row whose time has not come.
    early: Set,
    /// Where the floor will be.
    pub(super) rises_to: Option<u8>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
enum Kind {
    Shard,
    Key,
    Heads,
}

impl Waiting {
    pub(super) fn read_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let relay = &state.relay;
        if relay.reads.len() < self.reads && !self.is_alone(state) {
            let floors = state.newest().filter(|floor| *floor > relay.floor);
            let rises = || std::iter::once(None).chain(floors.clone().map(Some));
            steps.extend(rises().map(|rises_to| Step::ReadShard { rises_to }));
            steps.extend(relay.wants_key.then_some(Step::ReadKey));
            if relay.wants_heads {
                steps.extend(rises().map(|rises_to| Step::ReadHeads { rises_to }));
            }
        }
        for (number, read) in relay.reads.iter().enumerate() {
            let count = (read.rows & !relay.is_in_flight()).count_ones();
            let most = 0..=u8::try_from(count).unwrap_or(u8::MAX);
            steps.extend(most.map(|most| Step::TakeIn { read: number, most }));
        }
    }

    pub(super) fn read_shard(&self, state: &mut State, rises_to: Option<u8>) {
        let floor = state.relay.floor;
        self.begin(state, Read { rises_to, ..self.snapshot(state, Kind::Shard, floor) });
    }

    pub(super) fn read_key(&self, state: &mut State) {
        state.relay.wants_key = false;
        self.begin(state, self.snapshot(state, Kind::Key, 0));
    }

    pub(super) fn read_heads(&self, state: &mut State, rises_to: Option<u8>) {
        state.relay.wants_heads = false;
        let mut read = Read { rises_to, ..self.snapshot(state, Kind::Heads, 0) };
        let head = state.new_above(0).next().map_or(0, |(event, _)| bit(event));
        read.rows &= head;
        read.wants_key = self.rules.tail && read.rows != 0;
        self.begin(state, read);
    }

    fn begin(&self, state: &mut State, read: Read) {
        state.relay.reads.push(read);
        // It does not matter which of them came first.
        state.relay.reads.sort_unstable();
    }

    /// What is seen now of the rows above a floor.
    fn snapshot(&self, state: &State, kind: Kind, floor: u8) -> Read {
        let mut read = Read { kind, rows: 0, wants_key: false, early: 0, rises_to: None };
        for (event, row) in state.new_above(floor) {
            match state.before(event, floor) {
                Before::Waiting if self.rules.blocked_probe => {}
                Before::Unread if self.rules.below_probe => read.wants_key = true,
                _ if row == Row::Early => {
                    read.early |= bit(event);
                    if self.rules.early {
                        break;
                    }
                }
                _ => read.rows |= bit(event),
            }
        }
        read
    }

    /// Takes the first rows in, as many as there is room for.
    pub(super) fn take_in(&self, state: &mut State, number: usize, most: u8) {
        let relay = &mut state.relay;
        let read = relay.reads.remove(number);
        let rows = read.rows & !relay.is_in_flight();
        let taken = first(rows, most);
        for (event, hand) in (0..).zip(&mut relay.hand) {
            if taken & bit(event) != 0 {
                *hand = InFlight::Queued;
            }
        }
        if read.kind == Kind::Key && !self.rules.requests_outlive_reads {
            relay.wants_key = false;
        }
        // What is left of a page is in the next one.
        relay.wants_key |= read.wants_key || (taken != rows && read.kind != Kind::Shard);
        relay.early |= read.early;
        if let Some(floor) = read.rises_to.filter(|floor| *floor > relay.floor) {
            relay.floor = floor;
            relay.wants_heads |= self.rules.heads_at_rise && read.kind == Kind::Shard;
        }
    }
}

impl Relay {
    pub(super) fn is_in_flight(&self) -> Set {
        let hand = (0..).zip(&self.hand).filter(|(_, hand)| **hand != InFlight::Out);
        hand.map(|(event, _)| bit(event)).sum()
    }

    /// A row was decided on: what reads under way say of it does not count.
    pub(super) fn forget_in_reads(&mut self, event: u8) {
        for read in &mut self.reads {
            read.rows &= !bit(event);
        }
        self.reads.sort_unstable();
    }

    /// Nothing that reads under way say of the key counts.
    pub(super) fn close_reads(&mut self) {
        for read in &mut self.reads {
            (read.rows, read.wants_key) = (0, false);
        }
        self.reads.sort_unstable();
    }
}
