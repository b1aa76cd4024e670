//! One row is locked by somebody's idle transaction: every other key is settled meanwhile.

use std::time::Duration;

use pillarbox::RelaySettings;

use crate::Result;
use crate::check::Faults;
use crate::place::Server;
use crate::show::stage::{Stage, now, wait};
use crate::show::{PATIENCE, Scale};
use crate::table::Finding;

/// The account whose third event is locked.
const ACCOUNT: i64 = 7;

/// How long the lock is held where the goals are measured. Smaller runs release it as soon as
/// everything else is settled, or nothing was settled for so long.
const HELD: Duration = Duration::from_secs(30);

pub(super) async fn run(stage: &Stage, settings: &RelaySettings) -> Result<Vec<Finding>> {
    if stage.place.server == Server::Sqlite {
        return Ok(vec![Finding::told("one locked row", "SQLite has no row locks")]);
    }
    let backlog = stage.scale.pick(600, 5_000, 20_000);
    let bank = &stage.place.bank;
    bank.fill(0, backlog, stage.accounts).await?;
    let mut holder = bank.foreign().await?;
    let locked = ACCOUNT + 2 * stage.accounts;
    let lock = format!(
        "begin; select seq from outbox_event where event_id = '01J{locked:0>23}' for update"
    );
    holder.run(&lock).await?;

    let started = now();
    let relay = stage.relay(&stage.orders("locked", settings))?;
    settled_or_stuck(stage).await;
    let (left, took) = (bank.waiting_beside(ACCOUNT).await?, started.elapsed());
    let behind = i64::try_from(stage.place.pending().await?)? - left;
    if stage.scale == Scale::Full {
        tokio::time::sleep_until(started + HELD).await;
    }
    holder.run("rollback").await?;
    stage.drained().await?;
    relay.stop().await?;

    let report = stage.report(&Faults::default()).await?;
    let others = backlog - backlog / stage.accounts;
    let value = format!("{} of {others} in {:.1} s", others - left, took.as_secs_f64());
    Ok(vec![
        Finding::told("one locked row, among", backlog),
        Finding::meaningful("rows that waited for the lock", behind, "> 0", behind > 0),
        Finding::promise(
            "events of other keys settled while it was locked",
            value,
            "all",
            left == 0,
        ),
        Finding::none("lost after it was unlocked", report.lost),
        Finding::none("duplicates", report.duplicates),
        Finding::none("first deliveries of a key out of order", report.inversions),
    ])
}

/// Waits until all other keys are settled. What a stuck relay leaves is counted afterwards.
async fn settled_or_stuck(stage: &Stage) {
    let mut last = (i64::MAX, now());
    let _ = wait(stage.scale.pick(PATIENCE, PATIENCE, HELD), async || {
        let left = stage.place.bank.waiting_beside(ACCOUNT).await?;
        if left < last.0 {
            last = (left, now());
        }
        Ok(left == 0 || last.1.elapsed() > HELD)
    })
    .await;
}
