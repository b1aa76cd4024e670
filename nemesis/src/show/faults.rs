//! Four relays, killed, paused beyond their lease and restarted at random while events are
//! written, some by the relays' own processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::{Outbox, RelaySettings};
use tokio::task::JoinSet;

use super::PATIENCE;
use super::late;
use super::slot::Slot;
use super::stage::{Stage, now, wait};
use super::torment::{Kind, Torment};
use crate::Result;
use crate::chance::Chance;
use crate::check::{Faults, Report};
use crate::orders::{Orders, Writing};
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
    let mut torment = Torment::default();
    // The relays write, too: they are killed for that.
    for relay in gather(&mut slots).await? {
        torment.extend(relay.end().await?);
    }
    torment.extend(late::verdict(stage, &settings()).await?);
    writers.stop().await?;
    let last = stage.relay(&stage.orders("last", &settings()))?;
    stage.drained().await?;
    last.stop().await?;
    Ok(findings(&stage.report(&torment.faults).await?, &torment.faults))
}

pub(super) fn settings() -> RelaySettings {
    RelaySettings {
        lease: LEASE,
        delivery_timeout: LEASE * 6 / 10,
        margin: LEASE / 10,
        ..hurried()
    }
}

/// Orders for a relay that writes a little, too.
///
/// One that is paused with an account's lock in its hands holds all other writers up.
pub(super) fn orders(stage: &Stage, number: u64) -> Orders {
    let writing = Writing { writers: 1, batch: 1, rest: 100, ..stage.writing(u64::MAX) };
    let first = number * 1_000_003;
    let mut orders = stage.orders("", &settings());
    orders.writing = Some(Writing { first, ..writing });
    orders
}

fn start_slots(stage: &Stage, over: &Arc<AtomicBool>) -> Result<JoinSet<Result<Slot>>> {
    let mut slots = JoinSet::new();
    for number in 1..=RELAYS {
        let mut slot = Slot::new(stage, number, "relay", orders(stage, number))?;
        slot.live()?;
        let chance = Chance::new(stage.seed.wrapping_add(number));
        let dealt = vec![Kind::PROCESS[usize::try_from(number)? % Kind::PROCESS.len()]];
        slots.spawn(slot.torment(chance, dealt, Arc::clone(over)));
    }
    Ok(slots)
}

/// Waits until nothing more is done to them.
pub(super) async fn gather(slots: &mut JoinSet<Result<Slot>>) -> Result<Vec<Slot>> {
    let mut all = Vec::new();
    while let Some(slot) = slots.join_next().await {
        all.push(slot??);
    }
    Ok(all)
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
