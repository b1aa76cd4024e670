//! The hot path of events with a key: registered before their commit, handed over after it.

use super::database::Row;
use super::{Relays, Set, State, bit};

/// What writers and their relay keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// An event is registered before its commit; the reader leaves it alone.
    pub(crate) registers: bool,
    /// What comes behind a registered event waits for it.
    pub(crate) holds_back: bool,
    /// What was registered at another epoch is an ordinary row.
    pub(crate) epoch: bool,
    /// An event with something older of its key before it is an ordinary row.
    pub(crate) looks: bool,
    /// A transaction that was rolled back hands nothing over.
    pub(crate) proves: bool,
}

impl Rules {
    pub(crate) const KEPT: Self =
        Self { registers: true, holds_back: true, epoch: true, looks: true, proves: true };
}

/// What a relay was told by the writers of its process.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
pub(super) struct Lane {
    /// Registered, each at an epoch.
    registered: Vec<(u8, u8)>,
    /// Committed, and not yet handed over.
    handing: Set,
}

impl Lane {
    pub(super) fn registered(&self) -> Set {
        self.registered.iter().map(|(event, _)| bit(*event)).sum()
    }

    pub(super) fn is_handing(&self, event: u8) -> bool {
        self.handing & bit(event) != 0
    }

    /// The shard is another's, or is to be.
    pub(super) fn leave(&mut self) {
        self.registered.clear();
    }
}

impl Relays {
    /// An event was inserted in the process of the first relay.
    pub(super) fn register(&self, state: &mut State, event: u8) {
        let Some(rules) = self.rules.hot else { return };
        let is_next = !rules.looks || state.pending() & (bit(event) - 1) == 0;
        let relay = &mut state.relays[0];
        let Some(epoch) = relay.held.filter(|_| is_next && !relay.is_draining) else { return };
        if rules.registers {
            relay.hot.registered.push((event, epoch));
        } else {
            relay.hot.handing |= bit(event);
        }
    }

    /// Its transaction was committed.
    pub(super) fn committed(&self, state: &mut State, event: u8) {
        let key_queue = &mut state.relays[0].hot;
        if key_queue.registered() & bit(event) != 0 {
            key_queue.handing |= bit(event);
        }
    }

    /// Its transaction was rolled back.
    pub(super) fn rolled_back(&self, state: &mut State, event: u8) {
        let Some(rules) = self.rules.hot else { return };
        let key_queue = &mut state.relays[0].hot;
        if rules.proves {
            key_queue.registered.retain(|(it, _)| *it != event);
            key_queue.handing &= !bit(event);
        } else {
            self.committed(state, event);
        }
    }

    pub(super) fn hand_over(&self, state: &mut State, event: u8) {
        let Some(rules) = self.rules.hot else { return };
        let relay = &mut state.relays[0];
        relay.hot.handing &= !bit(event);
        let at = relay.hot.registered.iter().find(|(it, _)| *it == event).map(|(_, epoch)| *epoch);
        relay.hot.registered.retain(|(it, _)| *it != event);
        let is_same = at.is_some() && at == relay.held;
        let is_ours = relay.held.is_some() && !relay.is_draining;
        if is_ours && (is_same || !rules.registers || !rules.epoch) {
            relay.key_queue |= bit(event);
        } else if at.is_some() {
            // It is an ordinary row now: what was read behind it must not pass it.
            relay.key_queue &= bit(event) - 1;
            relay.read = None;
        }
    }

    /// Those of a page that may be taken, with some registered.
    pub(super) fn not_registered(&self, page: Set, registered: Set) -> Set {
        let holds_back = self.rules.hot.is_some_and(|rules| rules.holds_back);
        let lowest = registered & registered.wrapping_neg();
        if holds_back && registered != 0 { page & (lowest - 1) } else { page & !registered }
    }

    /// The process of the writers is gone, and with it what they had not committed.
    pub(super) fn writers_die(&self, state: &mut State) {
        let here = state.here;
        for (event, row) in (0..).zip(&mut state.rows) {
            if *row == Row::Open && here & bit(event) != 0 {
                *row = Row::Gone;
            }
        }
    }
}
