//! Memory while a long backlog meets a slow listener, and how soon a large backlog starts.

use std::{num::NonZeroU32, time::Duration};

use pillarbox::{Clock as _, RelaySettings, SystemClock};

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, wait_until};
use crate::Result;
use crate::check::Faults;
use crate::config::ListenerBehavior;
use crate::finding::Finding;
use crate::settings::long_lease;

/// What an allocator may keep without need, in KiB.
const NOISE: u64 = 16 * 1024;

/// Memory at every tenth of the way.
pub(super) async fn growth(env: &Environment) -> Result<Vec<Finding>> {
    let backlog = env.options.scale.pick(2_000, 100_000, 2_000_000);
    env.deployment.bank.fill(0, backlog, env.accounts).await?;
    let workers = NonZeroU32::new(64).ok_or("not zero")?;
    let settings = RelaySettings { workers, ..long_lease() };
    let mut config = env.relay_config("slow", &settings);
    config.listener = ListenerBehavior::Slow(1000);
    let relay = env.relay(&config)?;

    let mut tail = env.tail()?;
    let mut sizes = Vec::new();
    let all = u64::try_from(backlog)?;
    for tenth in 1..=10 {
        wait_until(4 * PROGRESS_TIMEOUT, async || {
            tail.poll()?;
            Ok(tail.deliveries >= all * tenth / 10)
        })
        .await?;
        sizes.push(relay.memory()?);
    }
    env.drained().await?;
    relay.stop().await?;

    let mut found = vec![Finding::info("events, a listener of 1 ms, 64 workers", backlog)];
    for (tenth, size) in sizes.iter().enumerate() {
        let what = format!("memory at {} %", (tenth + 1) * 10);
        found.push(Finding::info(what, format!("{:.1} MiB", mebi(*size))));
    }
    let (early, late) = (sizes.get(1).copied().unwrap_or(0), sizes.iter().max().copied());
    let growth = late.unwrap_or(0).saturating_sub(early);
    let value = format!("{:.1} MiB", mebi(growth));
    found.push(Finding::target("most above that at 20 %", value, "<= 16 MiB", growth <= NOISE));
    let report = env.report(&Faults::default()).await?;
    found.push(Finding::must_be_zero("lost", report.lost));
    found.push(Finding::must_be_zero("duplicates", report.duplicates));
    Ok(found)
}

/// From the start of the process to its first delivery.
pub(super) async fn large_backlog(env: &Environment) -> Result<Vec<Finding>> {
    let backlog = env.options.scale.pick(2_000, 200_000, 5_000_000);
    let chunk = 500_000;
    for from in (0..backlog).step_by(usize::try_from(chunk)?) {
        env.deployment.bank.fill(from, backlog.min(from + chunk), env.accounts).await?;
    }
    let started = SystemClock.now().unix_micros();
    let relay = env.relay(&env.relay_config("r", &long_lease()))?;
    let mut tail = env.tail()?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.deliveries > 0)
    })
    .await?;
    relay.stop().await?;
    let first = tail.incarnations.get("r").map_or(0, |span| span.first);
    let took = Duration::from_micros(u64::try_from(first - started).unwrap_or(0));
    let value = format!("{:.2} s", took.as_secs_f64());
    let met = took <= Duration::from_secs(2);
    Ok(vec![
        Finding::info("pending events", backlog),
        Finding::target("from process start to the first delivery", value, "<= 2.00 s", met),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "nobody has so much memory")]
fn mebi(kibi: u64) -> f64 {
    kibi as f64 / 1024.0
}
