//! Combined faults: relays and writers are killed, paused, restarted and disconnected, clocks are
//! shifted, sessions ended and the server killed, while an operator replays and purges.

mod kills;
mod operator;
mod outcome;
pub(super) mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::RelaySettings;
use tokio::task::JoinSet;

use self::operator::Operator;
use self::outcome::Drained;
pub(super) use self::outcome::{Expected, Outcome};
use self::server::ServerKills;
use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, now, wait_until};
use super::fault::{FaultKind, InjectedFaults};
use super::late_verdict;
use super::process_faults;
use super::supervised::SupervisedProcess;
use crate::config::{Load, ProcessConfig, WriteLoad};
use crate::deployment::{Server, is_required};
use crate::finding::Finding;
use crate::process::{Process, faketime};
use crate::rng::SeededRng;
use crate::role::Role;
use crate::{Result, audit};

const WRITERS: u64 = 2;

/// The most relays of a run.
const MOST_RELAYS: u64 = 8;

/// The longest backoff, in milliseconds.
const BACKOFF: u64 = 2000;

/// Seconds; shorter runs start more relays, so that every fault happens.
const LONG: u64 = 30;

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    audit::install(&env.deployment.bank).await?;
    if let Some(kills) = env.options.kills {
        return kills::run(env, kills).await;
    }
    let seconds = env.options.seconds.unwrap_or(env.options.scale.pick(6, 20, 60));
    let kinds = kinds(env)?;
    let relays = env.options.relays.unwrap_or_else(|| draw_relays(env.options.seed, seconds));
    let over = Arc::new(AtomicBool::new(false));
    let mut processes = start(env, relays, &kinds, &over).await?;
    let operator = Operator::start(env, &over)?;
    let crashes = ServerKills::start(env, &over);

    tokio::time::sleep(Duration::from_secs(seconds)).await;
    over.store(true, Ordering::Relaxed);
    let crashed = crashes.join().await?;
    let replayed = operator.join().await?;
    let (running, writes): (Vec<_>, Vec<_>) = process_faults::gather(&mut processes)
        .await?
        .into_iter()
        .partition(SupervisedProcess::is_relay);
    says_something(env).await?;
    let mut injected = end(running).await?;
    injected.extend(late_verdict::inject(env, &settings()).await?);
    injected.extend(end(writes).await?);
    let drained = drain(env).await?;
    let expected = Expected { relays, kinds, crashed, replayed: Some(replayed) };
    Ok(Outcome::of(env, expected, injected, drained).await?.findings())
}

/// Waits until half of the transactions have ended as they should: nothing more is done to anybody,
/// and after a short run on a busy machine it takes a while.
async fn says_something(env: &Environment) -> Result {
    let mut tail = env.tail()?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(outcome::share(tail.succeeded, tail.failed) >= outcome::MIN_SUCCESS_PERCENT)
    })
    .await
}

async fn end(processes: Vec<SupervisedProcess>) -> Result<InjectedFaults> {
    let mut injected = InjectedFaults::default();
    for supervised in processes {
        injected.extend(supervised.end().await?);
    }
    Ok(injected)
}

/// From one to eight; a short run has enough for every fault to happen.
fn draw_relays(seed: u64, seconds: u64) -> u64 {
    let least = if seconds < LONG { 4 } else { 1 };
    // Seeds beside each other begin alike.
    let mut rng = SeededRng::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    least + rng.below(MOST_RELAYS + 1 - least)
}

/// The kinds of faults that this database allows, all of which must happen.
fn kinds(env: &Environment) -> Result<Vec<FaultKind>> {
    let mut kinds = FaultKind::PROCESS.to_vec();
    if env.deployment.server == Server::Sqlite {
        return Ok(kinds);
    }
    kinds.extend(FaultKind::NETWORK);
    if faketime().is_some() {
        kinds.push(FaultKind::Clock);
    } else if is_required("faketime") {
        return Err("faketime is not installed (Debian package `faketime`)".into());
    }
    Ok(kinds)
}

