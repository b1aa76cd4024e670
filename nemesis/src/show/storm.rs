//! Everything at once: relays and writers killed, paused, restarted and cut off, the server killed,
//! an operator who replays and purges, and effects that an inbox lets happen once.

mod operator;
mod server;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use pillarbox::RelaySettings;
use tokio::task::JoinSet;

use self::operator::Operator;
use self::server::Crashes;
use super::PATIENCE;
use super::faults::{self, RELAYS};
use super::slot::{Slot, Torment};
use super::stage::{Stage, now, wait};
use crate::Result;
use crate::chance::Chance;
use crate::check::Report;
use crate::orders::{Manner, Orders, Writing};
use crate::place::Server;
use crate::process::Process;
use crate::settings::MAX_UNSETTLED;
use crate::table::Finding;

const WRITERS: u64 = 2;

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    let seconds = stage.seconds.unwrap_or(stage.scale.pick(6, 20, 60));
    let over = Arc::new(AtomicBool::new(false));
    let mut slots = start(stage, &over).await?;
    let operator = Operator::start(stage, &over);
    let crashes = Crashes::start(stage, &over);

    tokio::time::sleep(Duration::from_secs(seconds)).await;
    over.store(true, Ordering::Relaxed);
    let crashed = crashes.join().await?;
    let replayed = operator.join().await?;
    let mut torment = Torment::default();
    for slot in faults::gather(&mut slots).await? {
        torment.extend(slot.end().await?);
    }
    let begun = now();
    drain(stage).await?;
    let drained = begun.elapsed();
    let outcome = Outcome {
        report: stage.report(2, &torment.faults).await?,
        effects: stage.place.bank.effects().await?,
        truth: stage.place.bank.truth().await?,
        takeovers: torment.takeovers(&stage.place.read_log()?),
        torment,
        crashed,
        replayed,
        drained,
        is_networked: stage.place.server != Server::Sqlite,
        is_long: seconds >= 30,
    };
    Ok(outcome.findings())
}

/// Relays that deliver and write, and processes that only write, each behind a network of its own.
async fn start(stage: &Stage, over: &Arc<AtomicBool>) -> Result<JoinSet<Result<Slot>>> {
    let mut slots = JoinSet::new();
    for number in 1..=RELAYS + WRITERS {
        let is_relay = number <= RELAYS;
        let role = if is_relay { "relay" } else { "write" };
        let orders = orders(stage, number, is_relay);
        let slot = if stage.place.server == Server::Sqlite {
            Slot::start(stage, number, role, orders)?
        } else {
            Slot::behind_proxy(stage, number, role, orders).await?
        };
        let chance = Chance::new(stage.seed.wrapping_mul(31).wrapping_add(number));
        slots.spawn(slot.torment(chance, Arc::clone(over)));
    }
    Ok(slots)
}

fn orders(stage: &Stage, number: u64, is_relay: bool) -> Orders {
    let mut orders = faults::orders(stage, number);
    (orders.settings, orders.listener) = (settings(), Manner::Booked);
    if let Some(writing) = orders.writing.as_mut().filter(|_| !is_relay) {
        *writing = Writing { writers: 2, batch: 3, rest: 10, ..*writing };
    }
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
async fn drain(stage: &Stage) -> Result {
    std::fs::write(stage.place.healed(), "")?;
    let mut orders = stage.orders("last", &settings());
    orders.listener = Manner::Booked;
    let last: Process = stage.relay(&orders)?;
    let is_drained = async || {
        operator::replay_all(stage).await?;
        let stats = stage.place.store.stats().await?;
        Ok(stats.new + stats.retry + stats.held + stats.dead == 0)
    };
    let drained = wait(PATIENCE, is_drained).await;
    let stats = stage.place.store.stats().await;
    drained.map_err(|error| format!("something is stuck ({error}): {stats:?}"))?;
    last.stop().await
}

/// What it came to.
struct Outcome {
    report: Report,
    torment: Torment,
    effects: Vec<i64>,
    truth: Vec<i64>,
    takeovers: Vec<Duration>,
    crashed: Option<usize>,
    replayed: usize,
    drained: Duration,
    is_networked: bool,
    is_long: bool,
}

impl Outcome {
    fn findings(&self) -> Vec<Finding> {
        [self.what_was_done(), self.what_came_of_it()].concat()
    }

    /// A run in which nothing happened proves nothing.
    fn what_was_done(&self) -> Vec<Finding> {
        let torment = &self.torment;
        let mut found = vec![
            Finding::fired("kills of relays and writers", torment.kills.len()).key("kills"),
            Finding::fired("pauses beyond the lease", torment.pauses).key("stops"),
            Finding::fired("graceful restarts", torment.restarts).key("restarts"),
            Finding::fired("replays of dead letters", self.replayed).key("replays"),
        ];
        if self.is_networked {
            found.extend([
                Finding::fired("times all connections were cut", torment.cuts).key("cuts"),
                Finding::fired("silences beyond the lease", torment.silences).key("silences"),
                Finding::fired("times no connection was to be had", torment.refusals)
                    .key("refusals"),
                Finding::fired("times everything was late", torment.delays).key("delays"),
            ]);
        }
        found.push(match self.crashed {
            Some(crashed) => Finding::fired("kills of the server", crashed).key("server_kills"),
            None => Finding::told("kills of the server", "none that is ours to kill"),
        });
        found
    }

    fn what_came_of_it(&self) -> Vec<Finding> {
        let Report { committed, hot, lost, ghosts, inversions, fenced, .. } = self.report;
        let bound = MAX_UNSETTLED as usize;
        let worst = self.report.worst;
        let takeover = self.takeover_p99();
        vec![
            Finding::told("events committed", committed).key("events"),
            Finding::told("of them hot", hot).key("hot"),
            Finding::none("lost", lost).key("lost"),
            Finding::none("ghosts", ghosts).key("ghosts"),
            Finding::none("first deliveries of a key out of order", inversions).key("inversions"),
            Finding::none("effects too few or too many", self.wrong_effects())
                .key("double_effects"),
            self.fenced(fenced).key("fenced"),
            Finding::told("duplicates", self.report.duplicates).key("duplicates"),
            Finding::none("duplicates that no fault explains", self.report.unexplained)
                .key("unexplained"),
            Finding::promise(
                "most duplicates of one fault",
                worst,
                &format!("<= {bound}"),
                worst <= bound,
            )
            .key("duplicates_of_one_fault"),
            Finding::told("takeover after a kill, p99, in ms", takeover.as_millis())
                .key("takeover_p99_ms"),
            Finding::told("drained after the last fault, in ms", self.drained.as_millis())
                .key("drained_ms"),
        ]
    }

    /// In a short storm, no pause may fall where there is something to fence.
    fn fenced(&self, fenced: usize) -> Finding {
        let what = "late verdicts fenced";
        if self.is_long { Finding::fired(what, fenced) } else { Finding::told(what, fenced) }
    }

    /// Each step and each glimpse has its effect once.
    fn wrong_effects(&self) -> usize {
        let pairs = self.effects.iter().zip(&self.truth);
        let wrong: u64 = pairs.map(|(effects, steps)| effects.abs_diff(steps * 2)).sum();
        usize::try_from(wrong).unwrap_or(usize::MAX)
    }

    fn takeover_p99(&self) -> Duration {
        let mut takeovers = self.takeovers.clone();
        takeovers.sort_unstable();
        let at = takeovers.len().saturating_sub(1) * 99 / 100;
        takeovers.get(at).copied().unwrap_or_default()
    }
}
