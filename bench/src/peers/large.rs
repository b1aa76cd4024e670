//! A large backlog: two relays beside the design that this one began with.

use std::time::Duration;

use crate::{
    Result,
    baseline::{BASELINE, Database, OURS, SettleMode, fill, postgres::PostgresBench},
    case::{Bench, Case, drain_by_hand},
    figure::{Goal, Unit},
    measure::measure,
    relays::{Listen, Relays},
};

const RELAYS: usize = 2;
/// It would take hours.
const SEED_TIME: Duration = Duration::from_secs(5);
/// Rounds that warm up would take as long as those that count.
const ROUNDS: usize = 3;

pub(super) async fn run(bench: &mut Bench<'_, PostgresBench>) -> Result {
    let backlog = bench.scale().large;
    let name = format!("2 relays drain {backlog} beside a lease by row");
    if !bench.wants(&name) {
        return Ok(());
    }
    let database = &bench.database.workers(4 * RELAYS).await?;
    let listen = Listen::Read(backlog);
    let relays = Relays::start(database, OURS, RELAYS, SettleMode::Delete, listen).await?;
    database.fill_seed(backlog).await?;
    let (mut ours, mut hand, mut seed) = (Vec::new(), Vec::new(), Vec::new());
    for round in 1..=ROUNDS {
        eprintln!("round {round} of {ROUNDS}: {backlog} events");
        seed.push(measure(database, database.drain_seed(SEED_TIME)).await?);
        fill(database, OURS, backlog).await?;
        ours.push(measure(database, relays.drain(database, backlog.into())).await?);
        fill(database, BASELINE, backlog).await?;
        hand.push(drain_by_hand(database, RELAYS, SettleMode::Delete).await?);
    }
    relays.stop().await?;
    let case = Case {
        name: &name,
        unit: Unit::Events,
        against: "a loop for each relay with hand-written statements: read a page, settle it",
        goal: Some(Goal::AtLeast(0.6)),
    };
    let label = "lease by row, batches of 50, an update for each, 4 workers, 5 s";
    let goal = Some(Goal::AtLeast(500.0));
    let figure = bench.figure(case, &ours, &hand)?.peer(label, &ours, &seed, goal);
    bench.report(figure);
    Ok(())
}
