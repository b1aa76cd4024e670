//! What becomes of a relay's drain as something grows: the backlog, its keys, its payloads, the
//! relays, the rows that are kept.

use crate::{
    Result,
    baseline::{BASELINE, Database, Load, OURS, Prefix, SettleMode, postgres::PostgresBench},
    case::{Bench, Case, drain_by_hand},
    event::{KEYS, NOTE},
    figure::{Point, Unit},
    measure::{Sample, measure},
    relays::{Listen, Relays},
};

const ROUNDS: usize = 3;

/// What a drain is made of; one of it grows.
#[derive(Clone, Debug)]
struct Step {
    axis: &'static str,
    at: u32,
    backlog: u32,
    keys: u32,
    relays: usize,
    /// Rows that are done and kept.
    kept: u32,
    note: String,
}

pub(crate) async fn run(bench: &mut Bench<'_, PostgresBench>) -> Result {
    let (backlog, large) = (bench.scale().backlog, bench.scale().large);
    for step in steps(backlog, large) {
        let name = format!("growth, {} {}", step.axis, step.at);
        if bench.wants(&name) {
            case(bench, &name, &step).await?;
        }
    }
    Ok(())
}

fn steps(backlog: u32, large: u32) -> Vec<Step> {
    let step = |axis, at| {
        let note = NOTE.to_owned();
        Step { axis, at, backlog, keys: KEYS, relays: 1, kept: 0, note }
    };
    let backlogs = [10_000, 100_000, 1_000_000].into_iter().filter(|backlog| *backlog <= large);
    let backlogs = backlogs.map(|at| Step { backlog: at, ..step("backlog", at) });
    let keys = [1, 10, 1000, 100_000].map(|at| Step { keys: at, ..step("keys", at) });
    let relays = [(1, 1), (2, 2), (4, 4)];
    let relays = relays.map(|(at, relays)| Step { relays, ..step("relays", at) });
    let payloads = [(100, 1), (1 << 10, 2), (10 << 10, 10), (100 << 10, 100)];
    let payloads = payloads.map(|(at, part)| {
        let step = step("payload bytes", at);
        Step { backlog: backlog / part, note: noise(at), ..step }
    });
    let kept = [0, 100_000, 1_000_000, 5_000_000].into_iter().filter(|kept| kept / 5 <= large);
    let kept = kept.map(|at| Step { kept: at, ..step("kept rows", at) });
    backlogs.chain(keys).chain(relays).chain(payloads).chain(kept).collect()
}

/// Text that no database makes shorter.
fn noise(bytes: u32) -> String {
    const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789-_";
    let mut state = 0x9e37_79b9_7f4a_7c15_u64;
    let letter = |_| {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        let place = usize::from((state >> 56) as u8 & 63);
        char::from(LETTERS[place])
    };
    (0..bytes).map(letter).collect()
}

async fn case(bench: &mut Bench<'_, PostgresBench>, name: &str, step: &Step) -> Result {
    let database = &bench.database.workers(4 * step.relays).await?;
    for prefix in [OURS, BASELINE] {
        database.empty(prefix).await?;
        if step.kept > 0 {
            let load = Load { first: 1, count: step.kept, keys: KEYS, status: 1 };
            database.load(prefix, load).await?;
        }
    }
    let relays =
        Relays::start(database, OURS, step.relays, SettleMode::Delete, Listen::Count).await?;
    let (mut ours, mut hand) = (Vec::new(), Vec::new());
    for _ in 0..ROUNDS {
        fill(database, OURS, step).await?;
        let sample = measure(database, relays.drain(database, step.backlog.into())).await?;
        ours.push(all_drained(database, OURS, step, sample).await?);
        fill(database, BASELINE, step).await?;
        let sample = drain_by_hand(database, step.relays, SettleMode::Delete).await?;
        hand.push(all_drained(database, BASELINE, step, sample).await?);
    }
    relays.stop().await?;
    let case = Case {
        name,
        unit: Unit::Events,
        against: "a loop for each relay with hand-written statements: read a page, settle it",
        goal: None,
    };
    let mut figure = bench.figure(case, &ours, &hand)?;
    figure.point = Some(Point { axis: step.axis, at: step.at, what: None });
    bench.report(figure);
    Ok(())
}

async fn fill(database: &PostgresBench, prefix: Prefix, step: &Step) -> Result {
    if step.kept == 0 {
        database.empty(prefix).await?;
    }
    let load = Load { first: step.kept + 1, count: step.backlog, keys: step.keys, status: 0 };
    database.load_note(prefix, load, &step.note).await?;
    database.analyze_table(prefix).await
}

async fn all_drained(
    database: &PostgresBench,
    prefix: Prefix,
    step: &Step,
    sample: Sample,
) -> Result<Sample> {
    let left = database.count(prefix, 0).await?;
    let done = database.count(prefix, 1).await?;
    if sample.count != u64::from(step.backlog) || left != 0 || done != u64::from(step.kept) {
        let (backlog, count) = (step.backlog, sample.count);
        return Err(format!("of {backlog} events {count} drained, {left} left, {done} kept").into());
    }
    Ok(sample)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_thing_grows_at_a_time() {
        for step in steps(50_000, 1_000_000) {
            let grown = [
                step.keys != KEYS,
                step.relays != 1,
                step.kept != 0,
                step.note != NOTE,
                step.backlog != 50_000 && step.axis == "backlog",
            ];

            assert!(grown.iter().filter(|grown| **grown).count() <= 1, "{step:?}");
        }
    }

    #[test]
    fn noise_is_as_long_as_it_should_be() {
        assert_eq!(noise(1000).len(), 1000);
        assert_ne!(noise(1000)[..500], noise(1000)[500..]);
    }
}
