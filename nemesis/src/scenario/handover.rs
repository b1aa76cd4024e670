//! Relays without faults, rolling restarts, and takeovers.

use std::time::Duration;

use pillarbox::{Outbox, RelaySettings};

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, now, wait_until};
use crate::Result;
use crate::check::{Faults, Report};
use crate::config::WriteLoad;
use crate::finding::Finding;
use crate::process::Process;
use crate::settings::long_lease;
use crate::writer::Writers;

const RELAYS: u64 = 4;

/// Four relay processes that write and deliver, and nothing is done to them.
pub(super) async fn no_faults(env: &Environment) -> Result<Vec<Finding>> {
    // Seven of ten commit, five steps each, of each a step and a unordered events.
    let transactions = env.options.scale.pick(40, 1000, 14_400) / RELAYS;
    let mut relays = Vec::new();
    for number in 1..=RELAYS {
        let mut config = env.relay_config(&format!("r{number}"), &long_lease());
        let first = number * 1_000_003;
        config.writes = Some(WriteLoad { writers: 2, first, ..env.write_load(transactions) });
        relays.push(env.relay(&config)?);
    }
    let mut tail = env.tail()?;
    let wrote = async || {
        tail.poll()?;
        Ok(tail.writers_finished == RELAYS)
    };
    wait_until(PROGRESS_TIMEOUT, wrote).await?;
    env.drained().await?;
    stop(relays).await?;

    let report = env.report(&Faults::default()).await?;
    let mut found = without_fault(&report);
    found.push(Finding::guarantee(
        "of them through the local queue",
        report.from_local_queue,
        "> 0",
        report.from_local_queue > 0,
    ));
    Ok(found)
}

/// Four relays, each stopped and started again in turn while events are written.
///
/// Their lease is ten minutes: what a stopped relay did not hand over at once would be stuck.
pub(super) async fn rolling_restart(env: &Environment) -> Result<Vec<Finding>> {
    let settings = RelaySettings { lease: Duration::from_secs(600), ..long_lease() };
    let mut relays = Vec::new();
    for number in 1..=RELAYS {
        relays.push(env.relay(&env.relay_config(&format!("r{number}.0"), &settings))?);
    }
    let writes = WriteLoad { rest: 5, ..env.write_load(u64::MAX) };
    let writers = Writers::start(&env.deployment.bank, &Outbox::new(), writes);
    let rounds = env.options.scale.pick(1, 3, 10);
    for round in 1..=rounds {
        for number in 1..=RELAYS {
            progress(env).await?;
            relays.remove(0).stop().await?;
            let incarnation = format!("r{number}.{round}");
            relays.push(env.relay(&env.relay_config(&incarnation, &settings))?);
        }
    }
    writers.stop().await?;
    env.drained().await?;
    stop(relays).await?;

    let report = env.report(&Faults::default()).await?;
    let mut found = vec![Finding::info("graceful restarts under load", rounds * RELAYS)];
    found.extend(without_fault(&report));
    Ok(found)
}

/// Waits until something more was delivered, so that a restart happens under load.
async fn progress(env: &Environment) -> Result {
    let mut tail = env.tail()?;
    tail.poll()?;
    let before = tail.deliveries;
    let more = async || {
        tail.poll()?;
        Ok(tail.deliveries > before + 20)
    };
    wait_until(PROGRESS_TIMEOUT, more).await
}

/// Two relays under load, one of them killed: when does the other have all shards?
pub(super) async fn takeover(env: &Environment) -> Result<Vec<Finding>> {
    let lease = Duration::from_secs(2);
    let settings = RelaySettings {
        lease,
        delivery_timeout: Duration::from_secs(1),
        margin: Duration::from_millis(200),
        poll: Duration::from_millis(100),
        ..long_lease()
    };
    let writes = WriteLoad { rest: 10, ..env.write_load(u64::MAX) };
    let writers = Writers::start(&env.deployment.bank, &Outbox::new(), writes);
    let mut times = Vec::new();
    let mut faults = Faults::default();
    let mut successor = env.relay(&env.relay_config("r0", &settings))?;
    for kill in 1..=env.options.scale.pick(1, 3, 10) {
        // First alone: where there is one shard, it must be the one to be killed that has it.
        delivers(env, successor.incarnation()).await?;
        let incarnation = format!("r{kill}");
        let next = env.relay(&env.relay_config(&incarnation, &settings))?;
        both_deliver(env, successor.incarnation(), &incarnation).await?;
        faults.killed(successor.incarnation());
        successor.kill().await?;
        times.push(alone(env).await?);
        successor = next;
    }
    writers.stop().await?;
    env.drained().await?;
    successor.stop().await?;

    let report = env.report(&faults).await?;
    let worst = times.iter().max().copied().unwrap_or_default();
    let most = lease + Duration::from_secs(1);
    let mut found = vec![
        Finding::info("kills of one relay of two, lease 2 s", times.len()),
        Finding::target(
            "all shards taken over, at most",
            seconds(worst),
            "<= 3.0 s",
            worst <= most,
        ),
        Finding::info("duplicates", report.duplicates),
        Finding::must_be_zero("duplicates without a fault", report.unexplained),
    ];
    found.extend(safe(&report));
    Ok(found)
}

async fn delivers(env: &Environment, incarnation: &str) -> Result {
    let mut tail = env.tail()?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.incarnations.contains_key(incarnation))
    })
    .await
}

/// Waits until both deliver; where there is one shard, until the newcomer is there to take it.
async fn both_deliver(env: &Environment, old: &str, new: &str) -> Result {
    let mut tail = env.tail()?;
    let has_one_shard = env.deployment.store.config().await?.shards.get() == 1;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        let delivers = |incarnation| tail.incarnations.contains_key(incarnation);
        let both = env.deployment.store.stats().await?.owners == 2;
        Ok(both && delivers(old) && (has_one_shard || delivers(new)))
    })
    .await
}

/// Waits until one living owner has every shard, and tells how long that took.
async fn alone(env: &Environment) -> Result<Duration> {
    let killed = now();
    let shards = u64::from(env.deployment.store.config().await?.shards.get());
    wait_until(PROGRESS_TIMEOUT, async || {
        let stats = env.deployment.store.stats().await?;
        Ok(stats.owners == 1 && stats.owned_shards == shards)
    })
    .await?;
    Ok(killed.elapsed())
}

async fn stop(relays: Vec<Process>) -> Result {
    for process in relays {
        process.stop().await?;
    }
    Ok(())
}

fn without_fault(report: &Report) -> Vec<Finding> {
    let mut found = vec![Finding::info("events committed", report.committed)];
    found.extend(safe(report));
    found.push(Finding::must_be_zero("duplicates", report.duplicates));
    found
}

pub(super) fn safe(report: &Report) -> [Finding; 3] {
    [
        Finding::must_be_zero("lost", report.lost),
        Finding::must_be_zero("ghosts", report.ghosts),
        Finding::must_be_zero("first deliveries of a key out of order", report.inversions),
    ]
}

/// As a person reads it.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
