//! Everything at once: relays and writers killed, paused, restarted and cut off, their clocks off,
//! sessions ended, the server killed, an operator who replays and purges, and effects that an inbox
//! lets happen once.

mod hunt;
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
pub(super) use self::outcome::{Outcome, Script};
use self::server::Crashes;
use super::PATIENCE;
use super::faults;
use super::late;
use super::slot::Slot;
use super::stage::{Stage, now, wait};
use super::torment::{Kind, Torment};
use crate::chance::Chance;
use crate::orders::{Load, Orders, Writing};
use crate::place::{Server, is_required};
use crate::process::{Process, faketime};
use crate::table::Finding;
use crate::{Result, audit};

const WRITERS: u64 = 2;

/// Nobody is given more relays.
const MOST_RELAYS: u64 = 8;

/// How many milliseconds an event waits between two attempts at most.
const BACKOFF: u64 = 2000;

/// A storm that is shorter says little about what is rare.
const LONG: u64 = 30;

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    audit::install(&stage.place.bank).await?;
    if let Some(kills) = stage.kills {
        return hunt::run(stage, kills).await;
    }
    let seconds = stage.seconds.unwrap_or(stage.scale.pick(6, 20, 60));
    let kinds = kinds(stage)?;
    let relays = stage.relays.unwrap_or_else(|| draw_relays(stage.seed, seconds));
    let over = Arc::new(AtomicBool::new(false));
    let mut slots = start(stage, relays, &kinds, &over).await?;
    let operator = Operator::start(stage, &over)?;
    let crashes = Crashes::start(stage, &over);

    tokio::time::sleep(Duration::from_secs(seconds)).await;
    over.store(true, Ordering::Relaxed);
    let crashed = crashes.join().await?;
    let replayed = operator.join().await?;
    let (running, writing): (Vec<_>, Vec<_>) =
        faults::gather(&mut slots).await?.into_iter().partition(Slot::is_relay);
    says_something(stage).await?;
    let mut torment = end(running).await?;
    torment.extend(late::verdict(stage, &settings()).await?);
    torment.extend(end(writing).await?);
    let drained = drain(stage).await?;
    let script = Script { relays, kinds, crashed, replayed: Some(replayed) };
    Ok(Outcome::of(stage, script, torment, drained).await?.findings())
}

/// Waits until half of the transactions have ended as they should: nothing more is done to anybody,
/// and after a short storm on a busy machine it takes a while.
async fn says_something(stage: &Stage) -> Result {
    let mut tail = stage.tail()?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(outcome::share(tail.well, tail.ill) >= outcome::LEAST_WELL)
    })
    .await
}

async fn end(slots: Vec<Slot>) -> Result<Torment> {
    let mut torment = Torment::default();
    for slot in slots {
        torment.extend(slot.end().await?);
    }
    Ok(torment)
}

/// From one to eight; a short storm has enough for everything to be done to somebody.
fn draw_relays(seed: u64, seconds: u64) -> u64 {
    let least = if seconds < LONG { 4 } else { 1 };
    // Seeds beside each other begin alike.
    let mut chance = Chance::new(seed.wrapping_mul(0x9e37_79b9_7f4a_7c15));
    least + chance.below(MOST_RELAYS + 1 - least)
}

/// What is to be done on this database, and must have been at the end.
fn kinds(stage: &Stage) -> Result<Vec<Kind>> {
    let mut kinds = Kind::PROCESS.to_vec();
    if stage.place.server == Server::Sqlite {
        return Ok(kinds);
    }
    kinds.extend(Kind::NETWORK);
    if faketime().is_some() {
        kinds.push(Kind::Clock);
    } else if is_required("faketime") {
        return Err("faketime is not installed (Debian package `faketime`)".into());
    }
    Ok(kinds)
}

