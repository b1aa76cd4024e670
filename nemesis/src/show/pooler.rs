//! Relays and writers behind PgBouncer in transaction mode: every transaction may meet another
//! server connection, and nothing that belongs to a session is left from one to the next.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PATIENCE;
use super::handover::safe;
use super::stage::{Stage, wait};
use crate::Result;
use crate::check::Faults;
use crate::orders::Writing;
use crate::settings::{MAX_UNSETTLED, hurried};
use crate::table::Finding;

const RELAYS: u64 = 2;

const LASTING: Duration = Duration::from_secs(30);

pub(super) async fn run(stage: &Stage) -> Result<Vec<Finding>> {
    let transactions = stage.scale.pick(100, 1000, 10_000);
    let settings = hurried();
    let mut faults = Faults::default();
    let killed = stage.relay(&stage.orders("killed", &settings))?;
    let mut tail = stage.tail()?;
    // It has shards before there is anything to deliver: a newcomer might get its first when all is over.
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.took.contains_key("killed"))
    })
    .await?;
    let mut relays = Vec::new();
    // Nothing happens to these: none loses a lease because the machine is busy.
    let lasting = RelaySettings { lease: LASTING, delivery_timeout: LASTING / 3, ..settings };
    for number in 1..=RELAYS {
        let mut orders = stage.orders(&format!("r{number}"), &lasting);
        let first = number * 1_000_003;
        orders.writing = Some(Writing { writers: 2, first, ..stage.writing(transactions) });
        relays.push(stage.relay(&orders)?);
    }
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.lives.contains_key("killed"))
    })
    .await?;
    faults.killed("killed");
    killed.kill().await?;
    wait(PATIENCE, async || {
        tail.look()?;
        Ok(tail.wrote == RELAYS)
    })
    .await?;
    stage.drained().await?;
    for relay in relays {
        relay.stop().await?;
    }

    let report = stage.report(&faults).await?;
    let bound = MAX_UNSETTLED as usize;
    let mut found = vec![
        Finding::told("events committed", report.committed),
        Finding::promise("of them hot", report.hot, "> 0", report.hot > 0),
    ];
    found.extend(safe(&report));
    found.push(Finding::told("duplicates after one kill", report.duplicates));
    found.push(Finding::none("duplicates that no fault explains", report.unexplained));
    let within = format!("<= {bound}");
    let met = report.worst <= bound;
    found.push(Finding::promise("most duplicates of one fault", report.worst, &within, met));
    Ok(found)
}
