//! Four relays, killed, paused beyond their lease and restarted at random while events are
//! written, some by the relays' own processes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::{Outbox, RelaySettings};
use tokio::task::JoinSet;

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, now, wait_until};
use super::fault::{FaultKind, InjectedFaults};
use super::late_verdict;
use super::supervised::SupervisedProcess;
use crate::Result;
use crate::check::{Faults, Report};
use crate::config::{ProcessConfig, WriteLoad};
use crate::finding::Finding;
use crate::rng::SeededRng;
use crate::role::Role;
use crate::settings::{MAX_UNSETTLED, short_lease};
use crate::writer::Writers;

const RELAYS: u64 = 4;

/// Long enough to be renewed on a busy machine, short enough to be outlasted many times.
const LEASE: Duration = Duration::from_secs(1);

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let span = env.options.scale.pick(4, 15, 60);
    let ordered = env.options.scale.pick(100, 5_000, 50_000);
    let writes = WriteLoad { rest: 10, ..env.write_load(u64::MAX) };
    let writers = Writers::start(&env.deployment.bank, &Outbox::new(), writes);
    let over = Arc::new(AtomicBool::new(false));
    let mut processes = start_processes(env, &over)?;

    let end = now() + Duration::from_secs(span);
    // So many events take their time on a machine that has other things to do.
    wait_until(4 * PROGRESS_TIMEOUT, async || {
        Ok(now() >= end && env.ordered_events().await? >= ordered)
    })
    .await?;
    over.store(true, Ordering::Relaxed);
    let mut injected = InjectedFaults::default();
    // The relays write, too: they are killed for that.
    for relay in gather(&mut processes).await? {
        injected.extend(relay.end().await?);
    }
    injected.extend(late_verdict::inject(env, &settings()).await?);
    writers.stop().await?;
    let last = env.relay(&env.relay_config("last", &settings()))?;
    env.drained().await?;
    last.stop().await?;
    Ok(findings(&env.report(&injected.faults).await?, &injected.faults))
}

pub(super) fn settings() -> RelaySettings {
    RelaySettings {
        lease: LEASE,
        delivery_timeout: LEASE * 6 / 10,
        margin: LEASE / 10,
        ..short_lease()
    }
}

/// ProcessConfig for a relay that writes a little, too.
///
/// One that is paused with an account's lock in its hands holds all other writers up.
pub(super) fn config(env: &Environment, number: u64) -> ProcessConfig {
    let writes = WriteLoad { writers: 1, batch: 1, rest: 100, ..env.write_load(u64::MAX) };
    let first = number * 1_000_003;
    let mut config = env.relay_config("", &settings());
    config.writes = Some(WriteLoad { first, ..writes });
    config
}

fn start_processes(
    env: &Environment,
    over: &Arc<AtomicBool>,
) -> Result<JoinSet<Result<SupervisedProcess>>> {
    let mut processes = JoinSet::new();
    for number in 1..=RELAYS {
        let mut supervised = SupervisedProcess::new(env, number, Role::Relay, config(env, number))?;
        supervised.live()?;
        let rng = SeededRng::new(env.options.seed.wrapping_add(number));
        let assigned =
            vec![FaultKind::PROCESS[usize::try_from(number)? % FaultKind::PROCESS.len()]];
        processes.spawn(supervised.inject_faults(rng, assigned, Arc::clone(over)));
    }
    Ok(processes)
}

/// Waits until nothing more is done to them.
pub(super) async fn gather(
    processes: &mut JoinSet<Result<SupervisedProcess>>,
) -> Result<Vec<SupervisedProcess>> {
    let mut all = Vec::new();
    while let Some(supervised) = processes.join_next().await {
        all.push(supervised??);
    }
    Ok(all)
}

fn findings(report: &Report, faults: &Faults) -> Vec<Finding> {
    let (pauses, kills) = faults.count();
    let bound = MAX_UNSETTLED as usize;
    let within = format!("<= {bound}");
    vec![
        Finding::info("kills", kills),
        Finding::info("pauses beyond the lease", pauses),
        Finding::info("leases lost", report.lapses),
        Finding::info("events committed", report.committed),
        Finding::info("of them through the local queue", report.from_local_queue),
        Finding::must_be_zero("lost", report.lost),
        Finding::must_be_zero("ghosts", report.ghosts),
        Finding::must_be_zero("first deliveries of a key out of order", report.inversions),
        Finding::guarantee("late verdicts fenced", report.fenced, "> 0", report.fenced > 0),
        Finding::info("duplicates", report.duplicates),
        Finding::must_be_zero("duplicates without a fault", report.unexplained),
        Finding::guarantee(
            "most duplicates of one fault",
            report.worst,
            &within,
            report.worst <= bound,
        ),
    ]
}
