//! What the database knows, and who changes it beside the relay's verdicts.

use super::{Set, State, Step, Waiting, bit};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Row {
    Absent,
    /// Inserted by a transaction that is still open.
    Open,
    /// Rolled back, or skipped by an operator.
    Gone,
    New,
    /// New, although its time has not come.
    Early,
    Waiting,
    Held,
    Done,
}

impl Row {
    fn is_new(self) -> bool {
        matches!(self, Self::New | Self::Early)
    }

    fn waits(self) -> bool {
        matches!(self, Self::Waiting | Self::Held)
    }
}

/// What a row says of the older ones of its key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) enum Before {
    Nothing,
    Waiting,
    Unread,
}

impl State {
    pub(super) fn before(&self, event: u8, floor: u8) -> Before {
        let older = &self.rows[..usize::from(event)];
        let below = older.iter().take(usize::from(floor));
        if older.iter().any(|row| row.waits()) {
            Before::Waiting
        } else if below.into_iter().any(|row| row.is_new()) {
            Before::Unread
        } else {
            Before::Nothing
        }
    }

    /// The new rows above a floor.
    pub(super) fn new_above(&self, floor: u8) -> impl Iterator<Item = (u8, Row)> {
        let rows = (0..).zip(self.rows.iter().copied());
        rows.filter(move |(event, row): &(u8, Row)| *event >= floor && row.is_new())
    }

    /// Where the newest new row can be: at the newest of this key, or at one of another key that
    /// was inserted later.
    pub(super) fn newest(&self) -> std::ops::RangeInclusive<u8> {
        let from = self.new_above(0).last().map_or(0, |(event, _)| event + 1);
        let inserted = (0..).zip(&self.rows).filter(|(_, row)| **row != Row::Absent);
        from..=inserted.last().map_or(0, |(event, _): (u8, _)| event + 1)
    }
}

impl Waiting {
    /// What writers, time and operators do.
    pub(super) fn database_steps(&self, state: &State, steps: &mut Vec<Step>) {
        let all = || (0..).zip(state.rows.iter().copied());
        let is_open = state.rows.contains(&Row::Open);
        // Writers of the key come one after the other.
        if !is_open && state.rows.contains(&Row::Absent) {
            steps.push(Step::Insert);
        }
        if is_open {
            steps.push(Step::Commit(Row::New));
            let delayed = [Row::Waiting, Row::Early].into_iter().filter(|_| self.faults.delay);
            let gone = self.faults.late.then_some(Row::Gone);
            steps.extend(delayed.chain(gone).map(Step::Commit));
        }
        for (event, row) in all() {
            match row {
                Row::Early => steps.push(Step::Due(event)),
                Row::Waiting => {
                    steps.push(Step::Promote { event, is_heard: true });
                    let unheard = Step::Promote { event, is_heard: false };
                    steps.extend(self.faults.lose.then_some(unheard));
                }
                Row::Held => steps.extend([Step::Replay(event), Step::Skip(event)]),
                _ => {}
            }
        }
    }

    /// Whether a transaction is open that others must not see around.
    pub(super) fn is_alone(&self, state: &State) -> bool {
        !self.faults.late && state.rows.contains(&Row::Open)
    }

    pub(super) fn promote(&self, state: &mut State, event: u8, is_heard: bool) {
        state.rows[usize::from(event)] = Row::New;
        let relay = &mut state.relay;
        if !is_heard || !self.rules.promoted {
            return;
        }
        let rises_to = relay.reads.iter().filter_map(|read| read.rises_to).max();
        let rises_to = rises_to.filter(|_| self.rules.rising).unwrap_or(0);
        relay.wants_key |= event < relay.floor.max(rises_to);
        let is_in_hand = relay.is_in_flight() & bit(event) != 0;
        relay.promoted |= if is_in_hand && self.rules.unheard { bit(event) } else { 0 };
    }
}

/// The lowest so many.
pub(super) fn first(events: Set, most: u8) -> Set {
    let all = (0..8).filter(|event| events & bit(*event) != 0);
    all.take(usize::from(most)).map(bit).sum()
}
