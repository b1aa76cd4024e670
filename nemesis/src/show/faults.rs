//! Four relays, killed, paused beyond their lease and restarted at random while events are
//! written, some by the relays' own processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::{Outbox, RelaySettings};
use tokio::task::JoinSet;

use super::PATIENCE;
use super::stage::{Stage, now, wait};
use crate::Result;
use crate::chance::Chance;
use crate::check::{Faults, Report};
use crate::orders::{Orders, Writing};
use crate::process::{Process, Program};
use crate::settings::{MAX_UNSETTLED, hurried};
use crate::table::Finding;
use crate::writer::Writers;

const RELAYS: u64 = 4;

/// Long enough to be renewed on a busy machine, short enough to be outlasted many times.
const LEASE: Duration = Duration::from_secs(1);

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    let span = stage.scale.pick(4, 15, 60);
    let steps = stage.scale.pick(100, 5_000, 50_000);
    let writing = Writing { rest: 10, ..stage.writing(u64::MAX) };
    let writers = Writers::start(&stage.place.bank, &Outbox::new(), writing);
    let over = Arc::new(AtomicBool::new(false));
    let mut slots = start_slots(stage, &over)?;

    let end = now() + Duration::from_secs(span);
    // So many events take their time on a machine that has other things to do.
    wait(4 * PATIENCE, async || Ok(now() >= end && stage.steps().await? >= steps)).await?;
    over.store(true, Ordering::Relaxed);
    let (mut faults, mut relays) = (Faults::default(), Vec::new());
    while let Some(slot) = slots.join_next().await {
        let slot = slot??;
        faults.extend(slot.faults);
        relays.extend(slot.process);
    }
    pause_until_fenced(stage, &mut relays, &mut faults).await?;
    writers.stop().await?;
    finish(stage, relays, &mut faults).await?;
    Ok(findings(&stage.report(2, &faults).await?, &faults))
}

fn settings() -> RelaySettings {
    RelaySettings {
        lease: LEASE,
        delivery_timeout: LEASE * 6 / 10,
        margin: LEASE / 10,
        ..hurried()
    }
}

fn start_slots(stage: &Stage, over: &Arc<AtomicBool>) -> Result<JoinSet<Result<Slot>>> {
    let mut slots = JoinSet::new();
    for number in 1..=RELAYS {
        // One that is paused with an account's lock in its hands holds all other writers up.
        let writing = Writing { writers: 1, batch: 1, rest: 100, ..stage.writing(u64::MAX) };
        let first = number * 1_000_003;
        let mut orders = stage.orders("", &settings());
        orders.writing = Some(Writing { first, ..writing });
        let mut slot = Slot {
            number,
            orders,
            program: stage.program.clone(),
            errors: stage.place.errors(),
            process: None,
            started: 0,
            faults: Faults::default(),
        };
        slot.start()?;
        let chance = Chance::new(stage.seed.wrapping_add(number));
        slots.spawn(slot.torment(chance, Arc::clone(over)));
    }
    Ok(slots)
}

/// One relay of the four, through all its lives.
struct Slot {
    number: u64,
    orders: Orders,
    program: Program,
    errors: std::path::PathBuf,
    process: Option<Process>,
    started: u64,
    faults: Faults,
}

impl Slot {
    fn start(&mut self) -> Result {
        self.started += 1;
        self.orders.life = format!("r{}.{}", self.number, self.started);
        self.process = Some(self.program.start("relay", &self.orders, &self.errors)?);
        Ok(())
    }

    async fn torment(mut self, mut chance: Chance, over: Arc<AtomicBool>) -> Result<Self> {
        while !over.load(Ordering::Relaxed) {
            tokio::time::sleep(chance.around(LEASE / 2)).await;
            let Some(process) = self.process.take() else { return Err("no process".into()) };
            match chance.below(3) {
                0 => {
                    self.faults.killed(process.life());
                    process.kill().await?;
                    tokio::time::sleep(Duration::from_millis(chance.below(1000))).await;
                    self.start()?;
                }
                1 => {
                    pause(&process, chance.around(LEASE * 3 / 2), &mut self.faults).await?;
                    self.process = Some(process);
                }
                _ => {
                    process.stop().await?;
                    self.start()?;
                }
            }
        }
        Ok(self)
    }
}

async fn pause(process: &Process, length: Duration, faults: &mut Faults) -> Result {
    faults.paused(process.life());
    process.pause().await?;
    tokio::time::sleep(length).await;
    process.resume().await
}

/// A pause may fall where there is nothing to fence; under load, the next one or so does not.
async fn pause_until_fenced(stage: &Stage, relays: &mut [Process], faults: &mut Faults) -> Result {
    let mut tail = stage.tail()?;
    wait(PATIENCE, async || {
        tail.look()?;
        if tail.fenced > 0 {
            return Ok(true);
        }
        for process in relays.iter() {
            pause(process, LEASE * 3 / 2, faults).await?;
        }
        Ok(false)
    })
    .await
}

/// The relays write, too: they are killed for that, and others drain what is left.
async fn finish(stage: &Stage, relays: Vec<Process>, faults: &mut Faults) -> Result {
    for process in relays {
        faults.killed(process.life());
        process.kill().await?;
    }
    let last = stage.relay(&stage.orders("last", &settings()))?;
    stage.drained().await?;
    last.stop().await
}

fn findings(report: &Report, faults: &Faults) -> Vec<Finding> {
    let (pauses, kills) = faults.count();
    let bound = MAX_UNSETTLED as usize;
    let within = format!("<= {bound}");
    vec![
        Finding::told("kills", kills),
        Finding::told("pauses beyond the lease", pauses),
        Finding::told("leases lost", report.lapses),
        Finding::told("events committed", report.committed),
        Finding::told("of them hot", report.hot),
        Finding::none("lost", report.lost),
        Finding::none("ghosts", report.ghosts),
        Finding::none("first deliveries of a key out of order", report.inversions),
        Finding::promise("late verdicts fenced", report.fenced, "> 0", report.fenced > 0),
        Finding::told("duplicates", report.duplicates),
        Finding::none("duplicates that no fault explains", report.unexplained),
        Finding::promise(
            "most duplicates of one fault",
            report.worst,
            &within,
            report.worst <= bound,
        ),
    ]
}
