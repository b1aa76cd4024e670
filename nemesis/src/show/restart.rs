//! A lone relay with a backlog, killed on its way and started again.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PATIENCE;
use super::handover::seconds;
use super::stage::{Stage, now, wait};
use crate::Result;
use crate::check::Faults;
use crate::settings::calm;
use crate::table::Finding;

const LEASE: Duration = Duration::from_secs(2);

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    let backlog = stage.scale.pick(2_000, 50_000, 1_000_000);
    let settings = RelaySettings {
        lease: LEASE,
        delivery_timeout: Duration::from_secs(1),
        margin: Duration::from_millis(200),
        ..calm()
    };
    let rate = undisturbed(stage, &settings, backlog).await?;
    let mut faults = Faults::default();
    let after = killed(stage, &settings, backlog, &mut faults).await?;

    let report = stage.report(&faults).await?;
    let most = settings.max_unsettled.get() as usize;
    let ratio = after.rate.map(|it| it / rate);
    let told = ratio.map_or("drained before that".to_owned(), |it| format!("{it:.2}"));
    Ok(vec![
        Finding::told("events of each backlog", backlog),
        Finding::told("undisturbed, events/s", format!("{rate:.0}")),
        Finding::told("from the kill to the next delivery, lease 2 s", seconds(after.gap)),
        Finding::speed(
            "rate from lease + 1 s on, against undisturbed",
            told,
            ">= 0.80",
            ratio.is_none_or(|ratio| ratio >= 0.8),
        ),
        Finding::none("lost", report.lost),
        Finding::none("ghosts", report.ghosts),
        Finding::none("first deliveries of a key out of order", report.inversions),
        Finding::none("duplicates that no fault explains", report.unexplained),
        Finding::promise(
            "duplicates",
            report.duplicates,
            &format!("<= {most}"),
            report.duplicates <= most,
        ),
    ])
}

/// Events per second from the first delivery to the last.
async fn undisturbed(stage: &Stage, settings: &RelaySettings, backlog: i64) -> Result<f64> {
    stage.place.bank.fill(0, backlog, stage.accounts).await?;
    stage.place.bank.tidy().await?;
    let relay = stage.relay(&stage.orders("calm", settings))?;
    stage.drained().await?;
    relay.stop().await?;
    let mut tail = stage.tail()?;
    tail.look()?;
    let span = tail.lives.get("calm").ok_or("nothing was delivered")?;
    Ok(per_second(span.deliveries, span.last - span.first))
}

struct After {
    /// From the kill to the next delivery.
    gap: Duration,
    /// Events per second from lease + 1 s after the kill on, if any were left.
    rate: Option<f64>,
}

async fn killed(
    stage: &Stage,
    settings: &RelaySettings,
    backlog: i64,
    faults: &mut Faults,
) -> Result<After> {
    stage.place.bank.fill(backlog, 2 * backlog, stage.accounts).await?;
    stage.place.bank.tidy().await?;
    let mut tail = stage.tail()?;
    tail.look()?;
    let third = tail.deliveries + u64::try_from(backlog / 5)?;
    let first = stage.relay(&stage.orders("first", settings))?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.deliveries >= third)
    })
    .await?;
    faults.killed("first");
    first.kill().await?;
    let killed = now();
    let second = stage.relay(&stage.orders("second", settings))?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.lives.contains_key("second"))
    })
    .await?;
    let gap = killed.elapsed();
    let late = killed + LEASE + Duration::from_secs(1);
    tokio::time::sleep_until(late).await;
    tail.look()?;
    let (before, start) = (tail.deliveries, tail.lives.get("second").map_or(0, |span| span.last));
    stage.drained().await?;
    second.stop().await?;
    tail.look()?;
    let end = tail.lives.get("second").map_or(0, |span| span.last);
    let rate =
        (tail.deliveries > before).then(|| per_second(tail.deliveries - before, end - start));
    Ok(After { gap, rate })
}

#[expect(clippy::cast_precision_loss, reason = "nobody counts so far")]
pub(super) fn per_second(count: u64, micros: i64) -> f64 {
    count as f64 * 1e6 / micros.max(1) as f64
}
