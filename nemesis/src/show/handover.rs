//! Relays without faults: many writers and the hot path, rolling restarts, and who takes over.

use std::time::Duration;

use pillarbox::{Outbox, RelaySettings};

use super::PATIENCE;
use super::stage::{Stage, now, wait};
use crate::Result;
use crate::check::{Faults, Report};
use crate::orders::Writing;
use crate::process::Process;
use crate::settings::calm as calm_settings;
use crate::table::Finding;
use crate::writer::Writers;

const RELAYS: u64 = 4;

/// Four relay processes that write and deliver, and nothing is done to them.
pub(super) async fn calm(stage: &Stage) -> Result<Vec<Finding>> {
    // Seven of ten commit, five steps each, of each a step and a glimpse.
    let transactions = stage.scale.pick(40, 1000, 14_400) / RELAYS;
    let mut relays = Vec::new();
    for number in 1..=RELAYS {
        let mut orders = stage.orders(&format!("r{number}"), &calm_settings());
        let first = number * 1_000_003;
        orders.writing = Some(Writing { writers: 2, first, ..stage.writing(transactions) });
        relays.push(stage.relay(&orders)?);
    }
    let mut tail = stage.tail()?;
    let wrote = async || {
        tail.look()?;
        Ok(tail.wrote == RELAYS)
    };
    wait(PATIENCE, wrote).await?;
    stage.drained().await?;
    stop(relays).await?;

    let report = stage.report(&Faults::default()).await?;
    let mut found = without_fault(&report);
    found.push(Finding::promise("of them hot", report.hot, "> 0", report.hot > 0));
    Ok(found)
}

/// Four relays, each stopped and started again in turn while events are written.
///
/// Their lease is ten minutes: what a stopped relay did not hand over at once would be stuck.
pub(super) async fn rolling(stage: &Stage) -> Result<Vec<Finding>> {
    let settings = RelaySettings { lease: Duration::from_secs(600), ..calm_settings() };
    let mut relays = Vec::new();
    for number in 1..=RELAYS {
        relays.push(stage.relay(&stage.orders(&format!("r{number}.0"), &settings))?);
    }
    let writing = Writing { rest: 5, ..stage.writing(u64::MAX) };
    let writers = Writers::start(&stage.place.bank, &Outbox::new(), writing);
    let rounds = stage.scale.pick(1, 3, 10);
    for round in 1..=rounds {
        for number in 1..=RELAYS {
            progress(stage).await?;
            relays.remove(0).stop().await?;
            let life = format!("r{number}.{round}");
            relays.push(stage.relay(&stage.orders(&life, &settings))?);
        }
    }
    writers.stop().await?;
    stage.drained().await?;
    stop(relays).await?;

    let report = stage.report(&Faults::default()).await?;
    let mut found = vec![Finding::told("graceful restarts under load", rounds * RELAYS)];
    found.extend(without_fault(&report));
    Ok(found)
}

/// Waits until something more was delivered, so that a restart happens under load.
async fn progress(stage: &Stage) -> Result {
    let mut tail = stage.tail()?;
    tail.look()?;
    let before = tail.deliveries;
    let more = async || {
        tail.look()?;
        Ok(tail.deliveries > before + 20)
    };
    wait(PATIENCE, more).await
}

/// Two relays under load, one of them killed: when does the other have all shards?
pub(super) async fn takeover(stage: &Stage) -> Result<Vec<Finding>> {
    let lease = Duration::from_secs(2);
    let settings = RelaySettings {
        lease,
        delivery_timeout: Duration::from_secs(1),
        margin: Duration::from_millis(200),
        poll: Duration::from_millis(100),
        ..calm_settings()
    };
    let writing = Writing { rest: 10, ..stage.writing(u64::MAX) };
    let writers = Writers::start(&stage.place.bank, &Outbox::new(), writing);
    let mut times = Vec::new();
    let mut faults = Faults::default();
    let mut heir = stage.relay(&stage.orders("r0", &settings))?;
    for kill in 1..=stage.scale.pick(1, 3, 10) {
        // First alone: where there is one shard, it must be the one to be killed that has it.
        delivers(stage, heir.life()).await?;
        let life = format!("r{kill}");
        let next = stage.relay(&stage.orders(&life, &settings))?;
        both_deliver(stage, heir.life(), &life).await?;
        faults.killed(heir.life());
        heir.kill().await?;
        times.push(alone(stage).await?);
        heir = next;
    }
    writers.stop().await?;
    stage.drained().await?;
    heir.stop().await?;

    let report = stage.report(&faults).await?;
    let worst = times.iter().max().copied().unwrap_or_default();
    let most = lease + Duration::from_secs(1);
    let mut found = vec![
        Finding::told("kills of one relay of two, lease 2 s", times.len()),
        Finding::speed("all shards taken over, at most", seconds(worst), "<= 3.0 s", worst <= most),
        Finding::told("duplicates", report.duplicates),
        Finding::none("duplicates that no fault explains", report.unexplained),
    ];
    found.extend(safe(&report));
    Ok(found)
}

async fn delivers(stage: &Stage, life: &str) -> Result {
    let mut tail = stage.tail()?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.lives.contains_key(life))
    })
    .await
}

/// Waits until both deliver; where there is one shard, until the newcomer is there to take it.
async fn both_deliver(stage: &Stage, old: &str, new: &str) -> Result {
    let mut tail = stage.tail()?;
    let has_one_shard = stage.place.store.config().await?.shards.get() == 1;
    wait(PATIENCE, async || {
        tail.look()?;
        let delivers = |life| tail.lives.contains_key(life);
        let both = stage.place.store.stats().await?.owners == 2;
        Ok(both && delivers(old) && (has_one_shard || delivers(new)))
    })
    .await
}

/// Waits until one living owner has every shard, and tells how long that took.
async fn alone(stage: &Stage) -> Result<Duration> {
    let killed = now();
    let shards = u64::from(stage.place.store.config().await?.shards.get());
    wait(PATIENCE, async || {
        let stats = stage.place.store.stats().await?;
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
    let mut found = vec![Finding::told("events committed", report.committed)];
    found.extend(safe(report));
    found.push(Finding::none("duplicates", report.duplicates));
    found
}

pub(super) fn safe(report: &Report) -> [Finding; 3] {
    [
        Finding::none("lost", report.lost),
        Finding::none("ghosts", report.ghosts),
        Finding::none("first deliveries of a key out of order", report.inversions),
    ]
}

/// As a person reads it.
pub(super) fn seconds(time: Duration) -> String {
    format!("{:.1} s", time.as_secs_f64())
}
