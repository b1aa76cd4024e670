//! The runs of rows that wait.

use super::{Expected, Run, breaks, holds};
use crate::explore::{Found, explore};
use crate::waiting::{Faults, Rules, Waiting};

const MODEL: &str = "rows that wait";

const ALL: Faults = Faults {
    late: true,
    delay: true,
    hold: true,
    put_back: true,
    lose: true,
    crash: true,
    reset: true,
    sweep: true,
};

/// Of rows below the floor, an operator's alone are to be found.
const OPERATED: Faults = Faults { late: false, delay: false, lose: false, ..ALL };

/// The relay hears of whatever happens below its floor, so that it need not sweep.
const HEARD: Faults = Faults { late: false, hold: false, lose: false, sweep: false, ..ALL };

const fn rows(events: u8, reads: usize, rules: Rules, faults: Faults) -> Waiting {
    Waiting { events, reads, rules, faults }
}

/// Two events, and one read at a time.
fn broken(rules: Rules, faults: Faults) -> Found {
    explore(&rows(2, 1, rules, faults))
}

pub(super) fn runs() -> Vec<Run> {
    [kept(), refuted_by_a_promise(), refuted_by_what_is_left()].into_iter().flatten().collect()
}

fn kept() -> Vec<Run> {
    vec![
        holds(MODEL, "3 events, all faults", || explore(&rows(3, 1, Rules::KEPT, ALL))),
        holds(MODEL, "2 events, all faults but a cursor reset, two concurrent reads", || {
            explore(&rows(2, 2, Rules::KEPT, Faults { reset: false, ..ALL }))
        }),
        holds(MODEL, "3 events, no sweep and no fault that needs one", || {
            explore(&rows(3, 1, Rules::KEPT, HEARD))
        }),
        holds(
            MODEL,
            "2 events, no sweep and no fault that needs one, two concurrent reads",
            || explore(&rows(2, 2, Rules::KEPT, HEARD)),
        ),
    ]
}

fn refuted_by_a_promise() -> Vec<Run> {
    vec![
        breaks(MODEL, "a row behind a waiting one starts", "order", || {
            broken(Rules { blocked_probe: false, ..Rules::KEPT }, ALL)
        }),
        breaks(MODEL, "a row behind a new one below the cursor starts", "order", || {
            broken(Rules { below_probe: false, ..Rules::KEPT }, ALL)
        }),
        breaks(
            MODEL,
            "a read that began before its key was blocked is taken in unfiltered",
            "order",
            || broken(Rules { close: false, ..Rules::KEPT }, ALL),
        ),
        breaks(
            MODEL,
            "a read that began before a row was put back is taken in unfiltered",
            "order",
            || broken(Rules { put_back_closes: false, ..Rules::KEPT }, ALL),
        ),
        breaks(MODEL, "rows queued behind a postponed one start", "order", || {
            broken(Rules { drops_queue: false, ..Rules::KEPT }, ALL)
        }),
        breaks(MODEL, "a row behind one that is not yet due starts", "order", || {
            broken(Rules { early: false, ..Rules::KEPT }, ALL)
        }),
        breaks(
            MODEL,
            "a row settled during a read is taken in",
            "no unexplained duplicate",
            || broken(Rules { in_flight: false, ..Rules::KEPT }, ALL),
        ),
    ]
}

fn refuted_by_what_is_left() -> Vec<Run> {
    vec![
        stuck("sweeps do not read heads of keys; an operator acts", || {
            broken(Rules { heads: false, ..Rules::KEPT }, OPERATED)
        }),
        stuck("no sweep, and promoted rows are not read", || {
            broken(Rules { promoted: false, ..Rules::KEPT }, HEARD)
        }),
        stuck("no sweep, and a promotion is compared with the current cursor only", || {
            broken(Rules { rising: false, ..Rules::KEPT }, HEARD)
        }),
        stuck("no sweep, and the promotion of a row in flight is forgotten", || {
            broken(Rules { unheard: false, ..Rules::KEPT }, HEARD)
        }),
        stuck("no sweep, and heads of keys are not read when the cursor has advanced", || {
            broken(Rules { heads_at_rise: false, ..Rules::KEPT }, HEARD)
        }),
        stuck("no sweep, and the rest of a head's key is not read", || {
            broken(Rules { tail: false, ..Rules::KEPT }, HEARD)
        }),
        stuck("no sweep, and a read satisfies requests made after it began", || {
            broken(Rules { requests_outlive_reads: false, ..Rules::KEPT }, HEARD)
        }),
    ]
}

fn stuck(name: &'static str, explore: fn() -> Found) -> Run {
    Run { model: MODEL, name, expected: Expected::Stuck, explore }
}
