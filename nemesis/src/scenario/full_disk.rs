//! A disk that is full, again and again, under relays and writers.

use std::time::Duration;

use super::combined_faults::server::{is_ours, see_to};
use super::combined_faults::{self, Expected, Outcome};
use super::environment::{Environment, now, wait_until};
use super::fault::{FaultKind, InjectedFaults};
use super::{PROGRESS_TIMEOUT, skip};
use crate::deployment::Server;
use crate::disk::Disk;
use crate::finding::Finding;
use crate::process::Process;
use crate::rng::SeededRng;
use crate::role::Role;
use crate::{Result, audit};

const RELAYS: u64 = 2;

/// How long the disk is full, and how long it is not, at least.
const LONG: Duration = Duration::from_secs(1);

/// Who writes for so long finds the disk full.
const NOTICED: Duration = PROGRESS_TIMEOUT;

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    if env.deployment.server == Server::Mysql && !is_ours() {
        return skip("MariaDB crashes on a full disk, and this server is not private");
    }
    let disk = env.deployment.disk.as_ref().ok_or("the deployment has no disk of its own")?;
    audit::install(&env.deployment.bank).await?;
    let mut rng = SeededRng::new(env.options.seed);
    let mut processes = Vec::new();
    for number in 1..=RELAYS + 1 {
        let is_relay = number <= RELAYS;
        let mut config = combined_faults::config(env, number, is_relay);
        config.incarnation = format!("{number}");
        // What is purged makes room, and a table that does not grow needs none.
        config.settings.retention_done = Duration::from_secs(3600);
        let role = if is_relay { Role::Relay } else { Role::Write };
        processes.push(env.options.program.start(role, &config, &env.deployment.errors())?);
    }
    let (mut injected, mut deaths) = (InjectedFaults::default(), 0);
    for _ in 0..env.options.scale.pick(1, 3, 10) {
        delivers(env).await?;
        tokio::time::sleep(rng.jittered(LONG)).await;
        injected.add(FaultKind::Disk);
        processes.iter().for_each(|process| injected.faults.paused(process.incarnation()));
        full(env, disk, rng.jittered(LONG)).await?;
        deaths += usize::from(see_to(&env.deployment.bank).await?);
    }
    // It goes on by itself.
    delivers(env).await?;
    for process in processes {
        end(process, &mut injected).await?;
    }
    let drained = combined_faults::drain(env).await?;
    let kinds = vec![FaultKind::Disk];
    let expected = Expected { relays: RELAYS, kinds, crashed: None, replayed: None };
    let outcome = Outcome::of(env, expected, injected, drained).await?;
    let mut found = outcome.findings();
    if env.deployment.server != Server::Sqlite {
        found.push(Finding::info("server crashes on the full disk", deaths).key("server_deaths"));
    }
    found.push(
        Finding::must_happen("transactions that failed on the full disk", outcome.refused())
            .key("refused"),
    );
    Ok(found)
}

/// For so long, and until somebody has noticed: a file has room that is not used yet. What others
/// give back in the meantime is taken, too.
async fn full(env: &Environment, disk: &Disk, length: Duration) -> Result {
    let mut tail = env.tail()?;
    tail.poll()?;
    let (before, end) = (tail.failed, now() + length);
    let noticed = wait_until(NOTICED, async || {
        disk.fill()?;
        tail.poll()?;
        Ok(now() >= end && tail.failed > before)
    });
    noticed.await.map_err(|error| format!("no transaction failed on the full disk: {error}"))?;
    disk.free()
}

/// Waits until something more is delivered.
async fn delivers(env: &Environment) -> Result {
    let mut tail = env.tail()?;
    tail.poll()?;
    let before = tail.deliveries;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.deliveries > before + 20)
    })
    .await
    .map_err(|error| format!("deliveries have stopped: {error}").into())
}

async fn end(process: Process, injected: &mut InjectedFaults) -> Result {
    injected.usage = injected.usage.max(process.usage()?);
    injected.faults.killed(process.incarnation());
    process.kill().await
}
