//! What is explored: each model as it is kept, and with one rule broken.

mod waiting;

use std::time::{Duration, Instant};

use crate::explore::{Found, explore};
use crate::inbox::{self, Inbox};
use crate::relay::{self, Fence, HotRules, Relays};
use crate::row::{self, Claims};

/// One model with one set of rules.
#[derive(Debug)]
pub struct Run {
    /// The model.
    pub model: &'static str,
    /// Its rules and what may happen.
    pub name: &'static str,
    /// What is to be found.
    pub expected: Expected,
    explore: fn() -> Found,
}

/// What a run is to find.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Expected {
    /// Every promise, in every state, and a way to the end from each.
    Holds,
    /// This promise is broken.
    Breaks(&'static str),
    /// Something is never delivered.
    Stuck,
}

/// What a run has found.
#[derive(Debug)]
pub struct Outcome {
    /// Different states that were reached.
    pub states: usize,
    /// How long it took.
    pub took: Duration,
    /// The promises that were broken, each with the steps to there.
    pub broken: Vec<(&'static str, Vec<String>)>,
    /// A state from which not everything is delivered any more.
    pub stuck: Option<String>,
}

impl Run {
    /// Explores the model.
    #[expect(clippy::disallowed_methods, reason = "the time that it took is shown, and no more")]
    pub fn explore(&self) -> Outcome {
        let start = Instant::now();
        let Found { states, broken, stuck } = (self.explore)();
        Outcome { states, took: start.elapsed(), broken, stuck }
    }

