//! A verdict that comes too late, by construction.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PATIENCE;
use super::stage::{Stage, wait};
use super::torment::Torment;
use crate::Result;
use crate::log::{Entry, Log, Tail};
use crate::orders::Manner;

/// What its listener takes: with events to deliver, some are always in delivery.
const SLOW: u64 = 200_000;

/// Not every pause is one: a process that is stopped while it writes to a file keeps everybody else
/// from taking over.
const ROUNDS: usize = 10;

/// Stops a relay in the middle of its deliveries until another one has taken over, and lets it go on,
/// until a late verdict of its was fenced. Nothing happens where one was fenced before.
///
/// Needs writers at work, and no other relay.
pub(super) async fn verdict(stage: &Stage, settings: &RelaySettings) -> Result<Torment> {
    let (mut torment, mut tail) = (Torment::default(), stage.tail()?);
    for round in 1..=ROUNDS {
        tail.look()?;
        if tail.fenced > 0 {
            break;
        }
        let late = Late { stage, settings, round };
        late.come_late(&mut tail, &mut torment).await?;
    }
    Ok(torment)
}

struct Late<'a> {
    stage: &'a Stage,
    settings: &'a RelaySettings,
    round: usize,
}

impl Late<'_> {
    async fn come_late(&self, tail: &mut Tail, torment: &mut Torment) -> Result {
        let Self { stage, settings, round } = *self;
        let mut orders = stage.orders(&format!("late.{round}"), settings);
        orders.listener = Manner::Slow(SLOW);
        let late = stage.relay(&orders)?;
        look_until(tail, PATIENCE, |tail| tail.lives.contains_key(late.life())).await?;
        Log::open(&orders.log, "nemesis")?.note_of(late.life(), &Entry::Fault { kind: "stops" })?;
        torment.faults.paused(late.life());
        late.pause().await?;
        let heir = stage.relay(&stage.orders(&format!("heir.{round}"), settings))?;
        // In vain where nobody can take over before it goes on.
        look_until(tail, settings.lease * 20, |tail| tail.took.contains_key(heir.life()))
            .await
            .ok();
        late.resume().await?;
        look_until(tail, settings.lease * 20, |tail| tail.fenced > 0).await.ok();
        for process in [late, heir] {
            torment.faults.killed(process.life());
            process.kill().await?;
        }
        Ok(())
    }
}

async fn look_until(
    tail: &mut Tail,
    patience: Duration,
    mut is_seen: impl FnMut(&Tail) -> bool,
) -> Result {
    wait(patience, async || {
        tail.look()?;
        Ok(is_seen(tail))
    })
    .await
}
