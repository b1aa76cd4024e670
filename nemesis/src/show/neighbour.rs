//! What a poisoned key, a slow route and listeners that panic or block cost everybody else.
//!
//! Each trouble takes turns with a drain without any, in one run, and the rates are compared.

use super::PATIENCE;
use super::restart::per_second;
use super::stage::{Stage, wait};
use crate::Result;
use crate::orders::Trouble;
use crate::settings::calm;
use crate::table::Finding;

const TROUBLES: [Trouble; 5] = [
    Trouble::PoisonedKey,
    Trouble::SlowRouteLimited,
    Trouble::Panics,
    Trouble::Blocks,
    Trouble::SlowRoute,
];

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    let backlog = stage.scale.pick(500, 20_000, 100_000);
    let rounds = stage.scale.pick(1, 3, 5);
    let mut found = vec![Finding::told("good events of each round", backlog)];
    for trouble in TROUBLES {
        let (mut alone, mut beside) = (Vec::new(), Vec::new());
        for _ in 0..rounds {
            alone.push(rate(stage, Trouble::None, backlog).await?);
            beside.push(rate(stage, trouble, backlog).await?);
        }
        let (alone, beside) = (median(&mut alone), median(&mut beside));
        let ratio = beside / alone;
        let what = format!("rate beside {}", trouble.name());
        let value = format!("{ratio:.2} ({beside:.0}/s of {alone:.0}/s)");
        found.push(Finding::speed(what, value, ">= 0.80", ratio >= 0.8));
    }
    Ok(found)
}

/// Good events per second, from when the relay has its shards to the last of them.
async fn rate(stage: &Stage, trouble: Trouble, backlog: i64) -> Result<f64> {
    let mut tail = stage.tail()?;
    tail.look()?;
    let life = format!("r{}", tail.took.len());
    let done = tail.deliveries + u64::try_from(backlog)?;
    let bank = &stage.place.bank;
    match trouble {
        Trouble::None => {}
        Trouble::PoisonedKey => bank.trouble(100, 0).await?,
        _ => bank.trouble(0, stage.scale.pick(20, 200, 1000)).await?,
    }
    bank.fill(0, backlog, stage.accounts).await?;
    let mut orders = stage.orders(&life, &calm());
    orders.trouble = trouble;
    let relay = stage.relay(&orders)?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.deliveries >= done)
    })
    .await?;
    relay.stop().await?;
    bank.clear().await?;
    let from = tail.took.get(&life).ok_or("the relay took no shards")?;
    let span = tail.lives.get(&life).ok_or("nothing was delivered")?;
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
