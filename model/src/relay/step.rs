//! What can happen next, and what it changes.

use super::database::Row;
use super::{Fence, Relay, Relays, Set, State, Step, bit};

impl Relays {
    /// Writers of the key come one after the other.
    pub(super) fn writers_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let open = state.rows.iter().position(|row| *row == Row::Open);
        let next = state.rows.iter().position(|row| *row == Row::Absent);
        for event in (0..self.events).filter(|event| Some(usize::from(*event)) == open) {
            steps.push(Step::Commit(event));
            if state.faults.rollbacks > 0 {
                steps.push(Step::RollBack(event));
            }
        }
        for event in
            (0..self.events).filter(|event| open.is_none() && Some(usize::from(*event)) == next)
        {
            steps.push(Step::Insert { event, here: false });
            if self.rules.hot.is_some() {
                steps.push(Step::Insert { event, here: true });
            }
        }
        let is_over = |event: u8| state.rows[usize::from(event)] != Row::Open;
        let handing = |event: &u8| state.relays[0].hot.is_handing(*event) && is_over(*event);
        steps.extend((0..self.events).filter(handing).map(Step::HandOver));
    }

    pub(super) fn relays_steps(&self, state: &State, number: usize, steps: &mut Vec<Step>) {
        let relay = &state.relays[number];
        let mut faults = |condition: bool, step: Step| {
            if condition {
                steps.push(step);
            }
        };
        let is_owner = relay.held.is_some_and(|epoch| state.is_owner(number, epoch));
        let is_free = state.shard.owner.is_none() || (state.shard.is_lapsed && self.rules.takeover);
        let has_nothing = relay.under_way.is_none() && relay.unsettled.is_empty();
        faults(relay.held.is_none() && is_free && has_nothing, Step::Take(number));
        faults(is_owner && state.shard.is_lapsed, Step::Renew(number));
        faults(relay.held.is_some() && !is_owner, Step::Notice(number));
        faults(state.faults.crashes > 0 && *relay != Relay::default(), Step::Crash(number));
        faults(state.faults.moves > 0 && is_owner && !relay.is_draining, Step::Drain(number));
        faults(relay.is_draining && (has_nothing || !self.rules.drain), Step::Release(number));
        let works = relay.held.is_some() && !relay.is_draining;
        faults(works && relay.read.is_none(), Step::Read(number));
        faults(works && relay.read.is_none() && relay.floor > 0, Step::Sweep(number));
        faults(relay.read.is_some(), Step::TakeIn { relay: number, floor_rises: false });
        let rises = self.floor && relay.read.is_some() && relay.floor < state.above_all();
        faults(rises, Step::TakeIn { relay: number, floor_rises: true });
        let is_live = relay.is_live || !self.rules.deadline;
        faults(works && is_live && self.next_start(relay).is_some(), Step::Start(number));
        faults(relay.under_way.is_some(), Step::Deliver(number));
        let looks = self.rules.fence == Fence::ChecksOnly && relay.checked.is_none();
        faults(looks && !relay.unsettled.is_empty(), Step::Look(number));
        faults(!looks && !relay.unsettled.is_empty(), Step::Settle(number));
    }

    pub(super) fn apply(&self, state: &mut State, step: Step) {
        match step {
            Step::Insert { event, here } => {
                state.rows[usize::from(event)] = Row::Open;
                if here {
                    state.here |= bit(event);
                    self.register(state, event);
                }
            }
            Step::Commit(event) => {
                state.rows[usize::from(event)] = Row::New;
                self.committed(state, event);
            }
            Step::RollBack(event) => {
                state.faults.rollbacks -= 1;
                state.rows[usize::from(event)] = Row::Gone;
                self.rolled_back(state, event);
            }
            Step::HandOver(event) => self.hand_over(state, event),
            Step::Lapse => state.lapse(),
            Step::Renew(number) => {
                state.shard.is_lapsed = false;
                state.relays[number].is_live = true;
            }
            Step::Crash(number) => self.crash(state, number),
            Step::Take(number) => state.take(number),
            Step::Notice(number) => state.relays[number].leave(),
            Step::Drain(number) => {
                state.faults.moves -= 1;
                state.relays[number].drain();
            }
            Step::Release(number) => state.release(number),
            Step::Read(number) => self.read(state, number),
            Step::Sweep(number) => {
                state.relays[number].floor = 0;
                self.read(state, number);
            }
            Step::TakeIn { relay, floor_rises } => self.take_in(state, relay, floor_rises),
            Step::Start(number) => self.start(&mut state.relays[number]),
            Step::Deliver(number) => self.deliver(state, number),
            Step::Look(number) => {
                let passes = state.is_first_fenced_in(number);
                state.relays[number].checked = Some(passes);
            }
            Step::Settle(number) => self.settle(state, number),
        }
    }

    fn crash(&self, state: &mut State, number: usize) {
        state.faults.crashes -= 1;
        state.violations.explained += state.relays[number].is_in_flight();
        if state.shard.owner == Some(number) {
            state.shard.is_lapsed = true;
        }
        state.relays[number] = Relay::default();
        if number == 0 {
            self.writers_die(state);
        }
    }

    fn read(&self, state: &mut State, number: usize) {
        let pending = state.pending();
        let relay = &mut state.relays[number];
        let below = bit(relay.floor) - 1;
        // What is behind something older is read from the head of its key.
        let found =
            if self.rules.probe && pending & below != 0 { pending } else { pending & !below };
        (relay.read, relay.settled) = (Some(found), 0);
    }

    fn take_in(&self, state: &mut State, number: usize, floor_rises: bool) {
        let above_all = state.above_all();
        let relay = &mut state.relays[number];
        let mut page = relay.read.take().unwrap_or_default();
        if self.rules.generations {
            page &= !relay.settled;
        }
        let is_in_flight =
            relay.unsettled.iter().chain(&relay.under_way).map(|(event, _)| bit(*event));
        page &= !is_in_flight.fold(0, |all, it| all | it);
        relay.key_queue |= self.not_registered(page, relay.hot.registered());
        relay.settled = 0;
        if floor_rises {
            relay.floor = above_all;
        }
    }

    /// The next to start: the oldest, unless an older one is about to be committed.
    fn next_start(&self, relay: &Relay) -> Option<u8> {
        let key_queue = self.not_registered(relay.key_queue, relay.hot.registered());
        (relay.under_way.is_none() && key_queue != 0).then(|| lowest(key_queue))
    }

    fn start(&self, relay: &mut Relay) {
        if let Some((event, epoch)) = self.next_start(relay).zip(relay.held) {
            relay.key_queue &= !bit(event);
            relay.under_way = Some((event, epoch));
            relay.unsettled.extend((!self.rules.delivers_first).then_some((event, epoch)));
        }
    }

    fn deliver(&self, state: &mut State, number: usize) {
        let relay = &mut state.relays[number];
        let Some((event, epoch)) = relay.under_way.take() else { return };
        relay.unsettled.extend(self.rules.delivers_first.then_some((event, epoch)));
        let at = usize::from(event);
        state.violations.ghost |= !matches!(state.rows[at], Row::New | Row::Done);
        let delivered = &mut state.violations.delivered;
        let is_first = delivered[at] == 0;
        let older = delivered[..at].iter().zip(&state.rows[..at]);
        let passes_one = older.into_iter().any(|(times, row)| *times == 0 && *row != Row::Gone);
        state.violations.inverted |= is_first && passes_one;
        delivered[at] += 1;
    }

    fn settle(&self, state: &mut State, number: usize) {
        let is_ours = state.is_first_fenced_in(number);
        let passes = match self.rules.fence {
            Fence::Locks => is_ours,
            Fence::ChecksOnly => state.relays[number].checked.take() == Some(true),
            Fence::Missing => true,
        };
        let relay = &mut state.relays[number];
        let (event, epoch) = relay.unsettled.remove(0);
        if passes {
            state.violations.overruled |= !is_ours;
            relay.settled |= bit(event);
            state.rows[usize::from(event)] = Row::Done;
        } else if relay.held == Some(epoch) {
            relay.leave();
        }
    }
}

