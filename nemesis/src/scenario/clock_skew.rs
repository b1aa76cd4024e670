//! Two relays and a writer whose clocks are hours apart.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, wait_until};
use super::handover::safe;
use crate::Result;
use crate::check::Faults;
use crate::config::WriteLoad;
use crate::deployment::is_required;
use crate::finding::Finding;
use crate::process::faketime;
use crate::role::Role;
use crate::settings::long_lease;

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let Some(library) = faketime() else {
        let missing = "faketime is not installed (Debian package `faketime`)";
        if is_required("faketime") {
            return Err(missing.into());
        }
        return Ok(vec![Finding::info("skipped", missing)]);
    };
    let [ahead, behind] = [1, -1].map(|hours| env.options.program.clone().ahead(hours, &library));
    let settings = RelaySettings { lease: Duration::from_secs(30), ..long_lease() };
    let transactions = env.options.scale.pick(30, 1000, 5_000);
    let mut relays = Vec::new();
    for (number, program) in [(1, &env.options.program), (2, &ahead)] {
        let mut config = env.relay_config(&format!("r{number}"), &settings);
        let first = number * 1_000_003;
        config.writes = Some(WriteLoad { writers: 2, first, ..env.write_load(transactions) });
        relays.push(program.start(Role::Relay, &config, &env.deployment.errors())?);
    }
    let mut config = env.relay_config("w", &settings);
    config.writes = Some(WriteLoad { rest: 20, writers: 2, ..env.write_load(transactions) });
    let mut writer = behind.start(Role::Write, &config, &env.deployment.errors())?;
    writer.ended(4 * PROGRESS_TIMEOUT).await?;
    both_delivered(env).await?;
    env.drained().await?;
    for relay in relays {
        relay.stop().await?;
    }

    let report = env.report(&Faults::default()).await?;
    let mut found = vec![
        Finding::info("clocks", "a relay +1 h, a writer -1 h"),
        Finding::info("events committed", report.committed),
        Finding::guarantee(
            "of them through the local queue",
            report.from_local_queue,
            "> 0",
            report.from_local_queue > 0,
        ),
        Finding::info("leases lost", report.lapses),
    ];
    found.extend(safe(&report));
    found.push(Finding::info("duplicates", report.duplicates));
    found.push(Finding::must_be_zero("duplicates without a fault", report.unexplained));
    Ok(found)
}

/// Both relays have written all they should, and both have delivered.
async fn both_delivered(env: &Environment) -> Result {
    let mut tail = env.tail()?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.writers_finished == 2 && tail.incarnations.len() == 2)
    })
    .await
}
