//! Rows that wait: for their time or for an operator. One key whose writers are serialised, rows of
//! other keys that raise the floor, and one relay, whose successor begins at the floor 0.
//!
//! Nothing is counted: a delivery may fail, a relay may crash and an operator may act again and
//! again.

mod database;
mod read;
mod step;

use stateright::{Model, Property};

use self::database::Row;
use self::read::Read;
use crate::explore::Protocol;

/// Some of the events, a bit for each.
type Set = u8;

/// What the relay keeps to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A row behind one that waits is not started.
    pub(crate) blocked_probe: bool,
    /// A row behind a new one at or below the floor is not started: its key is read.
    pub(crate) below_probe: bool,
    /// What a read under way brings of a key is not started once an event of it is to wait.
    pub(crate) close: bool,
    /// Nor once an event of it was put back.
    pub(crate) put_back_closes: bool,
    /// What is queued behind an event that is to wait is dropped.
    pub(crate) drops_queue: bool,
    /// What was settled while a read was under way is not taken from it.
    pub(crate) in_flight: bool,
    /// Of a page nothing of a key is started behind a row whose time has not come.
    pub(crate) early: bool,
    /// A promoted row at or below the floor is looked for.
    pub(crate) promoted: bool,
    /// And one that a read under way may put below the floor.
    pub(crate) rising: bool,
    /// And one whose verdict was written, while nobody had heard of that yet.
    pub(crate) unheard: bool,
    /// A sweep looks at the heads of keys.
    pub(crate) heads: bool,
    /// So does the relay when a page has raised the floor.
    pub(crate) heads_at_rise: bool,
    /// The key of a head that was found is read.
    pub(crate) tail: bool,
    /// What is wished for while a read is under way is not met by that read.
    pub(crate) requests_outlive_reads: bool,
}

impl Rules {
    pub(crate) const KEPT: Self = Self {
        blocked_probe: true,
        below_probe: true,
        close: true,
        put_back_closes: true,
        drops_queue: true,
        in_flight: true,
        early: true,
        promoted: true,
        rising: true,
        unheard: true,
        heads: true,
        heads_at_rise: true,
        tail: true,
        requests_outlive_reads: true,
    };
}

/// What may happen beside writers, the relay and time.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Faults {
    /// A transaction that inserted a row commits later than others, or is rolled back.
    pub(crate) late: bool,
    /// Rows are written before their time: as waiting, and as new by other programs.
    pub(crate) delay: bool,
    /// An event is held, and an operator replays or skips it.
    pub(crate) hold: bool,
    /// A row that was read is put back.
    pub(crate) put_back: bool,
    /// The answer to a write is lost.
    pub(crate) lose: bool,
    pub(crate) crash: bool,
    /// The floor goes back.
    pub(crate) reset: bool,
    /// The relay sweeps.
    pub(crate) sweep: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Waiting {
    pub(crate) events: u8,
    /// How many reads may be under way at once.
    pub(crate) reads: usize,
    pub(crate) rules: Rules,
    pub(crate) faults: Faults,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    rows: Vec<Row>,
    relay: Relay,
    violations: Violations,
}

/// What the relay knows.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Relay {
    /// Of each event.
    hand: Vec<InFlight>,
    /// Events below this one are at or below the floor.
    floor: u8,
    reads: Vec<Read>,
    /// The key is to be read from its head.
    wants_key: bool,
    /// The heads of keys are to be read.
    wants_heads: bool,
    /// Rows to be made waiting, for their time has not come.
    early: Set,
    /// Made new while they were in hand.
    promoted: Set,
}

/// Where an event is in the relay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum InFlight {
    #[default]
    Out,
    /// To be delivered, the oldest first.
    Queued,
    /// Delivered, and its verdict is to be written.
    Judged(Verdict),
    /// It was written, and the relay has not heard of that.
    Written(Verdict),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) enum Verdict {
    Done,
    Retry,
    Hold,
}

/// What came of it, as somebody sees it who sees everything.
#[derive(Clone, Debug, Default, PartialEq, Eq, Hash)]
struct Violations {
    ghost: bool,
    duplicate: bool,
    inverted: bool,
    early: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Insert,
    Commit(Row),
    /// The time of a row comes that was written as new.
    Due(u8),
    /// The relay makes a row new whose time has come, and may not hear that it did.
    Promote {
        event: u8,
        is_heard: bool,
    },
    Replay(u8),
    Skip(u8),
    ReadShard {
        rises_to: Option<u8>,
    },
    ReadKey,
    ReadHeads {
        rises_to: Option<u8>,
    },
    TakeIn {
        read: usize,
        most: u8,
    },
    Deliver {
        event: u8,
        verdict: Verdict,
    },
    Settle(u8),
    /// The answer to that comes; or it was lost, and the settle that is repeated does not apply.
    Hear {
        event: u8,
        was_lost: bool,
    },
    PutBack(u8),
    Postpone(u8),
    Sweep,
    /// The floor goes back to 0.
    Reset,
    Crash,
}

impl Model for Waiting {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            rows: vec![Row::Absent; usize::from(self.events)],
            relay: Relay::new(self.events),
            violations: Violations::default(),
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        self.database_steps(state, steps);
        self.read_steps(state, steps);
        self.relay_steps(state, steps);
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        self.apply(&mut next, step);
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no ghost", |_, state: &State| !state.violations.ghost),
            Property::always("no unexplained duplicate", |_, state: &State| {
                !state.violations.duplicate
            }),
            Property::always("order", |_, state: &State| !state.violations.inverted),
            Property::always("not before its time", |_, state: &State| !state.violations.early),
        ]
    }
}

impl Protocol for Waiting {
    fn is_fault(&self, step: &Step) -> bool {
        match step {
            // A floor that rises has heads read, which must not be what saves us.
            Step::ReadShard { rises_to } | Step::ReadHeads { rises_to } => rises_to.is_some(),
            Step::Promote { is_heard, .. } => !is_heard,
            Step::Hear { was_lost, .. } => *was_lost,
            Step::Deliver { verdict, .. } => *verdict != Verdict::Done,
            Step::Commit(row) => *row != Row::New,
            Step::Replay(_) | Step::Skip(_) | Step::PutBack(_) => true,
            Step::Reset | Step::Crash => true,
            _ => false,
        }
    }

    /// What is held, and what waits behind it, is an operator's.
    fn is_over(&self, state: &State) -> bool {
        let mut open = state.rows.iter().filter(|row| !matches!(row, Row::Done | Row::Gone));
        let is_held = open.next().is_none_or(|row| *row == Row::Held);
        is_held && !state.rows.contains(&Row::Absent)
    }
}

impl Relay {
    fn new(events: u8) -> Self {
        Self { hand: vec![InFlight::Out; usize::from(events)], ..Self::default() }
    }
}

const fn bit(event: u8) -> Set {
    1 << event
}
