//! Relays and a shard: its lease and epoch, hand-over, reads above a floor, the fence of the
//! settle, and events that go from their commit straight to the relay of their process.
//!
//! There is one key, whose writers are serialised, and one shard, for which two relays compete.

mod database;
mod hot;
mod step;

use stateright::{Model, Property};

use self::database::{Row, Shard};
use crate::explore::Protocol;

/// Some of the events, a bit for each.
pub(crate) type Set = u8;

/// What the relays keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A read above the floor looks whether something older of the key waits below it.
    pub(crate) probe: bool,
    /// What was settled while a read was under way is not taken from it.
    pub(crate) generations: bool,
    /// The settle is fenced by the shard's owner and epoch.
    pub(crate) fence: Fence,
    /// A delivery starts only while the lease runs by the relay's own clock.
    pub(crate) deadline: bool,
    /// A shard is given back when nothing of it is under way.
    pub(crate) drain: bool,
    /// An event is settled when it was delivered, not before.
    pub(crate) delivers_first: bool,
    /// A lease that has run out is taken over.
    pub(crate) takeover: bool,
    /// Whether commits are handed over, and how.
    pub(crate) hot: Option<hot::Rules>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Fence {
    /// It locks what it looks at.
    Locks,
    /// It looks first and writes then.
    ChecksOnly,
    /// There is none.
    Missing,
}

impl Rules {
    pub(crate) const KEPT: Self = Self {
        probe: true,
        generations: true,
        fence: Fence::Locks,
        deadline: true,
        drain: true,
        delivers_first: true,
        takeover: true,
        hot: None,
    };

    pub(crate) const HOT: Self = Self { hot: Some(hot::Rules::KEPT), ..Self::KEPT };
}

pub(crate) use self::hot::Rules as HotRules;

/// How often what may happen.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub(crate) struct FaultBudget {
    /// A relay is paused for longer than its lease.
    pub(crate) lapses: u8,
    pub(crate) crashes: u8,
    /// A shard moves from one relay to another, gracefully.
    pub(crate) moves: u8,
    pub(crate) rollbacks: u8,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Relays {
    pub(crate) events: u8,
    pub(crate) rules: Rules,
    pub(crate) faults: FaultBudget,
    /// Whether rows of other keys raise the floor.
    pub(crate) floor: bool,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    rows: Vec<Row>,
    /// Written in the process of the first relay.
    here: Set,
    shard: Shard,
    relays: [Relay; 2],
    faults: FaultBudget,
    violations: Violations,
}

/// What a relay knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Relay {
    /// The epoch at which it has the shard, as far as it knows.
    held: Option<u8>,
    /// Whether its lease runs by its own clock.
    is_live: bool,
    is_draining: bool,
    floor: u8,
    /// What a read under way has found.
    read: Option<Set>,
    /// What was settled since that read began.
    settled: Set,
    /// To be delivered, the oldest first.
    key_queue: Set,
    /// In delivery, and the epoch at which it was started.
    under_way: Option<(u8, u8)>,
    /// Delivered, and not yet settled.
    unsettled: Vec<(u8, u8)>,
    /// What a settle that looks first has seen.
    checked: Option<bool>,
    hot: hot::Lane,
}

/// What came of it, as somebody sees it who sees everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Violations {
    delivered: Vec<u8>,
    /// How many duplicates faults account for.
    explained: u8,
    ghost: bool,
    inverted: bool,
    /// One that had lost the shard changed a row of it.
    overruled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Insert { event: u8, here: bool },
    Commit(u8),
    RollBack(u8),
    HandOver(u8),
    Lapse,
    Renew(usize),
    Crash(usize),
    Take(usize),
    Notice(usize),
    Read(usize),
    Sweep(usize),
    TakeIn { relay: usize, floor_rises: bool },
    Start(usize),
    Deliver(usize),
    Look(usize),
    Settle(usize),
    Drain(usize),
    Release(usize),
}

impl Model for Relays {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let count = usize::from(self.events);
        vec![State {
            rows: vec![Row::Absent; count],
            here: 0,
            shard: Shard::default(),
            relays: [Relay::default(), Relay::default()],
            faults: self.faults,
            violations: Violations { delivered: vec![0; count], ..Violations::default() },
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.writers_steps(state, steps);
        if state.faults.lapses > 0 && state.shard.owner.is_some() && !state.shard.is_lapsed {
            steps.push(Step::Lapse);
        }
        for relay in 0..state.relays.len() {
            self.relays_steps(state, relay, steps);
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no ghost", |_, state: &State| !state.violations.ghost),
            Property::always("no loss", |_, state: &State| state.is_nothing_lost()),
            Property::always("no unexplained duplicate", |_, state: &State| {
                let delivered = state.violations.delivered.iter();
                let twice: u8 = delivered.map(|times| times.saturating_sub(1)).sum();
                twice <= state.violations.explained
            }),
            Property::always("order", |_, state: &State| !state.violations.inverted),
            Property::always("fence", |_, state: &State| !state.violations.overruled),
        ]
    }
}

impl Protocol for Relays {
    fn is_fault(&self, step: &Step) -> bool {
        // A move and a rollback need not happen either, and must not be what saves us.
        matches!(step, Step::Lapse | Step::Crash(_) | Step::Drain(_) | Step::RollBack(_))
    }

    fn is_over(&self, state: &State) -> bool {
        state.rows.iter().all(|row| matches!(row, Row::Done | Row::Gone))
    }
}

impl State {
    /// What is settled was delivered.
    fn is_nothing_lost(&self) -> bool {
        let rows = self.rows.iter().zip(&self.violations.delivered);
        rows.into_iter().all(|(row, delivered)| *row != Row::Done || *delivered > 0)
    }
}

const fn bit(event: u8) -> Set {
    1 << event
}
