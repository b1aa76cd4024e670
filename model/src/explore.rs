//! Exploring a model: what Stateright finds, and whether everything can still be delivered.

use std::collections::hash_map::{DefaultHasher, Entry};
use std::collections::{HashMap, VecDeque};
use std::hash::{Hash, Hasher as _};

use stateright::{Checker, HasDiscoveries, Model};

/// What there is to know of a model beside its steps.
pub(crate) trait Protocol: Model {
    /// Whether a step is something that happens to us, and need not.
    fn is_fault(&self, action: &Self::Action) -> bool;

    /// Whether there is nothing left to deliver.
    fn is_over(&self, state: &Self::State) -> bool;
}

/// What was found.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) states: usize,
    /// The promises that do not hold, each with the steps that break it.
    pub(crate) broken: Vec<(&'static str, Vec<String>)>,
    /// Steps to a state from which something is never delivered, although nothing happens to us
    /// any more.
    pub(crate) stuck: Option<String>,
}

pub(crate) fn explore<M>(model: &M) -> Found
where
    M: Protocol + Clone + Send + Sync + 'static,
    M::State: Clone + Eq + Hash + std::fmt::Debug + Send + Sync,
    M::Action: Clone + PartialEq + std::fmt::Debug + Send + Sync,
{
    let checker = model.clone().checker().finish_when(HasDiscoveries::Any).spawn_bfs().join();
    let mut broken: Vec<_> = checker
        .discoveries()
        .into_iter()
        .map(|(name, path)| {
            let steps = path.into_actions().iter().map(|step| format!("{step:?}")).collect();
            (name, steps)
        })
        .collect();
    broken.sort_unstable_by_key(|(name, _)| *name);
    // A model that is broken was not explored to its end.
    let stuck = if broken.is_empty() { stuck(model) } else { None };
    Found { states: checker.unique_state_count(), broken, stuck }
}

/// A state from which none of our own steps leads to the end.
fn stuck<M>(model: &M) -> Option<String>
where
    M: Protocol,
    M::State: Hash + std::fmt::Debug,
{
    let mut graph = Graph::default();
    graph.visit(model, |_, _| false);
    let cut_off = graph.cut_off()?;
    // States are not kept. The same visit gives them the same numbers.
    let mut found = None;
    Graph::default().visit(model, |number, state| {
        if number == cut_off {
            found = Some(format!("{state:?}"));
        }
        found.is_some()
    });
    found
}

/// The reachable states by number, and from which ones a step of ours leads to each.
#[derive(Default)]
struct Graph {
    /// Numbers by fingerprint, which tells states apart as Stateright's does.
    numbers: HashMap<u64, usize>,
    is_over: Vec<bool>,
    before: Vec<Vec<usize>>,
}

impl Graph {
    /// Visits the states breadth first, until one is told to be the last.
    fn visit<M>(&mut self, model: &M, mut is_last: impl FnMut(usize, &M::State) -> bool)
    where
        M: Protocol,
        M::State: Hash,
    {
        let mut next = VecDeque::new();
        for state in model.init_states() {
            self.number(model, &state);
            next.push_back(state);
        }
        let mut actions = Vec::new();
        for from in 0.. {
            let Some(state) = next.pop_front() else { return };
            if is_last(from, &state) {
                return;
            }
            model.actions(&state, &mut actions);
            for action in actions.drain(..) {
                let is_ours = !model.is_fault(&action);
                let Some(after) = model.next_state(&state, action) else { continue };
                let known = self.before.len();
                let to = self.number(model, &after);
                if to == known {
                    next.push_back(after);
                }
                if is_ours {
                    self.before[to].push(from);
                }
            }
        }
    }

    /// The number of a state, a new one if it was not known.
    fn number<M>(&mut self, model: &M, state: &M::State) -> usize
    where
        M: Protocol,
        M::State: Hash,
    {
        let mut hasher = DefaultHasher::new();
        state.hash(&mut hasher);
        match self.numbers.entry(hasher.finish()) {
            Entry::Occupied(known) => *known.get(),
            Entry::Vacant(new) => {
                let number = *new.insert(self.before.len());
                self.before.push(Vec::new());
                self.is_over.push(model.is_over(state));
                number
            }
        }
    }

    /// A state from which no final one can be reached.
    fn cut_off(&self) -> Option<usize> {
        let mut reaches = self.is_over.clone();
        let mut next: Vec<usize> = (0..reaches.len()).filter(|it| reaches[*it]).collect();
        while let Some(to) = next.pop() {
            for from in &self.before[to] {
                if !std::mem::replace(&mut reaches[*from], true) {
                    next.push(*from);
                }
            }
        }
        reaches.iter().position(|reaches| !reaches)
    }
}
