//! Relays and writers behind PgBouncer in transaction mode: every transaction may meet another
//! server connection, and nothing that belongs to a session is left from one to the next.

use std::time::Duration;

use pillarbox::RelaySettings;

use super::PROGRESS_TIMEOUT;
use super::environment::{Environment, wait_until};
use super::handover::safe;
use crate::Result;
use crate::check::Faults;
use crate::config::WriteLoad;
use crate::finding::Finding;
use crate::settings::{MAX_UNSETTLED, short_lease};

const RELAYS: u64 = 2;

const LASTING: Duration = Duration::from_secs(30);

pub(super) async fn run(env: &Environment) -> Result<Vec<Finding>> {
    let transactions = env.options.scale.pick(100, 1000, 10_000);
    let settings = short_lease();
    let mut faults = Faults::default();
    let killed = env.relay(&env.relay_config("killed", &settings))?;
    let mut tail = env.tail()?;
    // It has shards before there is anything to deliver: a newcomer might get its first when all is over.
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.acquired.contains_key("killed"))
    })
    .await?;
    let mut relays = Vec::new();
    // Nothing happens to these: none loses a lease because the machine is busy.
    let lasting = RelaySettings { lease: LASTING, delivery_timeout: LASTING / 3, ..settings };
    for number in 1..=RELAYS {
        let mut config = env.relay_config(&format!("r{number}"), &lasting);
        let first = number * 1_000_003;
        config.writes = Some(WriteLoad { writers: 2, first, ..env.write_load(transactions) });
        relays.push(env.relay(&config)?);
    }
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.incarnations.contains_key("killed"))
    })
    .await?;
    faults.killed("killed");
    killed.kill().await?;
    wait_until(PROGRESS_TIMEOUT, async || {
        tail.poll()?;
        Ok(tail.writers_finished == RELAYS)
    })
    .await?;
    env.drained().await?;
    for relay in relays {
        relay.stop().await?;
    }

    let report = env.report(&faults).await?;
    let bound = MAX_UNSETTLED as usize;
    let mut found = vec![
        Finding::info("events committed", report.committed),
        Finding::guarantee(
            "of them through the local queue",
            report.from_local_queue,
            "> 0",
            report.from_local_queue > 0,
        ),
    ];
    found.extend(safe(&report));
    found.push(Finding::info("duplicates after one kill", report.duplicates));
    found.push(Finding::must_be_zero("duplicates without a fault", report.unexplained));
    let within = format!("<= {bound}");
    let met = report.worst <= bound;
    found.push(Finding::guarantee("most duplicates of one fault", report.worst, &within, met));
    Ok(found)
}
