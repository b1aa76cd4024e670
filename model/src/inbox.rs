//! The inbox: two consumers that may be given the same event at once, and die at any step.

use stateright::{Model, Property};

use crate::explore::Protocol;

/// When the event is noted as taken in.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Rule {
    /// In the transaction of the effect, under a unique key.
    Kept,
    /// After the commit of the effect, in a transaction of its own.
    NotedAfter,
    /// Before the effect, in a transaction of its own.
    NotedBefore,
    /// Looked for, and then noted without a unique key.
    Looked,
    /// As it should be, but acknowledged before the commit.
    AckedFirst,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Inbox {
    pub(crate) rule: Rule,
    pub(crate) crashes: u8,
}

#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub(crate) struct State {
    consumers: [At; 2],
    is_noted: bool,
    effects: u8,
    is_acked: bool,
    crashes: u8,
}

#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
enum At {
    #[default]
    Idle,
    Received,
    /// In a transaction that has not ended.
    Noted,
    /// The effect, too.
    Affected,
    Committed,
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Step {
    Receive(usize),
    Note(usize),
    Affect(usize),
    Commit(usize),
    Ack(usize),
    Crash(usize),
}

impl Model for Inbox {
    type State = State;
    type Action = Step;

    fn init_states(&self) -> Vec<State> {
        vec![State {
            consumers: [At::Idle; 2],
            is_noted: false,
            effects: 0,
            is_acked: false,
            crashes: self.crashes,
        }]
    }

    fn actions(&self, state: &State, steps: &mut Vec<Step>) {
        for (consumer, at) in state.consumers.iter().enumerate() {
            match at {
                At::Idle if !state.is_acked => steps.push(Step::Receive(consumer)),
                At::Idle => {}
                At::Received if self.waits(state, consumer) => {}
                At::Received => steps.push(Step::Note(consumer)),
                At::Noted => steps.push(Step::Affect(consumer)),
                At::Affected => steps.push(Step::Commit(consumer)),
                At::Committed => steps.push(Step::Ack(consumer)),
            }
            if state.crashes > 0 && *at != At::Idle {
                steps.push(Step::Crash(consumer));
            }
        }
    }

    fn next_state(&self, state: &State, step: Step) -> Option<State> {
        let mut next = state.clone();
        match step {
            Step::Receive(consumer) => {
                next.consumers[consumer] = At::Received;
                next.is_acked |= self.rule == Rule::AckedFirst;
            }
            Step::Note(consumer) => self.note(&mut next, consumer),
            Step::Affect(consumer) => next.consumers[consumer] = At::Affected,
            Step::Commit(consumer) => {
                next.effects += 1;
                next.is_noted |= self.rule != Rule::NotedAfter;
                next.consumers[consumer] = At::Committed;
            }
            Step::Ack(consumer) => {
                (next.is_noted, next.is_acked) = (true, true);
                next.consumers[consumer] = At::Idle;
            }
            Step::Crash(consumer) => {
                next.crashes -= 1;
                next.consumers[consumer] = At::Idle;
            }
        }
        Some(next)
    }

    fn properties(&self) -> Vec<Property<Self>> {
        vec![
            Property::always("one effect", |_, state: &State| state.effects <= 1),
            Property::always("no loss", |_, state: &State| {
                let may_come = !state.is_acked || state.consumers != [At::Idle; 2];
                may_come || state.effects > 0
            }),
        ]
    }
}

impl Protocol for Inbox {
    fn is_fault(&self, step: &Step) -> bool {
        matches!(step, Step::Crash(_))
    }

    fn is_over(&self, state: &State) -> bool {
        state.is_acked && state.consumers == [At::Idle; 2]
    }
}

impl Inbox {
    /// Whether the unique key makes it wait for what the other one noted.
    fn waits(&self, state: &State, consumer: usize) -> bool {
        let is_unique = matches!(self.rule, Rule::Kept | Rule::AckedFirst);
        is_unique && matches!(state.consumers[1 - consumer], At::Noted | At::Affected)
    }

    fn note(&self, state: &mut State, consumer: usize) {
        if state.is_noted {
            // A duplicate: there is nothing to do but to say so.
            state.consumers[consumer] = At::Committed;
            return;
        }
        state.is_noted = self.rule == Rule::NotedBefore;
        state.consumers[consumer] = At::Noted;
    }
}
