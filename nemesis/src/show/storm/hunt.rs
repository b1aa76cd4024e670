//! Relays killed as fast as they come back, until it is enough.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use pillarbox::RelaySettings;
use tokio::task::JoinSet;

use super::outcome::{Outcome, Script};
use super::{MOST_RELAYS, drain};
use crate::Result;
use crate::chance::Chance;
use crate::log::Tail;
use crate::orders::Orders;
use crate::process::Process;
use crate::settings::hurried;
use crate::show::faults::gather;
use crate::show::slot::Slot;
use crate::show::stage::{Stage, now};
use crate::show::torment::{Kind, Torment};
use crate::table::Finding;

/// How long a relay may take until it delivers something; then it is killed all the same.
const PATIENCE: Duration = Duration::from_secs(5);

/// How often it is looked at whether it has.
const LOOK: Duration = Duration::from_millis(20);

/// How often it is told how far it is.
const TOLD: Duration = Duration::from_secs(10);

pub(super) async fn run(stage: &Stage, kills: u64) -> Result<Vec<Finding>> {
    let relays = stage.relays.unwrap_or(MOST_RELAYS / 2);
    let left = Arc::new(AtomicU64::new(kills));
    let tail = Arc::new(Mutex::new(stage.tail()?));
    let mut slots = JoinSet::new();
    for number in 1..=relays {
        let mut hunted = Slot::new(stage, number, "relay", orders(stage, number))?;
        hunted.live()?;
        let chance = Chance::new(stage.seed.wrapping_mul(31).wrapping_add(number));
        slots.spawn(hunt(hunted, chance, Arc::clone(&left), Arc::clone(&tail)));
    }
    let looking = tokio::spawn(look(Arc::clone(&tail)));
    let writer = writer(stage, relays + 1)?;
    let telling = tokio::spawn(tell(kills, Arc::clone(&left)));
    let hunted = gather(&mut slots).await;
    telling.abort();
    looking.abort();
    let mut torment = Torment::default();
    for slot in hunted? {
        torment.extend(slot.end().await?);
    }
    writer.kill().await?;
    let drained = drain(stage).await?;
    let kinds = vec![Kind::Kill];
    let script = Script { relays, kinds, crashed: None, replayed: None };
    let outcome = Outcome::of(stage, script, torment, drained).await?;
    let busy = outcome.busy_kills();
    let mut found = outcome.findings();
    found.insert(2, Finding::fired("of them relays that had delivered", busy).key("busy_kills"));
    Ok(found)
}

/// A lease that is over before the next one is killed: somebody always has the shards.
fn orders(stage: &Stage, number: u64) -> Orders {
    let mut orders = super::orders(stage, number, true);
    let RelaySettings { retention_done, purge_every, .. } = orders.settings;
    orders.settings = RelaySettings { retention_done, purge_every, ..hurried() };
    orders
}

/// Somebody to whom nothing happens, so that there is always something to deliver.
fn writer(stage: &Stage, number: u64) -> Result<Process> {
    let mut orders = super::orders(stage, number, false);
    orders.life = format!("w{number}");
    stage.program.start("write", &orders, &stage.place.errors())
}

async fn hunt(
    mut slot: Slot,
    mut chance: Chance,
    left: Arc<AtomicU64>,
    tail: Arc<Mutex<Tail>>,
) -> Result<Slot> {
    let take = |left: u64| left.checked_sub(1);
    loop {
        let life = slot.running()?.life().to_owned();
        let has_delivered = || open(&tail).lives.contains_key(&life);
        let end = now() + PATIENCE;
        while now() < end && !has_delivered() {
            tokio::time::sleep(LOOK).await;
        }
        tokio::time::sleep(Duration::from_millis(chance.below(200))).await;
        if left.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).is_err() {
            return Ok(slot);
        }
        slot.kill().await?;
        slot.live()?;
    }
}

/// Reads what is new in the log, for all hunters.
async fn look(tail: Arc<Mutex<Tail>>) -> Result {
    loop {
        tokio::time::sleep(LOOK).await;
        open(&tail).look()?;
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
