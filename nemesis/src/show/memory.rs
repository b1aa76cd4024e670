//! Memory while a long backlog meets a slow listener, and how soon a large backlog starts.

use std::{num::NonZeroU32, time::Duration};

use pillarbox::{Clock as _, RelaySettings, SystemClock};

use super::PATIENCE;
use super::stage::{Stage, wait};
use crate::Result;
use crate::check::Faults;
use crate::orders::Manner;
use crate::settings::calm;
use crate::table::Finding;

/// What an allocator may keep without need, in KiB.
const NOISE: u64 = 16 * 1024;

/// Memory at every tenth of the way.
pub(super) async fn flat(stage: &Stage) -> Result<Vec<Finding>> {
    let backlog = stage.scale.pick(2_000, 100_000, 2_000_000);
    stage.place.bank.fill(0, backlog, stage.accounts).await?;
    let workers = NonZeroU32::new(64).ok_or("not zero")?;
    let settings = RelaySettings { workers, ..calm() };
    let mut orders = stage.orders("slow", &settings);
    orders.listener = Manner::Slow(1000);
    let relay = stage.relay(&orders)?;

    let mut tail = stage.tail()?;
    let mut sizes = Vec::new();
    let all = u64::try_from(backlog)?;
    for tenth in 1..=10 {
        wait(4 * PATIENCE, async || {
            tail.look()?;
            Ok(tail.deliveries >= all * tenth / 10)
        })
        .await?;
        sizes.push(relay.memory()?);
    }
    stage.drained().await?;
    relay.stop().await?;

    let mut found = vec![Finding::told("events, a listener of 1 ms, 64 workers", backlog)];
    for (tenth, size) in sizes.iter().enumerate() {
        let what = format!("memory at {} %", (tenth + 1) * 10);
        found.push(Finding::told(what, format!("{:.1} MiB", mebi(*size))));
    }
    let (early, late) = (sizes.get(1).copied().unwrap_or(0), sizes.iter().max().copied());
    let growth = late.unwrap_or(0).saturating_sub(early);
    let value = format!("{:.1} MiB", mebi(growth));
    found.push(Finding::speed("most above that at 20 %", value, "<= 16 MiB", growth <= NOISE));
    let report = stage.report(&Faults::default()).await?;
    found.push(Finding::none("lost", report.lost));
    found.push(Finding::none("duplicates", report.duplicates));
    Ok(found)
}

/// From the start of the process to its first delivery.
pub(super) async fn backlog(stage: &Stage) -> Result<Vec<Finding>> {
    let backlog = stage.scale.pick(2_000, 200_000, 5_000_000);
    let chunk = 500_000;
    for from in (0..backlog).step_by(usize::try_from(chunk)?) {
        stage.place.bank.fill(from, backlog.min(from + chunk), stage.accounts).await?;
    }
    let started = SystemClock.now().unix_micros();
    let relay = stage.relay(&stage.orders("r", &calm()))?;
    let mut tail = stage.tail()?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.deliveries > 0)
    })
    .await?;
    relay.stop().await?;
    let first = tail.lives.get("r").map_or(0, |span| span.first);
    let took = Duration::from_micros(u64::try_from(first - started).unwrap_or(0));
    let value = format!("{:.2} s", took.as_secs_f64());
    let met = took <= Duration::from_secs(2);
    Ok(vec![
        Finding::told("events that wait", backlog),
        Finding::speed("from the start of the process to a delivery", value, "<= 2.00 s", met),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so much memory")]
fn mebi(kibi: u64) -> f64 {
    kibi as f64 / 1024.0
}
