//! What the database knows.

use super::{Set, State, bit};

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) enum Row {
    Absent,
    /// Inserted by a transaction that is still open.
    Open,
    /// Rolled back.
    Gone,
    New,
    Done,
}

#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Shard {
    pub(super) owner: Option<usize>,
    pub(super) epoch: u8,
    /// Whether the owner's lease has run out.
    pub(super) is_lapsed: bool,
}

impl State {
    /// The rows that anybody can see and nobody has settled.
    pub(super) fn pending(&self) -> Set {
        let rows = (0..).zip(&self.rows).filter(|(_, row)| **row == Row::New);
        rows.map(|(event, _)| bit(event)).sum()
    }

    /// Whether a relay has the shard at this epoch.
    pub(super) fn is_owner(&self, relay: usize, epoch: u8) -> bool {
        self.shard.owner == Some(relay) && self.shard.epoch == epoch
    }

    /// Above every row that there is, as rows of other keys are.
    pub(super) fn above_all(&self) -> u8 {
        let rows = (0..).zip(&self.rows).filter(|(_, row)| **row != Row::Absent);
        rows.map(|(event, _): (u8, _)| event + 1).max().unwrap_or(0)
    }
}