    /// Whether this is what was expected.
    pub fn is_as_expected(&self, outcome: &Outcome) -> bool {
        match self.expected {
            Expected::Holds => outcome.broken.is_empty() && outcome.stuck.is_none(),
            Expected::Stuck => outcome.broken.is_empty() && outcome.stuck.is_some(),
            Expected::Breaks(promise) => outcome.broken.iter().any(|(name, _)| *name == promise),
        }
    }
}

/// All runs.
pub fn runs() -> Vec<Run> {
    let all = [shard_runs(), hot_runs(), row_runs(), waiting::runs(), inbox_runs()];
    all.into_iter().flatten().collect()
}

const NOTHING: relay::FaultBudget =
    relay::FaultBudget { lapses: 0, crashes: 0, moves: 0, rollbacks: 0 };

const fn relays(events: u8, rules: relay::Rules, faults: relay::FaultBudget) -> Relays {
    Relays { events, rules, faults, floor: true }
}

fn holds(model: &'static str, name: &'static str, explore: fn() -> Found) -> Run {
    Run { model, name, expected: Expected::Holds, explore }
}

fn breaks(
    model: &'static str,
    name: &'static str,
    promise: &'static str,
    explore: fn() -> Found,
) -> Run {
    Run { model, name, expected: Expected::Breaks(promise), explore }
}

fn shard_runs() -> Vec<Run> {
    use relay::{FaultBudget, Rules};
    const ONE_MOVE: FaultBudget = FaultBudget { moves: 1, ..NOTHING };
    const ONE_LAPSE: FaultBudget = FaultBudget { lapses: 1, ..NOTHING };
    const MANY: FaultBudget = FaultBudget { lapses: 1, crashes: 1, moves: 1, rollbacks: 1 };
    const MODEL: &str = "shard lease, epoch, settle";
    vec![
        holds(MODEL, "no faults, 3 events, two shard moves, a rollback", || {
            explore(&relays(3, Rules::KEPT, FaultBudget { moves: 2, rollbacks: 1, ..NOTHING }))
        }),
        holds(MODEL, "an expired lease, a crash, a shard move and a rollback, 2 events", || {
            explore(&relays(2, Rules::KEPT, MANY))
        }),
        holds(MODEL, "two expired leases, 2 events", || {
            explore(&relays(2, Rules::KEPT, FaultBudget { lapses: 2, ..NOTHING }))
        }),
        holds(MODEL, "an expired lease, 3 events", || explore(&relays(3, Rules::KEPT, ONE_LAPSE))),
        breaks(MODEL, "reads above the cursor without checking for predecessors", "order", || {
            explore(&relays(3, Rules { probe: false, ..Rules::KEPT }, NOTHING))
        }),
        breaks(
            MODEL,
            "reads take in rows that were settled meanwhile",
            "no unexplained duplicate",
            || explore(&relays(2, Rules { generations: false, ..Rules::KEPT }, NOTHING)),
        ),
        breaks(MODEL, "the fence checks without locking", "fence", || {
            explore(&relays(2, Rules { fence: Fence::ChecksOnly, ..Rules::KEPT }, ONE_LAPSE))
        }),
        breaks(MODEL, "no fence", "fence", || {
            explore(&relays(2, Rules { fence: Fence::Missing, ..Rules::KEPT }, ONE_LAPSE))
        }),
        breaks(
            MODEL,
            "deliveries start after the lease has expired",
            "no unexplained duplicate",
            || explore(&relays(2, Rules { deadline: false, ..Rules::KEPT }, ONE_LAPSE)),
        ),
        breaks(MODEL, "events are settled before delivery", "no loss", || {
            explore(&relays(2, Rules { delivers_first: false, ..Rules::KEPT }, NOTHING))
        }),
        Run {
            model: MODEL,
            name: "no takeover, a crash",
            expected: Expected::Stuck,
            explore: || {
                let faults = FaultBudget { crashes: 1, ..NOTHING };
                explore(&relays(2, Rules { takeover: false, ..Rules::KEPT }, faults))
            },
        },
        breaks(
            MODEL,
            "a shard move that does not wait for deliveries",
            "no unexplained duplicate",
            || explore(&relays(2, Rules { drain: false, ..Rules::KEPT }, ONE_MOVE)),
        ),
    ]
}

fn hot_runs() -> Vec<Run> {
    use relay::{FaultBudget, Rules};
    const MODEL: &str = "local queue with keys";
    const fn with(hot: HotRules) -> Rules {
        Rules { hot: Some(hot), ..Rules::KEPT }
    }
    const TWO_MOVES: FaultBudget = FaultBudget { moves: 2, ..NOTHING };
    const KEPT: HotRules = HotRules::KEPT;
    vec![
        holds(MODEL, "no faults, 3 events, a rollback", || {
            explore(&relays(3, Rules::HOT, FaultBudget { rollbacks: 1, ..NOTHING }))
        }),
        holds(MODEL, "two shard moves and a rollback, 2 events", || {
            explore(&relays(2, Rules::HOT, FaultBudget { moves: 2, rollbacks: 1, ..NOTHING }))
        }),
        holds(MODEL, "an expired lease and a crash, 2 events", || {
            explore(&relays(2, Rules::HOT, FaultBudget { lapses: 1, crashes: 1, ..NOTHING }))
        }),
        breaks(MODEL, "local delivery without registration", "no unexplained duplicate", || {
            explore(&relays(2, with(HotRules { registers: false, ..KEPT }), NOTHING))
        }),
        breaks(MODEL, "events behind a registered one do not wait", "order", || {
            explore(&relays(3, with(HotRules { holds_back: false, ..KEPT }), NOTHING))
        }),
        breaks(MODEL, "registration under another epoch", "no unexplained duplicate", || {
            explore(&relays(2, with(HotRules { epoch: false, ..KEPT }), TWO_MOVES))
        }),
        breaks(MODEL, "no check for older events of the key", "order", || {
            explore(&relays(2, with(HotRules { looks: false, ..KEPT }), NOTHING))
        }),
        breaks(MODEL, "local delivery after a rollback", "no ghost", || {
            let faults = FaultBudget { rollbacks: 1, ..NOTHING };
            explore(&relays(2, with(HotRules { proves: false, ..KEPT }), faults))
        }),
    ]
}

fn row_runs() -> Vec<Run> {
    use row::{FaultBudget, Rules};
    const MODEL: &str = "row lease, replay, purge";
    const ALL: FaultBudget =
        FaultBudget { lapses: 2, crashes: 2, lost_answers: 2, replays: 2, releases: 1 };
    const fn claims(rules: Rules) -> Claims {
        Claims { rules, faults: ALL }
    }
    vec![
        holds(MODEL, "two of each fault, two replays", || explore(&claims(Rules::KEPT))),
        breaks(MODEL, "settles without a token", "fence", || {
            explore(&claims(Rules { fence: false, ..Rules::KEPT }))
        }),
        breaks(
            MODEL,
            "deliveries start after the lease has expired",
            "no unexplained duplicate",
            || explore(&claims(Rules { deadline: false, ..Rules::KEPT })),
        ),
        breaks(MODEL, "events are settled before delivery", "no loss", || {
            explore(&claims(Rules { delivers_first: false, ..Rules::KEPT }))
        }),
        breaks(MODEL, "a replay keeps the token", "no loss", || {
            explore(&claims(Rules { replay_moves: false, ..Rules::KEPT }))
        }),
        breaks(MODEL, "a purge selects and deletes in separate steps", "no loss", || {
            explore(&claims(Rules { purge_looks: false, ..Rules::KEPT }))
        }),
    ]
}

fn inbox_runs() -> Vec<Run> {
    use inbox::Rule;
    const MODEL: &str = "inbox";
    fn with(rule: Rule) -> Found {
        explore(&Inbox { rule, crashes: 3 })
    }
    vec![
        holds(MODEL, "two consumers, three crashes", || with(Rule::Kept)),
        breaks(MODEL, "recorded after the commit", "one effect", || with(Rule::NotedAfter)),
        breaks(MODEL, "recorded before the effect", "no loss", || with(Rule::NotedBefore)),
        breaks(MODEL, "a lookup instead of a unique key", "one effect", || with(Rule::Looked)),
        breaks(MODEL, "acknowledged before the commit", "no loss", || with(Rule::AckedFirst)),
    ]
}
