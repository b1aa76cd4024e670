//! Two relays and a writer whose clocks are hours apart.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PATIENCE;
use super::handover::safe;
use super::stage::{Stage, wait};
use crate::Result;
use crate::check::Faults;
use crate::orders::Writing;
use crate::place::is_required;
use crate::process::faketime;
use crate::settings::calm;
use crate::table::Finding;

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    let Some(library) = faketime() else {
        let missing = "faketime is not installed (Debian package `faketime`)";
        if is_required("faketime") {
            return Err(missing.into());
        }
        return Ok(vec![Finding::told("skipped", missing)]);
    };
    let [ahead, behind] = [1, -1].map(|hours| stage.program.clone().ahead(hours, &library));
    let settings = RelaySettings { lease: Duration::from_secs(30), ..calm() };
    let transactions = stage.scale.pick(30, 1000, 5_000);
    let mut relays = Vec::new();
    for (number, program) in [(1, &stage.program), (2, &ahead)] {
        let mut orders = stage.orders(&format!("r{number}"), &settings);
        let first = number * 1_000_003;
        orders.writing = Some(Writing { writers: 2, first, ..stage.writing(transactions) });
        relays.push(program.start("relay", &orders, &stage.place.errors())?);
    }
    let mut orders = stage.orders("w", &settings);
    orders.writing = Some(Writing { rest: 20, writers: 2, ..stage.writing(transactions) });
    let mut writer = behind.start("write", &orders, &stage.place.errors())?;
    writer.ended(4 * PATIENCE).await?;
    both_delivered(stage).await?;
    stage.drained().await?;
    for relay in relays {
        relay.stop().await?;
    }

    let report = stage.report(&Faults::default()).await?;
    let mut found = vec![
        Finding::told("clocks", "a relay +1 h, a writer -1 h"),
        Finding::told("events committed", report.committed),
        Finding::promise("of them hot", report.hot, "> 0", report.hot > 0),
        Finding::told("leases lost", report.lapses),
    ];
    found.extend(safe(&report));
    found.push(Finding::told("duplicates", report.duplicates));
    found.push(Finding::none("duplicates that no fault explains", report.unexplained));
    Ok(found)
}

/// Both relays have written all they should, and both have delivered.
async fn both_delivered(stage: &Stage) -> Result {
    let mut tail = stage.tail()?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.wrote == 2 && tail.lives.len() == 2)
    })
    .await
}