/// Starts relays that write, too, and processes that only write, each behind a proxy of its own.
async fn start(
    env: &Environment,
    relays: u64,
    kinds: &[FaultKind],
    over: &Arc<AtomicBool>,
) -> Result<JoinSet<Result<SupervisedProcess>>> {
    let mut processes = JoinSet::new();
    let mut assignments = assign(kinds, relays + WRITERS, env.options.seed).into_iter();
    for number in 1..=relays + WRITERS {
        let is_relay = number <= relays;
        let role = if is_relay { Role::Relay } else { Role::Write };
        let mut supervised =
            SupervisedProcess::new(env, number, role, config(env, number, is_relay))?;
        if env.deployment.server != Server::Sqlite {
            supervised = supervised.behind_proxy().await?;
        }
        let rng = SeededRng::new(env.options.seed.wrapping_mul(31).wrapping_add(number));
        if let Some(library) = faketime().filter(|_| kinds.contains(&FaultKind::Clock)) {
            supervised = supervised.with_clocks(library, rng.clone(), number == 1);
        }
        supervised.live()?;
        processes.spawn(supervised.inject_faults(
            rng,
            assignments.next().unwrap_or_default(),
            Arc::clone(over),
        ));
    }
    Ok(processes)
}

/// Each kind to one slot, in an order by chance. Only relays are restarted, and the first slot is one.
fn assign(kinds: &[FaultKind], processes: u64, seed: u64) -> Vec<Vec<FaultKind>> {
    let mut rng = SeededRng::new(seed.wrapping_add(11));
    let mut rest: Vec<FaultKind> = kinds.to_vec();
    rest.retain(|kind| !matches!(kind, FaultKind::Clock | FaultKind::Restart));
    let mut assignments = vec![Vec::new(); usize::try_from(processes).unwrap_or(1)];
    for at in (0..assignments.len()).cycle().skip(1) {
        if rest.is_empty() {
            break;
        }
        let drawn = usize::try_from(rng.below(rest.len() as u64)).unwrap_or(0);
        assignments[at].push(rest.swap_remove(drawn));
    }
    assignments[0].push(FaultKind::Restart);
    assignments
}

pub(super) fn config(env: &Environment, number: u64, is_relay: bool) -> ProcessConfig {
    let settings = settings();
    // A file has one writer at a time, and whoever renews a lease is one.
    let longest = if env.deployment.server == Server::Sqlite {
        settings.lease / 4
    } else {
        settings.lease * 2
    };
    let load = Load::Varied(u64::try_from(longest.as_millis()).unwrap_or(0));
    let mut config = process_faults::config(env, number);
    (config.settings, config.backoff) = (settings, BACKOFF);
    let (writers, rest) = if is_relay { (1, 100) } else { (4, 10) };
    config.writes = config.writes.map(|it| WriteLoad { writers, rest, load, ..it });
    config
}

/// Rows are kept for a moment, so that there is something to purge.
fn settings() -> RelaySettings {
    RelaySettings {
        retention_done: Duration::from_secs(1),
        purge_every: Duration::from_secs(1),
        ..process_faults::settings()
    }
}

/// Starts a relay without faults that delivers the rest, and replays the dead letters.
pub(super) async fn drain(env: &Environment) -> Result<Drained> {
    std::fs::write(env.deployment.healed(), "")?;
    let (begun, left) = (now(), env.deployment.pending().await?);
    let settings = settings();
    let mut config = env.relay_config("last", &settings);
    config.backoff = BACKOFF;
    let last: Process = env.relay(&config)?;
    let operator = Operator::new(env)?;
    let is_drained = async || {
        operator.replay().await?;
        let stats = env.deployment.store.stats().await?;
        Ok(stats.new + stats.waiting + stats.held + stats.dead == 0)
    };
    let drained = wait_until(PROGRESS_TIMEOUT, is_drained).await;
    let took = begun.elapsed();
    let stats = env.deployment.store.stats().await;
    drained.map_err(|error| format!("events are not delivered ({error}): {stats:?}"))?;
    operator.look_at_done().await?;
    last.stop().await?;
    Ok(Drained {
        took,
        left,
        at_most: settings.lease + settings.sweep + Duration::from_millis(BACKOFF),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_kind_is_dealt_once_and_restarts_go_to_a_relay() {
        let kinds: Vec<FaultKind> =
            FaultKind::PROCESS.into_iter().chain(FaultKind::NETWORK).collect();
        for seed in 0..20 {
            let assignments = assign(&kinds, 1 + WRITERS, seed);

            let mut all = assignments.concat();
            all.sort_unstable();
            assert_eq!(all, kinds);
            assert!(assignments[0].contains(&FaultKind::Restart));
        }
    }

    #[test]
    fn the_seed_says_how_many_relays_there_are() {
        let long: Vec<u64> = (0..200).map(|seed| draw_relays(seed, LONG)).collect();

        assert_eq!((long.iter().min(), long.iter().max()), (Some(&1), Some(&8)));
        assert!((0..200).all(|seed| (4..=8).contains(&draw_relays(seed, 6))));
    }
}
