//! A lone relay with a backlog, killed on its way and started again.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, now, wait_until};
use super::handover::seconds;
use crate::Result;
use crate::check::Faults;
use crate::finding::Finding;
use crate::settings::long_lease;

const LEASE: Duration = Duration::from_secs(2);

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let backlog = env.options.scale.pick(2_000, 50_000, 1_000_000);
    let settings = RelaySettings {
        lease: LEASE,
        delivery_timeout: Duration::from_secs(1),
        margin: Duration::from_millis(200),
        ..long_lease()
    };
    let rate = undisturbed(env, &settings, backlog).await?;
    let mut faults = Faults::default();
    let after = killed(env, &settings, backlog, &mut faults).await?;

    let report = env.report(&faults).await?;
    let most = settings.max_unsettled.get() as usize;
    let ratio = after.rate.map(|it| it / rate);
    let told = ratio.map_or("drained earlier".to_owned(), |it| format!("{it:.2}"));
    Ok(vec![
        Finding::info("events per backlog", backlog),
        Finding::info("undisturbed, events/s", format!("{rate:.0}")),
        Finding::info("from the kill to the next delivery, lease 2 s", seconds(after.gap)),
        Finding::target(
            "rate from lease + 1 s on, against undisturbed",
            told,
            ">= 0.80",
            ratio.is_none_or(|ratio| ratio >= 0.8),
        ),
        Finding::must_be_zero("lost", report.lost),
        Finding::must_be_zero("ghosts", report.ghosts),
        Finding::must_be_zero("first deliveries of a key out of order", report.inversions),
        Finding::must_be_zero("duplicates without a fault", report.unexplained),
        Finding::guarantee(
            "duplicates",
            report.duplicates,
            &format!("<= {most}"),
            report.duplicates <= most,
        ),
    ])
}

/// Events per second from the first delivery to the last.
async fn undisturbed(env: &Environment, settings: &RelaySettings, backlog: i64) -> Result<f64> {
    env.deployment.bank.fill(0, backlog, env.accounts).await?;
    env.deployment.bank.tidy().await?;
    let relay = env.relay(&env.relay_config("calm", settings))?;
    env.drained().await?;
    relay.stop().await?;
    let mut tail = env.tail()?;
    tail.poll()?;
    let span = tail.incarnations.get("calm").ok_or("nothing was delivered")?;
    Ok(per_second(span.deliveries, span.last - span.first))
}

struct After {
    /// From the kill to the next delivery.
    gap: Duration,
    /// Events per second from lease + 1 s after the kill on, if any were left.
    rate: Option<f64>,
}

async fn killed(
    env: &Environment,
    settings: &RelaySettings,
    backlog: i64,
    faults: &mut Faults,
) -> Result<After> {
    env.deployment.bank.fill(backlog, 2 * backlog, env.accounts).await?;
    env.deployment.bank.tidy().await?;
    let mut tail = env.tail()?;
    tail.poll()?;
    let third = tail.deliveries + u64::try_from(backlog / 5)?;
    let first = env.relay(&env.relay_config("first", settings))?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.deliveries >= third)
    })
    .await?;
    faults.killed("first");
    first.kill().await?;
    let killed = now();
    let second = env.relay(&env.relay_config("second", settings))?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.incarnations.contains_key("second"))
    })
    .await?;
    let gap = killed.elapsed();
    let late = killed + LEASE + Duration::from_secs(1);
    tokio::time::sleep_until(late).await;
    tail.poll()?;
    let (before, start) =
        (tail.deliveries, tail.incarnations.get("second").map_or(0, |span| span.last));
    env.drained().await?;
    second.stop().await?;
    tail.poll()?;
    let end = tail.incarnations.get("second").map_or(0, |span| span.last);
    let rate =
        (tail.deliveries > before).then(|| per_second(tail.deliveries - before, end - start));
    Ok(After { gap, rate })
}

#[expect(clippy::cast_precision_loss, reason = "nobody counts so far")]
pub(super) fn per_second(count: u64, micros: i64) -> f64 {
    count as f64 * 1e6 / micros.max(1) as f64
}
