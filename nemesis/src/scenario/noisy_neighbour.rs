//! What a poisoned key, a slow route and listeners that panic or block cost everybody else.
//!
//! Each trouble takes turns with a drain without any, in one run, and the rates are compared.

use super::PROGRESS_TIMEOUT;
use super::crash_recovery::per_second;
use super::environment::{Environment, wait_until};
use crate::Result;
use crate::config::Disturbance;
use crate::finding::Finding;
use crate::settings::long_lease;

const DISTURBANCES: [Disturbance; 5] = [
    Disturbance::PoisonedKey,
    Disturbance::SlowRouteLimited,
    Disturbance::Panics,
    Disturbance::Blocks,
    Disturbance::SlowRoute,
];

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let backlog = env.options.scale.pick(500, 20_000, 100_000);
    let rounds = env.options.scale.pick(1, 3, 5);
    let mut found = vec![Finding::info("good events per round", backlog)];
    for disturbance in DISTURBANCES {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(rate(env, Disturbance::None, backlog).await?);
            beside.push(rate(env, disturbance, backlog).await?);
        }
        let (alone, beside) = (median(&mut alone), median(&mut beside));
        let ratio = beside / alone;
        let what = format!("rate beside {}", disturbance.name());
        let value = format!("{ratio:.2} ({beside:.0}/s of {alone:.0}/s)");
        found.push(Finding::target(what, value, ">= 0.80", ratio >= 0.8));
    }
    Ok(found)
}

/// Good events per second, from when the relay has its shards to the last of them.
async fn rate(env: &Environment, disturbance: Disturbance, backlog: i64) -> Result<f64> {
    let mut tail = env.tail()?;
    tail.poll()?;
    let incarnation = format!("r{}", tail.acquired.len());
    let done = tail.deliveries + u64::try_from(backlog)?;
    let bank = &env.deployment.bank;
    match disturbance {
        Disturbance::None => {}
        Disturbance::PoisonedKey => bank.emit_disturbances(100, 0).await?,
        _ => bank.emit_disturbances(0, env.options.scale.pick(20, 200, 1000)).await?,
    }
    bank.fill(0, backlog, env.accounts).await?;
    let mut config = env.relay_config(&incarnation, &long_lease());
    config.disturbance = disturbance;
    let relay = env.relay(&config)?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.deliveries >= done)
    })
    .await?;
    relay.stop().await?;
    bank.clear().await?;
    let from = tail.acquired.get(&incarnation).ok_or("the relay took no shards")?;
    let span = tail.incarnations.get(&incarnation).ok_or("nothing was delivered")?;
    Ok(per_second(span.deliveries, span.last - from))
}

fn median(rates: &mut [f64]) -> f64 {
    rates.sort_by(f64::total_cmp);
    rates.get(rates.len() / 2).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_median_is_the_one_in_the_middle() {
        assert!((median(&mut [9.0, 1.0, 2.0]) - 2.0).abs() < f64::EPSILON);
    }
}
