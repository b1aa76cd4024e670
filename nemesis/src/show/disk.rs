//! A disk that is full, again and again, under relays and writers.

use std::time::Duration;

use super::stage::{Stage, now, wait};
use super::storm::server::{is_ours, see_to};
use super::storm::{self, Outcome, Script};
use super::torment::{Kind, Torment};
use super::{PATIENCE, skip};
use crate::chance::Chance;
use crate::disk::Disk;
use crate::place::Server;
use crate::process::Process;
use crate::table::Finding;
use crate::{Result, audit};

const RELAYS: u64 = 2;

/// How long the disk is full, and how long it is not, at least.
const LONG: Duration = Duration::from_secs(1);

/// Who writes for so long finds the disk full.
const NOTICED: Duration = PATIENCE;

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    if stage.place.server == Server::Mysql && !is_ours() {
        return skip("MariaDB dies of a full disk, and this one is not ours to start again");
    }
    let disk = stage.place.disk.as_ref().ok_or("the place has no disk of its own")?;
    audit::install(&stage.place.bank).await?;
    let mut chance = Chance::new(stage.seed);
    let mut processes = Vec::new();
    for number in 1..=RELAYS + 1 {
        let is_relay = number <= RELAYS;
        let mut orders = storm::orders(stage, number, is_relay);
        orders.life = format!("{number}");
        // What is purged makes room, and a table that does not grow needs none.
        orders.settings.retention_done = Duration::from_secs(3600);
        let role = if is_relay { "relay" } else { "write" };
        processes.push(stage.program.start(role, &orders, &stage.place.errors())?);
    }
    let (mut torment, mut deaths) = (Torment::default(), 0);
    for _ in 0..stage.scale.pick(1, 3, 10) {
        delivers(stage).await?;
        tokio::time::sleep(chance.around(LONG)).await;
        torment.add(Kind::Disk);
        processes.iter().for_each(|process| torment.faults.paused(process.life()));
        full(stage, disk, chance.around(LONG)).await?;
        deaths += usize::from(see_to(&stage.place.bank).await?);
    }
    // It goes on by itself.
    delivers(stage).await?;
    for process in processes {
        end(process, &mut torment).await?;
    }
    let drained = storm::drain(stage).await?;
    let kinds = vec![Kind::Disk];
    let script = Script { relays: RELAYS, kinds, crashed: None, replayed: None };
    let outcome = Outcome::of(stage, script, torment, drained).await?;
    let mut found = outcome.findings();
    if stage.place.server != Server::Sqlite {
        found.push(Finding::told("times the server died of it", deaths).key("server_deaths"));
    }
    found.push(Finding::fired("transactions that were refused", outcome.refused()).key("refused"));
    Ok(found)
}

/// For so long, and until somebody has noticed: a file has room that is not used yet. What others
/// give back in the meantime is taken, too.
async fn full(stage: &Stage, disk: &Disk, length: Duration) -> Result {
    let mut tail = stage.tail()?;
    tail.look()?;
    let (before, end) = (tail.ill, now() + length);
    let noticed = wait(NOTICED, async || {
        disk.fill()?;
        tail.look()?;
        Ok(now() >= end && tail.ill > before)
    });
    noticed.await.map_err(|error| format!("nobody noticed that the disk is full: {error}"))?;
    disk.free()
}

/// Waits until something more is delivered.
async fn delivers(stage: &Stage) -> Result {
    let mut tail = stage.tail()?;
    tail.look()?;
    let before = tail.deliveries;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.deliveries > before + 20)
    })
    .await
    .map_err(|error| format!("nothing is delivered any more: {error}").into())
}

async fn end(process: Process, torment: &mut Torment) -> Result {
    torment.usage = torment.usage.max(process.usage()?);
    torment.faults.killed(process.life());
    process.kill().await
}