/// Relays that deliver and write, and processes that only write, each behind a network of its own.
async fn start(
    stage: &Stage,
    relays: u64,
    kinds: &[Kind],
    over: &Arc<AtomicBool>,
) -> Result<JoinSet<Result<Slot>>> {
    let mut slots = JoinSet::new();
    let mut hands = deal(kinds, relays + WRITERS, stage.seed).into_iter();
    for number in 1..=relays + WRITERS {
        let is_relay = number <= relays;
        let role = if is_relay { "relay" } else { "write" };
        let mut slot = Slot::new(stage, number, role, orders(stage, number, is_relay))?;
        if stage.place.server != Server::Sqlite {
            slot = slot.behind_proxy().await?;
        }
        let chance = Chance::new(stage.seed.wrapping_mul(31).wrapping_add(number));
        if let Some(library) = faketime().filter(|_| kinds.contains(&Kind::Clock)) {
            slot = slot.with_clocks(library, chance.clone(), number == 1);
        }
        slot.live()?;
        slots.spawn(slot.torment(chance, hands.next().unwrap_or_default(), Arc::clone(over)));
    }
    Ok(slots)
}

/// Each kind to one slot, in an order by chance. Only relays are restarted, and the first slot is one.
fn deal(kinds: &[Kind], slots: u64, seed: u64) -> Vec<Vec<Kind>> {
    let mut chance = Chance::new(seed.wrapping_add(11));
    let mut rest: Vec<Kind> = kinds.to_vec();
    rest.retain(|kind| !matches!(kind, Kind::Clock | Kind::Restart));
    let mut hands = vec![Vec::new(); usize::try_from(slots).unwrap_or(1)];
    for at in (0..hands.len()).cycle().skip(1) {
        if rest.is_empty() {
            break;
        }
        let drawn = usize::try_from(chance.below(rest.len() as u64)).unwrap_or(0);
        hands[at].push(rest.swap_remove(drawn));
    }
    hands[0].push(Kind::Restart);
    hands
}

pub(super) fn orders(stage: &Stage, number: u64, is_relay: bool) -> Orders {
    let settings = settings();
    // A file has one writer at a time, and whoever renews a lease is one.
    let longest =
        if stage.place.server == Server::Sqlite { settings.lease / 4 } else { settings.lease * 2 };
    let load = Load::Varied(u64::try_from(longest.as_millis()).unwrap_or(0));
    let mut orders = faults::orders(stage, number);
    (orders.settings, orders.backoff) = (settings, BACKOFF);
    let (writers, rest) = if is_relay { (1, 100) } else { (4, 10) };
    orders.writing = orders.writing.map(|it| Writing { writers, rest, load, ..it });
    orders
}

/// Rows are kept for a moment, so that there is something to purge.
fn settings() -> RelaySettings {
    RelaySettings {
        retention_done: Duration::from_secs(1),
        purge_every: Duration::from_secs(1),
        ..faults::settings()
    }
}

/// A relay to which nothing happens delivers what is left, and what was given up by order.
pub(super) async fn drain(stage: &Stage) -> Result<Drained> {
    std::fs::write(stage.place.healed(), "")?;
    let (begun, left) = (now(), stage.place.pending().await?);
    let settings = settings();
    let mut orders = stage.orders("last", &settings);
    orders.backoff = BACKOFF;
    let last: Process = stage.relay(&orders)?;
    let operator = Operator::new(stage)?;
    let is_drained = async || {
        operator.replay().await?;
        let stats = stage.place.store.stats().await?;
        Ok(stats.new + stats.waiting + stats.held + stats.dead == 0)
    };
    let drained = wait(PATIENCE, is_drained).await;
    let took = begun.elapsed();
    let stats = stage.place.store.stats().await;
    drained.map_err(|error| format!("something is stuck ({error}): {stats:?}"))?;
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
        let kinds: Vec<Kind> = Kind::PROCESS.into_iter().chain(Kind::NETWORK).collect();
        for seed in 0..20 {
            let hands = deal(&kinds, 1 + WRITERS, seed);

            let mut all = hands.concat();
            all.sort_unstable();
            assert_eq!(all, kinds);
            assert!(hands[0].contains(&Kind::Restart));
        }
    }

    #[test]
    fn the_seed_says_how_many_relays_there_are() {
        let long: Vec<u64> = (0..200).map(|seed| draw_relays(seed, LONG)).collect();

        assert_eq!((long.iter().min(), long.iter().max()), (Some(&1), Some(&8)));
        assert!((0..200).all(|seed| (4..=8).contains(&draw_relays(seed, 6))));
    }
}
