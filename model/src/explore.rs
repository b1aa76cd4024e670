//! Exploring a model: what Stateright finds, and whether everything can still be delivered.

use std::collections::{HashMap, VecDeque};
use std::hash::Hash;

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

/// A state from which nothing that we do ourselves leads to the end.
fn stuck<M>(model: &M) -> Option<String>
where
    M: Protocol,
    M::State: Clone + Eq + Hash + std::fmt::Debug,
    M::Action: Clone,
{
    let mut graph = Graph::default();
    let mut next: VecDeque<_> = model.init_states().into_iter().map(|it| graph.enter(it)).collect();
    let mut actions = Vec::new();
    while let Some(from) = next.pop_front() {
        let state = graph.states[from].clone();
        actions.clear();
        model.actions(&state, &mut actions);
        for action in actions.drain(..) {
            let is_ours = !model.is_fault(&action);
            let Some(after) = model.next_state(&state, action) else { continue };
            let known = graph.states.len();
            let to = graph.enter(after);
            if to == known {
                next.push_back(to);
            }
            if is_ours {
                graph.before[to].push(from);
            }
        }
    }
    graph.cut_off(|state| model.is_over(state)).map(|state| format!("{state:?}"))
}

/// All states, and from which ones a step of ours leads to each.
struct Graph<S> {
    numbers: HashMap<S, usize>,
    states: Vec<S>,
    before: Vec<Vec<usize>>,
}

impl<S> Default for Graph<S> {
    fn default() -> Self {
        Self { numbers: HashMap::new(), states: Vec::new(), before: Vec::new() }
    }
}

impl<S: Clone + Eq + Hash> Graph<S> {
    /// The number of a state, a new one if it was not known.
    fn enter(&mut self, state: S) -> usize {
        if let Some(number) = self.numbers.get(&state) {
            return *number;
        }
        let number = self.states.len();
        self.numbers.insert(state.clone(), number);
        self.states.push(state);
        self.before.push(Vec::new());
        number
    }

    /// A state from which no such one can be reached.
    fn cut_off(&self, is_over: impl Fn(&S) -> bool) -> Option<&S> {
        let mut reaches: Vec<bool> = self.states.iter().map(is_over).collect();
        let mut next: Vec<usize> = (0..reaches.len()).filter(|it| reaches[*it]).collect();
        while let Some(to) = next.pop() {
            for from in &self.before[to] {
                if !std::mem::replace(&mut reaches[*from], true) {
                    next.push(*from);
                }
            }
        }
        reaches.iter().position(|reaches| !reaches).map(|it| &self.states[it])
    }
}
