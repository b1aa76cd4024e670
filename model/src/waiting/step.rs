//! What the relay does with the rows that it has read, and what any step changes.

use super::database::Row;
use super::{InFlight, Relay, State, Step, Verdict, Waiting, bit};

impl Waiting {
    pub(super) fn relay_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let relay = &state.relay;
        if let Some(event) = relay.next_start() {
            let verdicts = [Verdict::Done, Verdict::Retry, Verdict::Hold];
            let verdicts = verdicts.iter().filter(|it| self.faults.hold || **it != Verdict::Hold);
            steps.extend(verdicts.map(|verdict| Step::Deliver { event, verdict: *verdict }));
            steps.extend(self.faults.put_back.then_some(Step::PutBack(event)));
        }
        for (event, hand) in (0..).zip(&relay.hand) {
            match hand {
                InFlight::Judged(_) => steps.push(Step::Settle(event)),
                InFlight::Written(_) => {
                    steps.push(Step::Hear { event, was_lost: false });
                    let lost = Step::Hear { event, was_lost: true };
                    steps.extend(self.faults.lose.then_some(lost));
                }
                InFlight::Out | InFlight::Queued => {}
            }
            steps.extend((relay.early & bit(event) != 0).then_some(Step::Postpone(event)));
        }
        let can_sweep = self.faults.sweep && self.rules.heads && !relay.wants_heads;
        steps.extend(can_sweep.then_some(Step::Sweep));
        steps.extend((self.faults.reset && relay.floor > 0).then_some(Step::Reset));
        let can_crash = self.faults.crash && *relay != Relay::new(self.events);
        steps.extend(can_crash.then_some(Step::Crash));
    }

    pub(super) fn apply(&self, state: &mut State, step: Step) {
        match step {
            Step::Insert => state.turn_first(Row::Absent, Row::Open),
            Step::Commit(row) => state.turn_first(Row::Open, row),
            Step::Due(event) | Step::Replay(event) => state.rows[usize::from(event)] = Row::New,
            Step::Skip(event) => state.rows[usize::from(event)] = Row::Gone,
            Step::Promote { event, is_heard } => self.promote(state, event, is_heard),
            Step::ReadShard { rises_to } => self.read_shard(state, rises_to),
            Step::ReadKey => self.read_key(state),
            Step::ReadHeads { rises_to } => self.read_heads(state, rises_to),
            Step::TakeIn { read, most } => self.take_in(state, read, most),
            Step::Deliver { event, verdict } => state.deliver(event, verdict),
            Step::Settle(event) => state.settle(event),
            Step::Hear { event, was_lost } => self.hear(&mut state.relay, event, was_lost),
            Step::PutBack(event) => self.put_back(&mut state.relay, event),
            Step::Postpone(event) => state.postpone(event),
            Step::Sweep => state.relay.wants_heads = true,
            Step::Reset => state.relay.floor = 0,
            Step::Crash => state.relay = Relay::new(self.events),
        }
    }

    /// A verdict that was written before does not apply again: the row's token has moved.
    fn hear(&self, relay: &mut Relay, event: u8, was_lost: bool) {
        match relay.hand[usize::from(event)] {
            InFlight::Written(Verdict::Done) => self.forget(relay, event),
            // Nobody knows what became of it.
            InFlight::Written(_) if was_lost => self.put_back(relay, event),
            InFlight::Written(_) => self.wait(relay, event, self.rules.close),
            InFlight::Out | InFlight::Queued | InFlight::Judged(_) => {}
        }
    }

    /// It is out of hand: what reads under way say of it does not count.
    fn forget(&self, relay: &mut Relay, event: u8) {
        relay.hand[usize::from(event)] = InFlight::Out;
        relay.wants_key |= relay.promoted & bit(event) != 0;
        relay.promoted &= !bit(event);
        if self.rules.in_flight {
            relay.forget_in_reads(event);
        }
    }

    /// A row is to be read again.
    fn put_back(&self, relay: &mut Relay, event: u8) {
        self.wait(relay, event, self.rules.put_back_closes);
        relay.wants_key = true;
    }

    /// Nothing of the key starts that was read before now.
    fn wait(&self, relay: &mut Relay, event: u8, closes: bool) {
        self.forget(relay, event);
        if closes {
            relay.close_reads();
        }
        if self.rules.drops_queue {
            relay
                .hand
                .iter_mut()
                .filter(|it| **it == InFlight::Queued)
                .for_each(|it| *it = InFlight::Out);
        }
    }
}

impl State {
    fn turn_first(&mut self, from: Row, to: Row) {
        if let Some(row) = self.rows.iter_mut().find(|row| **row == from) {
            *row = to;
        }
    }

    fn deliver(&mut self, event: u8, verdict: Verdict) {
        let at = usize::from(event);
        let relay = &mut self.relay;
        let is_done = |(row, hand): (&Row, &InFlight)| {
            matches!(row, Row::Done | Row::Gone) || is_success(*hand)
        };
        let mut older = self.rows[..at].iter().zip(&relay.hand);
        self.violations.inverted |= !older.all(is_done);
        match self.rows[at] {
            Row::New => {}
            Row::Early | Row::Waiting => self.violations.early = true,
            Row::Held | Row::Done => self.violations.duplicate = true,
            Row::Absent | Row::Open | Row::Gone => self.violations.ghost = true,
        }
        relay.hand[at] = InFlight::Judged(verdict);
    }

    fn settle(&mut self, event: u8) {
        let at = usize::from(event);
        let InFlight::Judged(verdict) = self.relay.hand[at] else { return };
        self.relay.hand[at] = InFlight::Written(verdict);
        self.rows[at] = match verdict {
            Verdict::Done => Row::Done,
            Verdict::Retry => Row::Waiting,
            Verdict::Hold => Row::Held,
        };
    }

    /// Writes that a row waits. One whose time has come by now is read again.
    fn postpone(&mut self, event: u8) {
        let row = &mut self.rows[usize::from(event)];
        self.relay.early &= !bit(event);
        if *row == Row::Early {
            *row = Row::Waiting;
        } else {
            self.relay.wants_key = true;
        }
    }
}

impl Relay {
    /// The oldest that is queued, unless a verdict is to be written first by which the key waits.
    fn next_start(&self) -> Option<u8> {
        let is_passed =
            |hand: &InFlight| matches!(hand, InFlight::Out | InFlight::Queued) || is_success(*hand);
        let queued = self.hand.iter().position(|hand| *hand == InFlight::Queued);
        queued.filter(|_| self.hand.iter().all(is_passed)).and_then(|it| u8::try_from(it).ok())
    }
}

fn is_success(hand: InFlight) -> bool {
    matches!(hand, InFlight::Judged(Verdict::Done) | InFlight::Written(Verdict::Done))
}
