//! Kills relays as soon as they deliver again, until there were enough kills.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::RelaySettings;
use tokio::task::JoinSet;

use super::outcome::{Expected, Outcome};
use super::{MOST_RELAYS, drain};
use crate::Result;
use crate::config::ProcessConfig;
use crate::finding::Finding;
use crate::log::Tail;
use crate::process::Process;
use crate::rng::SeededRng;
use crate::role::Role;
use crate::scenario::environment::{Environment, now};
use crate::scenario::fault::{FaultKind, InjectedFaults};
use crate::scenario::process_faults::gather;
use crate::scenario::supervised::SupervisedProcess;
use crate::settings::short_lease;

/// How long a relay may take until it delivers something; then it is killed all the same.
const DELIVERY_TIMEOUT: Duration = Duration::from_secs(5);

/// How often it is looked at whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is told how far it is.
const TOLD: Duration = Duration::from_secs(10);

pub(super) async fn run(env: &Environment, kills: u64) -> Result<Vec<Finding>> {
    let relays = env.options.relays.unwrap_or(MOST_RELAYS / 2);
    let left = Arc::new(AtomicU64::new(kills));
    let tail = Arc::new(Mutex::new(env.tail()?));
    let mut processes = JoinSet::new();
    for number in 1..=relays {
        let mut hunted = SupervisedProcess::new(env, number, Role::Relay, config(env, number))?;
        hunted.live()?;
        let rng = SeededRng::new(env.options.seed.wrapping_mul(31).wrapping_add(number));
        processes.spawn(hunt(hunted, rng, Arc::clone(&left), Arc::clone(&tail)));
    }
    let looking = tokio::spawn(look(Arc::clone(&tail)));
    let writer = writer(env, relays + 1)?;
    let telling = tokio::spawn(tell(kills, Arc::clone(&left)));
    let hunted = gather(&mut processes).await;
    telling.abort();
    looking.abort();
    let mut injected = InjectedFaults::default();
    for supervised in hunted? {
        injected.extend(supervised.end().await?);
    }
    writer.kill().await?;
    let drained = drain(env).await?;
    let kinds = vec![FaultKind::Kill];
    let expected = Expected { relays, kinds, crashed: None, replayed: None };
    let outcome = Outcome::of(env, expected, injected, drained).await?;
    let busy = outcome.busy_kills();
    let mut found = outcome.findings();
    found.insert(
        2,
        Finding::must_happen("of them relays that had delivered", busy).key("busy_kills"),
    );
    Ok(found)
}

/// A lease that is over before the next one is killed: somebody always has the shards.
fn config(env: &Environment, number: u64) -> ProcessConfig {
    let mut config = super::config(env, number, true);
    let RelaySettings { retention_done, purge_every, .. } = config.settings;
    config.settings = RelaySettings { retention_done, purge_every, ..short_lease() };
    config
}

/// Somebody to whom nothing happens, so that there is always something to deliver.
fn writer(env: &Environment, number: u64) -> Result<Process> {
    let mut config = super::config(env, number, false);
    config.incarnation = format!("w{number}");
    env.options.program.start(Role::Write, &config, &env.deployment.errors())
}

async fn hunt(
    mut supervised: SupervisedProcess,
    mut rng: SeededRng,
    left: Arc<AtomicU64>,
    tail: Arc<Mutex<Tail>>,
) -> Result<SupervisedProcess> {
    let take = |left: u64| left.checked_sub(1);
    loop {
        let incarnation = supervised.running()?.incarnation().to_owned();
        let has_delivered = || open(&tail).incarnations.contains_key(&incarnation);
        let end = now() + DELIVERY_TIMEOUT;
        while now() < end && !has_delivered() {
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(Duration::from_millis(rng.below(200))).await;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(supervised);
        }
        supervised.kill().await?;
        supervised.live()?;
    }
}

/// Reads what is new in the log, for all hunters.
async fn look(tail: Arc<Mutex<Tail>>) -> Result {
    loop {
        tokio::time::sleep(LOOK).await;
        open(&tail).poll()?;
    }
}

fn open(tail: &Mutex<Tail>) -> MutexGuard<'_, Tail> {
    tail.lock().unwrap_or_else(PoisonError::into_inner)
}

async fn tell(kills: u64, left: Arc<AtomicU64>) {
    let begun = now();
    loop {
        tokio::time::sleep(TOLD).await;
        let done = kills - left.load(Ordering::Relaxed);
        eprintln!("{done} of {kills} kills after {:.0} s", begun.elapsed().as_secs_f64());
    }
}