impl State {
    fn lapse(&mut self) {
        self.faults.lapses -= 1;
        self.shard.is_lapsed = true;
        let Some(owner) = self.shard.owner else { return };
        self.violations.explained += self.relays[owner].is_in_flight();
        self.relays[owner].is_live = false;
    }

    fn take(&mut self, number: usize) {
        let epoch = self.shard.epoch + 1;
        self.shard = super::Shard { owner: Some(number), epoch, is_lapsed: false };
        let relay = &mut self.relays[number];
        (relay.held, relay.is_live, relay.floor) = (Some(epoch), true, 0);
    }

    fn release(&mut self, number: usize) {
        let relay = &mut self.relays[number];
        let held = relay.held;
        relay.leave();
        if held.is_some_and(|epoch| self.is_owner(number, epoch)) {
            (self.shard.owner, self.shard.is_lapsed) = (None, false);
        }
    }

    /// Whether the relay has the shard still as it had when it started what it is to settle.
    fn is_first_fenced_in(&self, number: usize) -> bool {
        let first = self.relays[number].unsettled.first();
        first.is_some_and(|(_, epoch)| self.is_owner(number, *epoch))
    }
}

impl Relay {
    /// How many events may be delivered again if it is lost now.
    fn is_in_flight(&self) -> u8 {
        u8::try_from(self.unsettled.len()).unwrap_or(u8::MAX) + u8::from(self.under_way.is_some())
    }

    /// Puts down what it has not begun.
    fn drain(&mut self) {
        (self.is_draining, self.key_queue, self.read) = (true, 0, None);
        self.hot.leave();
    }

    /// Knows that the shard is not its own any more.
    fn leave(&mut self) {
        self.drain();
        (self.held, self.is_live, self.is_draining, self.floor) = (None, false, false, 0);
    }
}

fn lowest(events: Set) -> u8 {
    u8::try_from(events.trailing_zeros()).unwrap_or(u8::MAX)
}
