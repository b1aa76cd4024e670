//! Relays killed as fast as they come back, until it is enough.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::task::JoinSet;

use super::outcome::{Outcome, Script};
use super::{MOST_RELAYS, drain, slot};
use crate::Result;
use crate::chance::Chance;
use crate::process::Process;
use crate::show::faults::gather;
use crate::show::slot::Slot;
use crate::show::stage::{Stage, now};
use crate::show::torment::{Kind, Torment};
use crate::table::Finding;

/// How long a relay lives at least: long enough to deliver something.
const LIFE: Duration = Duration::from_millis(600);

/// How often it is told how far it is.
const TOLD: Duration = Duration::from_secs(10);

pub(super) async fn run(stage: &Stage, kills: u64) -> Result<Vec<Finding>> {
    let relays = stage.relays.unwrap_or(MOST_RELAYS / 2);
    let left = Arc::new(AtomicU64::new(kills));
    let mut slots = JoinSet::new();
    for number in 1..=relays {
        let mut hunted = slot(stage, number, true)?;
        hunted.live()?;
        let chance = Chance::new(stage.seed.wrapping_mul(31).wrapping_add(number));
        slots.spawn(hunt(hunted, chance, Arc::clone(&left)));
    }
    let writer = writer(stage, relays + 1)?;
    let telling = tokio::spawn(tell(kills, Arc::clone(&left)));
    let hunted = gather(&mut slots).await;
    telling.abort();
    let mut torment = Torment::default();
    for slot in hunted? {
        torment.extend(slot.end().await?);
    }
    writer.kill().await?;
    let drained = drain(stage).await?;
    let kinds = vec![Kind::Kill];
    let script = Script { relays, kinds, crashed: None, replayed: None, is_long: true };
    Ok(Outcome::of(stage, script, torment, drained).await?.findings())
}

/// Somebody to whom nothing happens, so that there is always something to deliver.
fn writer(stage: &Stage, number: u64) -> Result<Process> {
    let mut orders = super::orders(stage, number, false);
    orders.life = format!("w{number}");
    stage.program.start("write", &orders, &stage.place.errors())
}

async fn hunt(mut slot: Slot, mut chance: Chance, left: Arc<AtomicU64>) -> Result<Slot> {
    let take = |left: u64| left.checked_sub(1);
    loop {
        tokio::time::sleep(chance.around(LIFE)).await;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(slot);
        }
        slot.kill().await?;
        slot.live()?;
    }
}

async fn tell(kills: u64, left: Arc<AtomicU64>) {
    let begun = now();
    loop {
        tokio::time::sleep(TOLD).await;
        let done = kills - left.load(Ordering::Relaxed);
        eprintln!("{done} of {kills} kills after {:.0} s", begun.elapsed().as_secs_f64());
    }
}
