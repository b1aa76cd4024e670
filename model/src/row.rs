//! A row and its lease: claims, settles whose answer is lost, an operator's replay, and the purge.

use stateright::{Model, Property};

use crate::explore::Protocol;

/// What workers, operators and the purge keep to.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rules {
    /// A settle counts under the token of its claim only.
    pub(crate) fence: bool,
    /// A delivery starts only while the lease runs by the worker's own clock.
    pub(crate) deadline: bool,
    /// A row is settled when it was delivered, not before.
    pub(crate) delivers_first: bool,
    /// A replay moves the token on.
    pub(crate) replay_moves: bool,
    /// The purge looks and deletes in one statement.
    pub(crate) purge_looks: bool,
}

impl Rules {
    pub(crate) const KEPT: Self = Self {
        fence: true,
        deadline: true,
        delivers_first: true,
        replay_moves: true,
        purge_looks: true,
    };
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Claims {
    pub(crate) rules: Rules,
    pub(crate) faults: FaultBudget,
}

/// How often what may happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(crate) struct FaultBudget {
    pub(crate) lapses: u8,
    pub(crate) crashes: u8,
    pub(crate) lost_answers: u8,
    pub(crate) replays: u8,
    /// A worker gives back what it has not begun.
    pub(crate) releases: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    status: Status,
    token: u8,
    /// Whose, and whether it has run out.
    lease: Option<(usize, bool)>,
    workers: [InFlight; 2],
    /// The purge has chosen the row, and not deleted it yet.
    is_chosen: bool,
    faults: FaultBudget,
    violations: Violations,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Status {
    New,
    Done,
    Dead,
    Purged,
}

/// What a worker has in hand.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
struct InFlight {
    at: At,
    token: u8,
    /// Whether its lease runs by its own clock.
    is_live: bool,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    #[default]
    Nothing,
    Claimed,
    Started,
    Judged(bool),
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct Violations {
    deliveries: u8,
    /// How many deliveries there may be.
    explained: u8,
    /// It is to be delivered, and was not since.
    is_owed: bool,
    lost: bool,
    overruled: bool,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Claim(usize),
    Release(usize),
    Drop(usize),
    Start(usize),
    Deliver { worker: usize, succeeds: bool },
    Settle { worker: usize, is_answered: bool },
    Lapse,
    Crash(usize),
    Replay,
    Choose,
    Purge,
}

impl Model for Claims {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        let violations = Violations {
            deliveries: 0,
            explained: 1,
            is_owed: true,
            lost: false,
            overruled: false,
        };
        vec![State {
            status: Status::New,
            token: 0,
            lease: None,
            workers: [InFlight::default(); 2],
            is_chosen: false,
            faults: self.faults,
            violations,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        let mut faults = |condition: bool, step: Step| {
            if condition {
                steps.push(step);
            }
        };
        let is_final = matches!(state.status, Status::Done | Status::Dead);
        faults(state.faults.lapses > 0 && matches!(state.lease, Some((_, false))), Step::Lapse);
        faults(state.faults.replays > 0 && state.status == Status::Dead, Step::Replay);
        faults(self.rules.purge_looks && is_final, Step::Purge);
        faults(!self.rules.purge_looks && is_final && !state.is_chosen, Step::Choose);
        faults(!self.rules.purge_looks && state.is_chosen, Step::Purge);
        for (worker, hand) in state.workers.iter().enumerate() {
            let is_free = state.lease.is_none_or(|(_, is_lapsed)| is_lapsed);
            let can_claim = hand.at == At::Nothing && state.status == Status::New && is_free;
            faults(can_claim, Step::Claim(worker));
            faults(hand.at == At::Claimed && state.faults.releases > 0, Step::Release(worker));
            faults(hand.at == At::Claimed && !hand.is_live, Step::Drop(worker));
            let is_live = hand.is_live || !self.rules.deadline;
            faults(hand.at == At::Claimed && is_live, Step::Start(worker));
            for succeeds in [true, false] {
                faults(hand.at == At::Started, Step::Deliver { worker, succeeds });
            }
            let settles = matches!(hand.at, At::Judged(_));
            faults(settles, Step::Settle { worker, is_answered: true });
            let is_lost = settles && state.faults.lost_answers > 0;
            faults(is_lost, Step::Settle { worker, is_answered: false });
            faults(state.faults.crashes > 0 && hand.at != At::Nothing, Step::Crash(worker));
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Claim(worker) => next.claim(worker),
            Step::Release(worker) => next.release(worker),
            Step::Drop(worker) => next.workers[worker] = InFlight::default(),
            Step::Start(worker) => self.start(&mut next, worker),
            Step::Deliver { worker, succeeds } => self.deliver(&mut next, worker, succeeds),
            Step::Settle { worker, is_answered } => self.settle(&mut next, worker, is_answered),
            Step::Lapse => next.lapse(),
            Step::Crash(worker) => next.crash(worker),
            Step::Replay => self.replay(&mut next),
            Step::Choose => next.is_chosen = true,
            Step::Purge => next.end(Status::Purged),
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("no loss", |_, state: &State| !state.violations.lost),
            Property::always("fence", |_, state: &State| !state.violations.overruled),
            Property::always("no unexplained duplicate", |_, state: &State| {
                state.violations.deliveries <= state.violations.explained
            }),
        ]
    }
}

impl Protocol for Claims {
    fn is_fault(&self, step: &Step) -> bool {
        matches!(step, Step::Lapse | Step::Crash(_) | Step::Settle { is_answered: false, .. })
    }

    fn is_over(&self, state: &State) -> bool {
        state.status != Status::New
    }
}

impl Claims {
    fn start(&self, state: &mut State, worker: usize) {
        state.workers[worker].at = At::Started;
        if !self.rules.delivers_first {
            state.end(Status::Done);
        }
    }

    fn deliver(&self, state: &mut State, worker: usize, succeeds: bool) {
        let hand = &mut state.workers[worker];
        hand.at = At::Judged(succeeds);
        state.violations.deliveries += 1;
        if hand.token == state.token {
            state.violations.is_owed = false;
        }
    }

    /// A settle without an answer is sent again: the token makes the second time harmless.
    fn settle(&self, state: &mut State, worker: usize, is_answered: bool) {
        let hand = state.workers[worker];
        let At::Judged(succeeds) = hand.at else { return };
        let holds = state.lease.is_some_and(|(owner, _)| owner == worker);
        let is_ours = holds && hand.token == state.token;
        let passes = if self.rules.fence { hand.token == state.token } else { true };
        if passes && state.status == Status::New {
            state.violations.overruled |= !is_ours && self.rules.replay_moves;
            state.lease = None;
            state.end(if succeeds { Status::Done } else { Status::Dead });
        }
        if is_answered {
            state.workers[worker] = InFlight::default();
        } else {
            state.faults.lost_answers -= 1;
        }
    }

    fn replay(&self, state: &mut State) {
        state.faults.replays -= 1;
        (state.status, state.lease, state.violations.is_owed) = (Status::New, None, true);
        state.token += u8::from(self.rules.replay_moves);
        state.violations.explained += 1;
    }
}

impl State {
    fn claim(&mut self, worker: usize) {
        self.token += 1;
        self.lease = Some((worker, false));
        self.workers[worker] = InFlight { at: At::Claimed, token: self.token, is_live: true };
    }

    fn release(&mut self, worker: usize) {
        self.faults.releases -= 1;
        let hand = std::mem::take(&mut self.workers[worker]);
        if hand.token == self.token && self.lease.is_some_and(|(owner, _)| owner == worker) {
            self.token += 1;
            self.lease = None;
        }
    }

    fn lapse(&mut self) {
        let Some((owner, _)) = self.lease else { return };
        self.faults.lapses -= 1;
        self.lease = Some((owner, true));
        self.lose(owner);
        self.workers[owner].is_live = false;
    }

    fn crash(&mut self, worker: usize) {
        self.faults.crashes -= 1;
        if self.lease.is_some_and(|(owner, _)| owner == worker) {
            self.lease = Some((worker, true));
        }
        self.lose(worker);
        self.workers[worker] = InFlight::default();
    }

    /// What was begun may be delivered again.
    fn lose(&mut self, worker: usize) {
        let begun = matches!(self.workers[worker].at, At::Started | At::Judged(_));
        self.violations.explained += u8::from(begun);
    }

    fn end(&mut self, status: Status) {
        self.status = status;
        self.violations.lost |= self.violations.is_owed;
    }
}
